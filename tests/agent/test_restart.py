# SPDX-License-Identifier: Apache-2.0
"""What an agent knows about GPUs outlives it in the state file: real processes in a row."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from exporters.gpuscape.waste import WINDOW_SECONDS
from simulator.simulation import Simulation
from tests import machines
from tests.agent.agent_process import AgentProcess, running, until
from tests.faults.scene import serving
from tests.kubelet_nodes.cases import FirstOffered, pod
from tests.kubelet_nodes.node import Node

QUICK = ("--discover-interval", "1s", "--sample-interval", "500ms")
PIPE_BYTES = 4096
"""The least that Linux allows."""
REASON = "gpuscape.io/gpu.health-reason"


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("t4", tmp_path / "machine")


def options(folder: Path) -> tuple[str, ...]:
    return (
        *QUICK,
        *("--state-file", str(folder / "state.json")),
        *("--feature-file", str(folder / "features")),
    )


def _first(simulation: Simulation) -> str:
    return next(iter(simulation.state.gpus))


def _logged(agent: AgentProcess, message: str) -> list[dict[str, object]]:
    return [it for it in agent.logged if it["message"] == message]


def _up(agent: AgentProcess) -> dict[str, tuple[str, str]]:
    """Bus id to UUID and whether the GPU answers."""
    rows = re.findall(
        r'^gpuscape_gpu_up{uuid="(.*?)",pci_bus_id="(.*?)"} (.*)$', agent.metrics(), re.M
    )
    return {bus_id: (uuid, up) for uuid, bus_id, up in rows}


def _seconds(agent: AgentProcess, name: str) -> float:
    """The largest value of this family; -1 where it has none."""
    values = re.findall(rf"^{name}{{.*}} (.*)$", agent.metrics(), re.M)
    return max(map(float, values), default=-1.0)


def _places(agent: AgentProcess) -> set[str]:
    return set(re.findall(r'DCGM_FI_DEV_GPU_TEMP{gpu="(.)"', agent.metrics()))


def _reason(folder: Path) -> str | None:
    lines = (folder / "features").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines).get(REASON)


def _run_with_a_lost_gpu_and_an_xid(
    simulation: Simulation, folder: Path, end: signal.Signals = signal.SIGTERM
) -> str:
    """An agent that knows both, and has ended; the UUID of the lost GPU."""
    lost, broken = tuple(simulation.state.gpus)[:2]
    with running(simulation, *options(folder)) as agent:
        until(lambda: agent.gpus("present") == 4)
        uuid, _ = _up(agent)[lost]
        simulation.xid(broken, 95)
        until(lambda: 'xid="95"} 1.0' in agent.metrics())
        machines.unplug(simulation, lost)
        until(lambda: agent.gpus("lost") == 1)
        until(lambda: '"code":95' in (folder / "state.json").read_text())
        agent.signal(end)
        agent.process.wait()
    assert uuid
    return uuid


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_keeps_xids_places_and_the_uuid_of_a_lost_gpu(
    simulation: Simulation, tmp_path: Path, end: signal.Signals
) -> None:
    uuid = _run_with_a_lost_gpu_and_an_xid(simulation, tmp_path, end)
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 3)
        assert _up(agent)[_first(simulation)] == (uuid, "0")
        until(lambda: _places(agent) == set("123"))
        assert 'xid="95"} 1.0' in agent.metrics()
        assert 'reason="xid-95"' in agent.metrics()
        assert [it["gpus"] for it in _logged(agent, "state file read")] == [4]


def test_an_xid_that_is_over_stays_over_after_a_restart(
    simulation: Simulation, tmp_path: Path
) -> None:
    """And one whose need was seen before the restart ends when the need has ended after it."""
    bus_id = _first(simulation)
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 4)
        simulation.set_readings(bus_id, recovery_action=1)
        simulation.xid(bus_id, 95)
        until(lambda: '"needed":{"' in (tmp_path / "state.json").read_text())
    simulation.reset_gpu(bus_id)
    for _ in range(2):
        with running(simulation, *options(tmp_path)) as agent:
            until(lambda: 'xid="95"} 1.0' in agent.metrics())  # waited for here
            until(lambda: _reason(tmp_path) is None)
            until(lambda: '"over":true' in (tmp_path / "state.json").read_text())


def test_a_restart_keeps_for_how_long_a_pod_has_held_its_gpu_in_vain(tmp_path: Path) -> None:
    """The window goes on where it was: it is completed long before it could begin anew and end."""
    simulation = Simulation.create("a30-pair", tmp_path / "machine")
    kubelet = Node("node-a", simulation, FirstOffered(), tmp_path / "kubelet")
    kubelet.admit(pod("pod-a"))
    file = tmp_path / "state.json"
    held = ("--pods", "--pod-resources-socket", str(kubelet.server.path), "--own-families", "all")
    with running(simulation, *options(tmp_path), *held) as agent, serving(kubelet):
        until(lambda: _seconds(agent, "gpuscape_allocated_seconds_total") > 1)
        assert _seconds(agent, "gpuscape_allocated_idle") == 0
        agent.signal(signal.SIGTERM)
        agent.process.wait()

    left = json.loads(file.read_text())
    (times,) = left["waste"]
    before = times["allocated"]
    assert 0 < times["idle_for"] <= before
    times["idle_for"] = WINDOW_SECONDS - 2  # as if it had gone on for so long
    file.write_text(json.dumps(left))

    with running(simulation, *options(tmp_path), *held) as agent, serving(kubelet):
        until(lambda: _seconds(agent, "gpuscape_allocated_idle") == 1)
        until(lambda: _seconds(agent, "gpuscape_allocated_idle_seconds_total") > 0)
        assert before < _seconds(agent, "gpuscape_allocated_seconds_total") < WINDOW_SECONDS
        simulation.set_readings(_first(simulation), gpu_percent=80)
        until(lambda: _seconds(agent, "gpuscape_allocated_idle") == 0)


def _truncated(_: Simulation, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def _other_version(_: Simulation, file: Path) -> None:
    file.write_text(file.read_text().replace('"v":1', '"v":2', 1))


def _wrong_places(_: Simulation, file: Path) -> None:
    file.write_text(file.read_text().replace('"place":3', '"place":1', 1))


def _huge(_: Simulation, file: Path) -> None:
    file.write_bytes(b" " * (1 << 21))


def _no_json(_: Simulation, file: Path) -> None:
    file.write_bytes(b"\0\xff{")


def _folder(_: Simulation, file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe(_: Simulation, file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES: dict[str, tuple[Callable[[Simulation, Path], None], str]] = {
    "cut off": (_truncated, "damaged"),
    "of another version": (_other_version, "another version"),
    "contradictory": (_wrong_places, "damaged"),
    "no JSON": (_no_json, "damaged"),
    "huge": (_huge, "larger than 1 MiB"),
    "a folder": (_folder, "directory"),
    "a named pipe": (_pipe, "it is a named pipe, and its end does not come; name a file"),
}


OFTEN = ("cut off", "a folder", "a named pipe")
"""What is tried with a whole agent in ``make test``; test_records_file.py has all kinds."""


@pytest.mark.parametrize(
    "damage", [pytest.param(it, marks=() if it in OFTEN else pytest.mark.long) for it in DAMAGES]
)
def test_a_file_that_cannot_be_used_is_started_anew_and_logged_once(
    simulation: Simulation, tmp_path: Path, damage: str
) -> None:
    _run_with_a_lost_gpu_and_an_xid(simulation, tmp_path)
    do, why = DAMAGES[damage]
    do(simulation, tmp_path / "state.json")
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 3)
        assert "xid=" not in agent.metrics()
        assert agent.gpus("lost") == 0
        (logged,) = _logged(agent, "state file not used")
        assert why in str(logged["why"])
        if damage != "a folder":
            until(lambda: (tmp_path / "state.json").read_text().count('"bus_id"') == 3)


def test_another_driver_and_another_boot_end_errors_and_another_boot_alone_a_lost_gpu(
    simulation: Simulation, tmp_path: Path
) -> None:
    _run_with_a_lost_gpu_and_an_xid(simulation, tmp_path)
    (simulation.host_root / "sys/module/nvidia/version").write_text("999.1\n")
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 3)
        assert agent.gpus("lost") == 1
        assert "xid=" not in agent.metrics()
        (logged,) = _logged(agent, "state file used in part")
        assert "another driver" in str(logged["why"])
        until(lambda: '"driver":"999.1"' in (tmp_path / "state.json").read_text())
    simulation.reboot()  # NVML would have it again, which sysfs has not
    simulation.remove_gpu(_first(simulation))
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 3)
        assert agent.gpus("lost") == 0
        (logged,) = _logged(agent, "state file used in part")
        assert "another boot" in str(logged["why"])
        until(lambda: (tmp_path / "state.json").read_text().count('"bus_id"') == 3)


def test_a_file_that_cannot_be_written_is_logged_once_and_shown_while_the_agent_goes_on(
    simulation: Simulation, tmp_path: Path
) -> None:
    missing = ("--state-file", str(tmp_path / "missing" / "state.json"))
    with running(simulation, *QUICK, *missing) as agent:
        until(lambda: 'gpuscape_source_up{source="state-file"} 0.0' in agent.metrics())
        until(lambda: agent.gpus("present") == 4)
        (tmp_path / "missing").mkdir()
        until(lambda: 'gpuscape_source_up{source="state-file"} 1.0' in agent.metrics())
        (logged,) = _logged(agent, "state file not written")
        assert "create the folder" in str(logged["why"])


def test_a_disk_that_is_full_leaves_the_old_file_whole(
    simulation: Simulation, tmp_path: Path
) -> None:
    """The limit on a file's size ends a write in its middle, as a full disk does."""
    file = tmp_path / "state.json"
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 4)
        until(lambda: file.exists() and file.read_text().count('"uuid"') == 4)
        before = file.read_bytes()
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (100, 100))
        simulation.xid(_first(simulation), 95)
        until(lambda: 'gpuscape_source_up{source="state-file"} 0.0' in agent.metrics())
        assert file.read_bytes() == before
        assert [it.name for it in tmp_path.iterdir() if "state.json." in it.name] == []
        until(lambda: 'xid="95"} 1.0' in agent.metrics())


