# SPDX-License-Identifier: Apache-2.0
"""The actuator says who has GPUs open, and changes nothing by that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actuator.service import gpu_users as module
from actuator.service.gpu_users import gpu_users
from api.actuator.actuator_messages import MOST_USERS, GpuUser, UseAnswer, UseRequest
from tests.actuator.actuator_process import ActuatorProcess, started
from tests.actuator.simulated_node import node
from tests.agent.agent_process import until
from tests.discovery.host.test_device_files import POD, PODS_CGROUP, process

HOLDER = "import sys, time; f = open(sys.argv[1]); print(flush=True); time.sleep(600)"


@pytest.fixture
def actuator(tmp_path: Path) -> Iterator[ActuatorProcess]:
    with started(node(tmp_path), tmp_path / "run" / "actuator.sock") as found:
        yield found


def test_a_program_that_has_a_gpu_open_is_named_and_nothing_is_changed(
    actuator: ActuatorProcess,
) -> None:
    device = actuator.on.simulation.host_root / "dev/nvidia0"
    device.parent.mkdir(exist_ok=True)
    device.touch()
    # the asker's own programs are left out, so another one starts it
    shell = f"{sys.executable} -c '{HOLDER}' {device} & echo $!"
    check = actuator.unchanged()
    with subprocess.Popen(["setsid", "-f", "sh", "-c", shell], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        try:
            starter.stdout.readline()
            found = actuator.ask(UseRequest())
        finally:
            subprocess.run(["kill", "-KILL", str(pid)], check=True)
    name = Path(sys.executable).name[:15]
    assert found == UseAnswer(users=(GpuUser(minor=0, pid=pid, name=name),))

    until(lambda: actuator.ask(UseRequest()) == UseAnswer())
    check()


def test_the_asker_and_what_it_has_started_are_left_out(actuator: ActuatorProcess) -> None:
    device = actuator.on.simulation.host_root / "dev/nvidia0"
    device.parent.mkdir(exist_ok=True)
    device.touch()
    with (
        device.open(),
        subprocess.Popen([sys.executable, "-c", HOLDER, device], stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        try:
            assert actuator.ask(UseRequest()) == UseAnswer()
        finally:
            child.kill()


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Where this process is in a pod, as a container sees it."""
    proc = tmp_path / "host/proc"
    process(proc, 1, "init", parent=0)
    process(proc, 7, "gpuscape", cgroup=PODS_CGROUP)
    (proc / "self").symlink_to("7")
    return proc.parent


def test_pods_are_named_the_own_pod_and_what_is_harmless_left_out(host: Path) -> None:
    other = POD.replace("0c5f", "1c5f")
    proc = host / "proc"
    process(proc, 20, "reader", "/dev/nvidia0", cgroup=PODS_CGROUP)
    process(proc, 21, "nvidia-persiste", "/dev/nvidia0")
    process(proc, 22, "nv-hostengine", "/dev/nvidia0", "/dev/nvidia1")
    process(proc, 23, "plugin", "/dev/nvidia0", cgroup=PODS_CGROUP.replace(POD, other))
    assert gpu_users(host, simulated=False, asker=0).users == (
        GpuUser(minor=0, pid=22, name="nv-hostengine"),
        GpuUser(minor=0, pid=23, name="plugin", pod=other),
        GpuUser(minor=1, pid=22, name="nv-hostengine"),
    )


def test_the_own_pod_is_left_out_where_a_cgroup_namespace_hides_it(host: Path) -> None:
    """As with Docker on cgroup version 2, for a privileged container too."""
    proc = host / "proc"
    (proc / "7/cgroup").write_text("0::/\n")
    (proc / "7/ns").mkdir()
    (proc / "7/ns/cgroup").symlink_to("cgroup:[4026532567]")
    process(proc, 20, "reader", "/dev/nvidia0", cgroup=f"0::/../docker-{'0e' * 32}.scope")
    process(proc, 21, "nv-hostengine", "/dev/nvidia0", cgroup="0::/../../../../system.slice/a")
    process(proc, 22, "plugin", "/dev/nvidia0", cgroup=f"0::/../../pod{POD}/b")
    others = (
        GpuUser(minor=0, pid=21, name="nv-hostengine"),
        GpuUser(minor=0, pid=22, name="plugin", pod=POD),
    )

    assert gpu_users(host, simulated=False, asker=0, pod_uid="uid-1").users == others
    reader = GpuUser(minor=0, pid=20, name="reader")
    assert gpu_users(host, simulated=False, asker=0).users == (reader, *others)


def test_an_answer_names_so_many_and_counts_the_rest(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {0: frozenset(range(1000, 1000 + MOST_USERS + 5))}
    monkeypatch.setattr(module, "openers", lambda *_, **__: many)
    found = gpu_users(host, simulated=False, asker=0)
    assert (len(found.users), found.more) == (MOST_USERS, 5)
