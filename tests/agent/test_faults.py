# SPDX-License-Identifier: Apache-2.0
"""The whole agent under faults: it goes on serving, shows the fault, and recovers by itself."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from simulator.simulation import Hang, Return, Simulation
from simulator.state.machine_state import XidEvent
from tests.agent.agent_process import SOON, AgentProcess, Scraper, running, until

QUICK = (
    *("--discover-interval", "3s", "--sample-interval", "500ms"),
    *("--deadline", "1s", "--init-deadline", "3s"),
)
MANY = 2000
BACK_SECONDS = 60.0
"""The promise: a GPU whose hang has ended is read again within this time."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with running(Simulation.create("a30-pair", tmp_path), *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        yield agent


def _bus_id(agent: AgentProcess) -> str:
    return next(iter(agent.simulation.state.gpus))


def test_a_hanging_gpu_is_shown_and_comes_back_while_every_scrape_is_answered(
    agent: AgentProcess,
) -> None:
    with Scraper(agent) as scraper:
        fault = agent.simulation.fault(
            Hang(uninterruptible=True), "nvmlDeviceGetPowerUsage", bus_id=_bus_id(agent)
        )
        until(lambda: agent.gpus("hung") == 1)
        assert agent.gpus("present") == 1
        agent.simulation.clear(fault)
        until(lambda: agent.gpus("present") == 2)
    assert scraper.failures == []
    assert scraper.answers > 0


def _hang(agent: AgentProcess, places: Iterable[int]) -> list[int]:
    """Let readings of these GPUs hang, deaf to SIGTERM; the numbers that end the hangs."""
    bus_ids = tuple(agent.simulation.state.gpus)
    action, entry = Hang(uninterruptible=True), "nvmlDeviceGetPowerUsage"
    return [agent.simulation.fault(action, entry, bus_id=bus_ids[place]) for place in places]


def _readings(agent: AgentProcess) -> int:
    return agent.metrics().count("\nDCGM_FI_DEV_GPU_TEMP{")


def _labels(file: Path) -> dict[str, str]:
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


REASON = "gpuscape.io/gpu.health-reason"
HEALTH = {REASON, "gpuscape.io/gpu.health", "gpuscape.io/gpu.found"}


def _without_health(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in HEALTH}


def test_three_hanging_gpus_of_eight_leave_the_readings_of_five_and_every_label(
    tmp_path: Path,
) -> None:
    """And come back one by one."""
    file = tmp_path / "features"
    with running(
        Simulation.create("hgx-h100", tmp_path), *QUICK, "--feature-file", str(file)
    ) as agent:
        until(lambda: agent.gpus("present") == 8)
        until(lambda: _labels(file).get("nvidia.com/gpu.count") == "8")
        before = _labels(file)
        with Scraper(agent) as scraper:
            faults = _hang(agent, (0, 3, 7))
            until(lambda: (agent.gpus("hung"), agent.gpus("present")) == (3, 5))
            until(lambda: _readings(agent) == 5)
            until(lambda: _labels(file).get("gpuscape.io/gpu.found") == "5")
            until(lambda: "\ngpuscape_reader_stuck 3.0\n" in agent.metrics())
            assert _labels(file)[REASON] == "gpu-hung"
            assert _without_health(_labels(file)) == _without_health(before)
            for back, fault in enumerate(faults, start=6):
                agent.simulation.clear(fault)
                until(lambda back=back: agent.gpus("present") == back)  # type: ignore[misc]
            until(lambda: _labels(file) == before)
            until(lambda: "\ngpuscape_reader_stuck 0.0\n" in agent.metrics())
        assert scraper.failures == []


def test_nine_hanging_gpus_of_sixteen_end_all_readings_and_leave_the_labels(
    tmp_path: Path,
) -> None:
    file = tmp_path / "features"
    with running(
        Simulation.create("hgx-16", tmp_path), *QUICK, "--feature-file", str(file)
    ) as agent:
        until(lambda: agent.gpus("present") == 16)
        until(lambda: _labels(file).get("nvidia.com/gpu.count") == "16")
        before = _labels(file)
        with Scraper(agent) as scraper:
            _hang(agent, range(9))
            until(lambda: _labels(file).get(REASON) == "driver-hung", seconds=2 * SOON)
            assert (agent.gpus("hung"), agent.gpus("unreadable")) == (9, 7)
            until(lambda: _readings(agent) == 0)
            assert _without_health(_labels(file)) == _without_health(before)
            agent.simulation.clear()
            until(lambda: agent.gpus("present") == 16)
            until(lambda: _labels(file) == before)
        assert scraper.failures == []


def test_gpus_that_hang_before_the_agent_starts_are_counted_in_its_labels(tmp_path: Path) -> None:
    simulation, file = Simulation.create("hgx-h100", tmp_path), tmp_path / "features"
    for bus_id in tuple(simulation.state.gpus)[3:5]:
        simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bus_id)
    with running(simulation, *QUICK, "--feature-file", str(file)) as agent:
        until(lambda: (agent.gpus("hung"), agent.gpus("present")) == (2, 6))
        until(lambda: _readings(agent) == 6)
        until(lambda: _labels(file).get("gpuscape.io/gpu.found") == "6")
        labels = _labels(file)
        assert (labels["nvidia.com/gpu.count"], labels["gpuscape.io/gpu.expected"]) == ("8", "8")


def _hang_at_opening(simulation: Simulation, count: int) -> None:
    """So many GPUs hang from now on when they are opened; an agent that ends clears all faults."""
    for bus_id in tuple(simulation.state.gpus)[:count]:
        simulation.fault(
            Hang(uninterruptible=True), "nvmlDeviceGetHandleByPciBusId*", bus_id=bus_id
        )


