# SPDX-License-Identifier: Apache-2.0
"""The whole agent under faults: it goes on serving, shows the fault, and recovers by itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.simulator.simulation import Hang, Return, Simulation
from tests.agent.agent_process import AgentProcess, Scraper, running, until

QUICK = ("--discover-interval", "3s", "--sample-interval", "500ms", "--deadline", "1s")


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
