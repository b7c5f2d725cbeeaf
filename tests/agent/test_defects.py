# SPDX-License-Identifier: Apache-2.0
"""The whole agent with a defect in it: it is counted, logged once, and all else goes on."""

from __future__ import annotations

import signal
from pathlib import Path

from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, Scraper, running, until

RAISES = """
import discovery.node_host
import discovery.reader.device_reader

def snapshot(*_):
    raise ValueError("a defect")

release = discovery.reader.device_reader.DeviceReader.release
releases = []

def raises_at_first(self, *args, **named):
    releases.append(1)
    if len(releases) == 1:
        raise KeyError("another one")
    return release(self, *args, **named)

discovery.reader.device_reader.DeviceReader.release = raises_at_first
if {breaks_discovery}:
    discovery.node_host.NodeHost.snapshot = snapshot
"""


def _defect(folder: Path, *, breaks_discovery: bool) -> Path:
    (folder / "sitecustomize.py").write_text(RAISES.format(breaks_discovery=breaks_discovery))
    return folder


def _errors(agent: AgentProcess) -> list[object]:
    return [line["part"] for line in agent.logged if line["message"] == "internal error"]


def _counted(agent: AgentProcess) -> float:
    (line,) = (
        line
        for line in agent.metrics().splitlines()
        if line.startswith("gpuscape_internal_errors_total ")
    )
    return float(line.partition(" ")[2])


def test_a_tick_that_always_raises_is_counted_and_logged_once(tmp_path: Path) -> None:
    defect = _defect(tmp_path, breaks_discovery=True)
    simulation = Simulation.create("a30-pair", tmp_path)
    with running(simulation, defect=defect) as agent, Scraper(agent) as scraper:
        until(lambda: _counted(agent) >= 2)
        until(lambda: _errors(agent) == ["tick discover"])
    assert scraper.failures == []


def test_an_errand_that_raises_does_not_end_those_after_it(tmp_path: Path) -> None:
    defect = _defect(tmp_path, breaks_discovery=False)
    simulation = Simulation.create("a30-pair", tmp_path)
    with running(simulation, defect=defect) as agent:
        until(lambda: agent.gpus("present") == 2)
        assert _counted(agent) == 0
        agent.signal(signal.SIGUSR1)
        until(lambda: _counted(agent) == 1)
        until(lambda: _errors(agent) == ["thread errands"])
        agent.signal(signal.SIGUSR2)
        until(lambda: any(line.get("causes") == "none left" for line in agent.logged))
        agent.signal(signal.SIGUSR1)
        until(lambda: "gpuscape_released 1.0" in agent.metrics())