def test_an_agent_killed_in_the_midst_of_a_write_leaves_a_file_that_the_next_one_reads(
    tmp_path: Path,
) -> None:
    """A pipe stands where the new file is written: once it is full, the write waits."""
    simulation, file = Simulation.create("hgx-h100", tmp_path / "machine"), tmp_path / "state.json"
    with running(simulation, *options(tmp_path)) as agent:
        until(lambda: file.exists() and file.read_text().count('"uuid"') == 8)
        before = file.read_bytes()
        part = tmp_path / f".state.json.{agent.process.pid}"
        os.mkfifo(part)
        pipe = os.open(part, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        simulation.xid(_first(simulation), 95)
        until(lambda: select.select([pipe], [], [], 0.0)[0] != [])
        agent.signal(signal.SIGKILL)
        agent.process.wait()
        assert 0 < len(os.read(pipe, 1 << 20)) < len(before)
        os.close(pipe)
        part.unlink()
    assert file.read_bytes() == before
    with running(simulation, *options(tmp_path)) as agent:
        assert [it["gpus"] for it in _logged(agent, "state file read")] == [8]


def test_without_the_setting_no_file_is_written_and_nothing_is_known_of_before(
    simulation: Simulation, tmp_path: Path
) -> None:
    _run_with_a_lost_gpu_and_an_xid(simulation, tmp_path)
    with running(simulation, *QUICK) as agent:
        until(lambda: agent.gpus("present") == 3)
        assert "xid=" not in agent.metrics()
        assert "state-file" not in agent.metrics()
