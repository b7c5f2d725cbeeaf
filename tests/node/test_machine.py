# SPDX-License-Identifier: Apache-2.0
"""Machines of namespaces: what is their own, what they share, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from tests.agent.agent_process import runs, until
from tests.controlplane.components import LOOPBACK
from tests.controlplane.programs import ROOT, ProgramError, Programs
from tests.node import cgroups, needs
from tests.node.machine import BOOT_ID, DISK, FIRST_PROCESS, REBOOTS, SYSCTLS
from tests.node.network import NetworkPrograms

pytestmark = pytest.mark.cluster

ADDRESS = "10.44.0.2"
PORT = 8000

STARTER = """
import sys, time
from pathlib import Path
from tests.controlplane.programs import Programs
from tests.node.machine import FIRST_PROCESS
from tests.node.network import NetworkPrograms
folder = Path(sys.argv[1])
network = NetworkPrograms(folder / "network")
spec = network.machine("box", 1, folder)
machine = Programs(folder / "logs", supervisor=spec.arguments())
machine.start("sleepers", ["sh", "-c", "(setsid sleep 600 &) && exec sleep 600"])
print(machine.supervisor, (folder / FIRST_PROCESS).read_text(), network.network, flush=True)
time.sleep(600)
"""
"""One of the sleepers has lost its parent: as a container's shim has."""

SERVE = f"""
import socket
server = socket.create_server(("", {PORT}))
while True:
    client, _ = server.accept()
    client.sendall(socket.gethostname().encode())
    client.close()
"""
ASK = f"""
import socket
print(socket.create_connection(("{ADDRESS}", {PORT}), 9).recv(99).decode())
"""


@pytest.fixture(autouse=True)
def _allowed() -> None:
    needs.demand()


@contextmanager
def box(folder: Path) -> Iterator[Programs]:
    """A machine alone in its network."""
    with NetworkPrograms(folder / "network") as network:
        spec = network.machine("box", 1, folder)
        with Programs(folder / "logs", supervisor=spec.arguments()) as machine:
            yield machine


def answer(port: int) -> str:
    """What a server says that the port of loopback leads to; empty where there is none."""
    try:
        with socket.create_connection((LOOPBACK, port), 9) as client:
            return client.recv(99).decode()
    except OSError:
        return ""


def ran(programs: Programs, *command: str) -> list[str]:
    """The lines that a command printed on a machine."""
    programs.start("probe", ["sh", "-c", " ".join(command)])
    until(lambda: programs.code("probe") is not None)
    return programs.log("probe").read_text().splitlines()


def test_names_processes_addresses_cgroups_and_disk_are_its_own(tmp_path: Path) -> None:
    with box(tmp_path) as machine:
        lines = ran(
            machine,
            "uname -n; cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l;",
            "ip -o -4 address show dev eth0; cat /proc/self/cgroup;",
            "echo whose > /var/lib/made",
        )
        made = (tmp_path / DISK / "made").read_text()
        outside = Path(f"/proc/{(tmp_path / FIRST_PROCESS).read_text()}/cgroup").read_text()

    assert outside.count(f"/{cgroups.PREFIX}") == len(cgroups.hierarchies())
    name, first, processes, address, *own = lines
    assert (name, made) == ("box", "whose\n")
    assert first.startswith("python")
    assert int(processes) < 10
    assert f"inet {ADDRESS}/24" in address
    inside = f"/{cgroups.FIRST}" if cgroups.is_unified() else "/"
    assert {line.split(":", 2)[2] for line in own} == {inside}
    assert not Path("/var/lib/made").exists()
    assert not (tmp_path / DISK).exists()


def test_a_machine_that_is_started_again_has_its_disk_and_nothing_of_its_memory(
    tmp_path: Path,
) -> None:
    """Nor its boot id; as after a failure of power."""
    with NetworkPrograms(tmp_path / "network") as network:
        spec = network.machine("box", 1, tmp_path)
        network.remove(tmp_path / DISK)
        lines: list[str] = []
        for _ in range(2):
            machine = Programs(tmp_path / "logs", supervisor=spec.arguments())
            shown = f"cat /proc/sys/{BOOT_ID} && ls -d /run/memory /var/lib/disk 2>&-;"
            lines += ran(machine, shown, "touch /run/memory /var/lib/disk")
            (tmp_path / REBOOTS).touch()
            os.kill(int((tmp_path / FIRST_PROCESS).read_text()), signal.SIGKILL)
            machine.end()
    first, again, second, *found = lines

    assert (again, found) == (first, ["/var/lib/disk"])  # the log goes on where it was
    assert first != second
    assert not (tmp_path / DISK).exists()


@pytest.mark.parametrize("place", ["/", "/opt", "/usr/libexec", "/etc", str(Path.home())])
def test_what_is_the_hosts_cannot_be_written_to(tmp_path: Path, place: str) -> None:
    with box(tmp_path) as machine:
        (said,) = ran(machine, f"touch {place}/made-by-a-machine")

    assert said.endswith("Read-only file system")


def test_what_a_kubelet_sets_for_the_whole_host_seems_to_be_set(tmp_path: Path) -> None:
    """It writes what it reads otherwise; nothing is written here, lest it reach the host."""
    with box(tmp_path) as machine:
        shown = ran(machine, "cd /proc/sys && cat", *SYSCTLS)

    assert [int(line) for line in shown] == list(SYSCTLS.values())