def test_an_agent_that_starts_next_to_seven_hung_gpus_serves_the_eighth_before_any_deadline(
    tmp_path: Path,
) -> None:
    """And the next one, which has its state file, knows them and does not touch them first."""
    simulation, file = Simulation.create("dgx-a100", tmp_path), tmp_path / "features"
    files = ("--feature-file", str(file), "--state-file", str(tmp_path / "records"))
    options = (*QUICK, *files, "--no-timestamp")
    patient = ("--init-deadline", "10m", "--tick-limit", "3h")
    _hang_at_opening(simulation, 7)
    with running(simulation, *options, *patient) as agent:
        until(lambda: agent.get("probes", "/readyz")[0] == 200)
        until(lambda: _readings(agent) == 1)
        until(lambda: (agent.gpus("initialising"), agent.gpus("hung")) == (7, 0))
        until(lambda: _labels(file).get("nvidia.com/gpu.count") == "8")
        assert "gpuscape.io/gpu.health" not in _labels(file)
        assert "\ngpuscape_reader_initialising 1.0\n" in agent.metrics()
        assert "\ngpuscape_reader_stuck 0.0\n" in agent.metrics()

    _hang_at_opening(simulation, 7)
    with running(simulation, *options, "--init-deadline", "2s") as agent:
        until(lambda: agent.gpus("hung") == 7, seconds=3 * SOON)
        until(lambda: (tmp_path / "records").read_text().count('"hung":true') == 7)
        until(lambda: _labels(file).get(REASON) == "gpu-hung")
    before = _labels(file)
    _hang_at_opening(simulation, 7)
    with running(simulation, *options, *patient) as agent:
        until(lambda: _readings(agent) == 1)
        until(lambda: (agent.gpus("initialising"), agent.gpus("hung")) == (0, 7))
        assert _labels(file) == before


def test_a_gpu_that_stalls_once_comes_back_while_another_hangs_for_good(tmp_path: Path) -> None:
    with running(Simulation.create("t4", tmp_path), *QUICK) as agent:
        until(lambda: agent.gpus("present") == 4)
        (_, stall) = _hang(agent, (1, 2))
        until(lambda: agent.gpus("hung") == 2)
        agent.simulation.clear(stall)
        until(lambda: agent.gpus("present") == 3, seconds=BACK_SECONDS)


def test_a_driver_that_hangs_as_a_whole_is_shown_and_comes_back(agent: AgentProcess) -> None:
    with Scraper(agent) as scraper:
        fault = agent.simulation.fault(Hang(uninterruptible=True))
        until(lambda: agent.gpus("present") == 0)
        agent.simulation.clear(fault)
        until(lambda: agent.gpus("present") == 2)
    assert scraper.failures == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_reader_that_is_killed_or_stopped_is_replaced(
    agent: AgentProcess, number: signal.Signals
) -> None:
    with Scraper(agent) as scraper:
        reader = agent.reader()
        reader.send_signal(number)
        until(lambda: any(other.pid != reader.pid for other in agent.readers()))
        until(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
    assert scraper.failures == []


def test_a_lost_gpu_is_shown_and_comes_back(agent: AgentProcess) -> None:
    agent.simulation.fault(Return(code=15), bus_id=_bus_id(agent))
    until(lambda: agent.gpus("lost") == 1)
    agent.simulation.clear()
    until(lambda: agent.gpus("present") == 2)


def test_a_driver_that_appears_later_is_found(tmp_path: Path) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    simulation.set_driver("absent")
    with running(simulation, *QUICK) as agent, Scraper(agent) as scraper:
        until(lambda: 'gpuscape_source_up{source="nvml"} 0.0' in agent.metrics())
        simulation.set_driver("ok")
        until(lambda: agent.gpus("present") == 2)
    assert scraper.failures == []


def test_an_xid_is_counted_and_shown(agent: AgentProcess) -> None:
    agent.simulation.xid(_bus_id(agent), 79)
    until(lambda: 'xid="79"} 1.0' in agent.metrics())
    assert any(
        line.startswith("DCGM_FI_DEV_XID_ERRORS{") and line.endswith(" 79")
        for line in agent.metrics().splitlines()
    )


def test_each_of_thousands_of_xids_at_once_is_counted_and_no_scrape_lost(
    agent: AgentProcess,
) -> None:
    events = (XidEvent(bus_id=_bus_id(agent), code=31),) * MANY
    with Scraper(agent) as scraper:
        agent.simulation.edit(lambda state: replace(state, events=events))
        until(lambda: f'xid="31"}} {MANY}.0' in agent.metrics())
    assert scraper.failures == []
    assert agent.gpus("present") == 2


def test_release_leaves_no_reader_and_no_client_and_resume_brings_them_back(
    agent: AgentProcess,
) -> None:
    reader = agent.reader()
    agent.signal(signal.SIGUSR1)
    until(lambda: not reader.is_running() and agent.simulation.clients() == 0)
    until(lambda: "DCGM_FI_DEV_GPU_TEMP{" not in agent.metrics())
    agent.signal(signal.SIGUSR2)
    until(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics())


def test_release_ends_a_reader_that_hangs_in_the_driver(agent: AgentProcess) -> None:
    agent.simulation.fault(
        Hang(uninterruptible=True), "nvmlDeviceGetPowerUsage", bus_id=_bus_id(agent)
    )
    until(lambda: agent.gpus("hung") == 1)
    agent.signal(signal.SIGUSR1)
    until(lambda: agent.simulation.clients() == 0)
