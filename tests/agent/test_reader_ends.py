# SPDX-License-Identifier: Apache-2.0
"""How device readers start and end, by the whole agent: nothing waits for it, nothing is silent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from discovery.reader.child import PROGRAM
from simulator.simulation import Crash, Hang, Return, Simulation
from tests.agent.agent_process import SOON, AgentProcess, Scraper, running, until

QUICK = ("--discover-interval", "3s", "--sample-interval", "500ms", "--deadline", "1s")


def _ends(agent: AgentProcess) -> list[dict[str, object]]:
    return [line for line in agent.logged if line["message"] == "device reader ended"]


def test_the_last_lines_of_a_reader_that_dies_are_logged_once_a_minute(tmp_path: Path) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    text = "".join(f"line {number}\n" for number in range(100_000)) + "NVRM: \x1b[31massertion\n"
    with running(simulation, *QUICK) as agent, Scraper(agent) as scraper:
        until(lambda: agent.gpus("present") == 2)
        simulation.fault(Crash(ending="exit", prints=text), "nvmlInit*")
        agent.reader().kill()
        until(lambda: len(_ends(agent)) == 2)
        until(lambda: _restarts(agent) >= 6)
        losses = _value(agent, 'gpuscape_gpu_event_losses_total{source="nvml"}')
        simulation.clear()
        until(lambda: agent.gpus("present") == 2)
    killed, crashed = _ends(agent)
    assert losses >= 5  # at each end XIDs may be lost
    assert (killed["how"], killed["stderr"]) == ("SIGKILL", "empty")
    assert crashed["how"] == "exit status 70"
    lines = str(crashed["stderr"]).split(" | ")
    assert len(lines) == 20
    assert all(line.isprintable() for line in lines)
    assert scraper.failures == []


def test_what_a_reader_prints_last_is_kept(tmp_path: Path) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    text = "driver: about to fail\nNVRM: \x1b[31massertion\n"
    simulation.fault(Crash(ending="kill", prints=text), "nvmlInit*", times=1)
    with running(simulation, *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        (end,) = _ends(agent)
    assert end["how"] == "SIGKILL"
    assert end["stderr"] == r"driver: about to fail | NVRM: \x1b[31massertion"


def test_a_reader_that_ends_as_it_should_is_not_logged(tmp_path: Path) -> None:
    with running(Simulation.create("a30-pair", tmp_path), *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        agent.signal(signal.SIGUSR1)
        until(lambda: not agent.readers())
        agent.signal(signal.SIGUSR2)
        until(lambda: agent.gpus("present") == 2)
    assert _ends(agent) == []


def test_ctrl_c_in_a_terminal_ends_the_agent_without_a_warning(tmp_path: Path) -> None:
    """The terminal sends it to the agent's whole group; readers are ended by the agent."""
    simulation = Simulation.create("a30-pair", tmp_path)
    with running(simulation, *QUICK, in_own_group=True) as agent:
        until(lambda: agent.gpus("present") == 2)
        os.killpg(agent.process.pid, signal.SIGINT)
        assert agent.process.wait(SOON) == 0
        until(lambda: agent.logged[-1]["message"] == "agent stopped")
    assert [line for line in agent.logged if line["level"] != "INFO"] == []
    assert agent.said == ""


def _value(agent: AgentProcess, series: str) -> float:
    lines = agent.metrics().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{series} "))
    return float(line.rpartition(" ")[2])


def _restarts(agent: AgentProcess) -> float:
    return _value(agent, "gpuscape_reader_restarts_total")


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_UNKNOWN])
def test_a_wait_for_events_that_returns_at_once_is_no_busy_loop(tmp_path: Path, code: int) -> None:
    """Two waits a second, whatever the driver answers."""
    simulation = Simulation.create("a30-pair", tmp_path)
    simulation.fault(Return(code=code), "nvmlEventSetWait*")
    with running(simulation, *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        simulation.log_calls()
        took = until(lambda: _calls(simulation, "nvmlDeviceGetPowerUsage") > 10)
        assert _calls(simulation, "nvmlEventSetWait") <= 2 * took + 3


def _calls(simulation: Simulation, entry: str) -> int:
    return sum(n for (name, _), n in simulation.calls().items() if name.startswith(entry))


def test_a_storm_of_xids_is_counted_in_full_and_logged_once(tmp_path: Path) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    gpu = next(iter(simulation.state.gpus))
    with running(simulation, *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        for _ in range(50):
            simulation.xid(gpu, 48)
        until(lambda: 'xid="48"} 50.0' in agent.metrics())
        assert sum(line["message"] == "XID error" for line in agent.logged) == 1


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """What the agent starts its readers with; a file that a test may replace."""
    path = tmp_path / "python"
    _write_starter(path)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(path)!r}\n")
    return path


def _write_starter(path: Path) -> None:
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)


@contextlib.contextmanager
def _slow_to_start(path: Path) -> Iterator[None]:
    """Until the block ends, running the program at ``path`` waits, as on a disk that hangs.

    A lease on the file keeps whoever opens it waiting; the kernel takes it away after
    /proc/sys/fs/lease-break-time, 45 seconds by default.
    """
    slow = path.with_name("slow")
    _write_starter(slow)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(slow, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        slow.replace(path)
        yield
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


def test_nobody_waits_for_a_reader_whose_program_cannot_be_read(
    tmp_path: Path, python: Path
) -> None:
    """No lock is held while the new process waits for its program."""
    simulation = Simulation.create("a30-pair", tmp_path)
    with running(simulation, *QUICK, defect=tmp_path) as agent:
        until(lambda: agent.gpus("present") == 2)
        with _slow_to_start(python), Scraper(agent) as scraper:
            dead = agent.reader()
            dead.kill()
            until(lambda: any(it.pid != dead.pid for it in agent.readers()))
            scrapes = scraper.answers
            agent.signal(signal.SIGUSR1)
            until(lambda: "gpuscape_released 1.0" in agent.metrics(), seconds=20)
            until(lambda: scraper.answers > scrapes + 5, seconds=20)
            commands = [it.cmdline() for it in agent.readers()]
            assert any(str(PROGRAM) not in command for command in commands)  # it waits still
        assert scraper.failures == []
        assert scraper.slowest_seconds < 20
        agent.signal(signal.SIGUSR2)
        until(lambda: agent.gpus("present") == 2)


def test_a_probe_without_a_program_to_start_is_no_defect(tmp_path: Path, python: Path) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    with running(simulation, *QUICK, defect=tmp_path) as agent:
        until(lambda: agent.gpus("present") == 2)
        gpu = next(iter(simulation.state.gpus))
        simulation.fault(Hang(), "nvmlDeviceGetPowerUsage", bus_id=gpu)
        until(lambda: agent.gpus("hung") == 1)
        python.unlink()
        starts = _restarts(agent)
        until(lambda: _restarts(agent) > starts)
        simulation.clear()
        _write_starter(python)
        until(lambda: agent.gpus("present") == 2)
        assert "gpuscape_internal_errors_total 0.0" in agent.metrics()