def test_what_lost_its_parent_and_ended_is_gone(tmp_path: Path) -> None:
    with box(tmp_path) as machine:
        ran(machine, "sleep 0.1 &")
        first = psutil.Process(int((tmp_path / FIRST_PROCESS).read_text()))
        until(lambda: first.children() == [])


def test_machines_of_a_network_meet_and_those_of_another_do_not(tmp_path: Path) -> None:
    """Both networks and their machines have the same addresses."""
    with ExitStack() as running:
        ports = {}
        for side in ("left", "right"):
            network = running.enter_context(NetworkPrograms(tmp_path / side))
            ports[side] = network.relay(f"{ADDRESS}:{PORT}")
            for number, name in ((1, side), (2, f"{side}-client")):
                folder = tmp_path / name / "machine"
                spec = network.machine(name, number, folder)
                machine = running.enter_context(
                    Programs(folder / "logs", supervisor=spec.arguments())
                )
                if number == 1:
                    machine.start("server", [sys.executable, "-c", SERVE])
                    until(lambda port=ports[side], side=side: answer(port) == side)  # type: ignore[misc]
                else:
                    assert ran(machine, f"{sys.executable} -c '{ASK}'") == [side]

        assert {side: answer(port) for side, port in ports.items()} == {
            "left": "left",
            "right": "right",
        }


def test_a_relay_follows_the_address_in_a_file(tmp_path: Path) -> None:
    """As the pods of a service come and go."""
    named = SERVE.replace("socket.gethostname()", "sys.argv[1]")
    named = named.replace(str(PORT), "int(sys.argv[1])")
    target = tmp_path / "target"
    with NetworkPrograms(tmp_path / "logs", inside=("8001", "8002")) as network:
        port = network.relay(f"@{target}")
        for where in ("8001", "8002"):
            network.start(where, [sys.executable, "-c", f"import sys{named}", where])
            target.write_text(f"{LOOPBACK}:{where}")
            until(lambda where=where: answer(port) == where)  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A machine that another process has started."""

    starter: subprocess.Popen[str]
    keeper: psutil.Process
    processes: list[psutil.Process]
    """All on the machine, the first one first."""
    network: psutil.Process
    disk: Path

    def cgroups(self) -> list[Path]:
        """Those that are left."""
        name = f"{cgroups.PREFIX}{self.keeper.pid}-*"
        return [it for one in cgroups.hierarchies() for it in one.folder.glob(name)]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            keeper, first, around = map(int, process.stdout.readline().split())
            until(lambda: len(psutil.Process(first).children()) >= 2)
            found = Started(
                starter=process,
                keeper=psutil.Process(keeper),
                processes=[psutil.Process(first), *psutil.Process(first).children(recursive=True)],
                network=psutil.Process(around),
                disk=tmp_path / DISK,
            )
            assert found.cgroups()
            assert found.disk.is_dir()
            yield found
        finally:
            process.kill()
    cgroups.sweep()


def test_nothing_is_left_of_a_machine_whose_maker_is_killed(started: Started) -> None:
    started.starter.kill()

    until(lambda: not any(map(runs, [*started.processes, started.keeper, started.network])))
    assert started.cgroups() == []
    assert not started.disk.exists()


def test_the_kernel_ends_a_machine_whose_keeper_is_killed_and_the_next_one_tidies_up(
    started: Started,
) -> None:
    started.keeper.kill()

    until(lambda: not any(map(runs, started.processes)))
    started.starter.kill()
    started.starter.wait()
    assert started.cgroups()
    cgroups.sweep()
    assert started.cgroups() == []


def test_what_lives_is_not_swept(started: Started) -> None:
    empty = [folder / "of-a-pod-to-come" for folder in started.cgroups()]
    for folder in empty:
        folder.mkdir()

    cgroups.sweep()

    assert all(folder.is_dir() for folder in empty)


def test_a_machine_that_cannot_be_set_up_is_explained(tmp_path: Path) -> None:
    with NetworkPrograms(tmp_path / "network") as network:
        good = network.machine("box", 1, tmp_path)
        bad = replace(good, gateway="10.99.0.1")
        machine = Programs(tmp_path / "logs", supervisor=bad.arguments())
        why = r"machine box: ip route add default via 10\.99\.0\.1"
        with pytest.raises(ProgramError, match=why):
            machine.start("sleeper", ["sleep", "600"])
        machine.end()

    name = f"{cgroups.PREFIX}{machine.supervisor}-*"
    assert [it for one in cgroups.hierarchies() for it in one.folder.glob(name)] == []


def test_a_machine_ends_at_once_when_its_first_process_is_killed(started: Started) -> None:
    """As when the power fails."""
    started.processes[0].send_signal(signal.SIGKILL)

    until(lambda: not any(map(runs, [*started.processes, started.keeper])))
    assert started.cgroups() == []


def test_an_order_to_a_machine_that_has_ended_is_an_error(tmp_path: Path) -> None:
    with box(tmp_path) as machine:
        machine.start("sleeper", ["sleep", "600"])
        os.kill(int((tmp_path / FIRST_PROCESS).read_text()), signal.SIGKILL)

        with pytest.raises(ProgramError, match="the supervisor has ended"):
            machine.start("another", ["true"])
