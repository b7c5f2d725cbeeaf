# SPDX-License-Identifier: Apache-2.0
"""The whole agent on a driver that is slow: what takes long once is no fault."""

from __future__ import annotations

from pathlib import Path

from simulator.simulation import Delay, Hang, Simulation
from tests.agent.agent_process import AgentProcess, Scraper, running, until

QUICK = ("--discover-interval", "1s", "--sample-interval", "1s", "--deadline", "1s")
SLOW_SECONDS = 4.0


def _shows_initialising(agent: AgentProcess) -> bool:
    return "\ngpuscape_reader_initialising 1.0" in agent.metrics()


def test_a_driver_that_is_slow_to_initialise_is_shown_as_that_and_then_read(
    tmp_path: Path,
) -> None:
    """As without persistence mode, where no process has a GPU open."""
    simulation = Simulation.create("a30-pair", tmp_path)
    simulation.fault(Delay(seconds=SLOW_SECONDS), "nvmlInit*")
    with running(simulation, *QUICK) as agent:
        until(lambda: _shows_initialising(agent))
        assert agent.get("probes", "/readyz")[0] == 503
        assert agent.get("probes", "/livez")[0] == 200
        until(lambda: agent.gpus("present") == 2)
        until(lambda: not _shows_initialising(agent))
        until(lambda: agent.get("probes", "/readyz")[0] == 200)
        shown = [it for it in agent.logged if it["message"] == "device reader initialising"]
        assert [it["what"] for it in shown] == ["driver"]
        assert "gpuscape_reader_restarts_total 0.0" in agent.metrics()


def test_labels_stay_while_a_reader_that_was_killed_is_replaced_by_one_that_initialises(
    tmp_path: Path,
) -> None:
    simulation, file = Simulation.create("a30-pair", tmp_path), tmp_path / "features"
    with (
        running(simulation, *QUICK, "--feature-file", str(file)) as agent,
        Scraper(agent) as scraper,
    ):
        until(lambda: file.exists() and "nvidia.com/gpu.count=2" in file.read_text())
        before = file.read_text()
        simulation.fault(Delay(seconds=SLOW_SECONDS), "nvmlInit*")
        agent.reader().kill()
        until(lambda: _shows_initialising(agent))
        assert agent.gpus("present") == 2
        until(lambda: not _shows_initialising(agent))
        until(lambda: "\nDCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
        assert file.read_text() == before
    assert scraper.failures == []


def test_one_call_that_stalls_is_in_the_metrics_and_in_no_label(tmp_path: Path) -> None:
    simulation, file = Simulation.create("a30-pair", tmp_path), tmp_path / "features"
    limits = ("--init-deadline", "60s", "--tick-limit", "20m")
    options = (*QUICK, *limits, "--feature-file", str(file))
    with running(simulation, *options) as agent:
        until(lambda: file.exists() and "gpuscape.io/gpu.found=2" in file.read_text())
        before, written = file.read_text(), file.stat().st_mtime_ns
        fault = simulation.fault(
            Hang(), "nvmlDeviceGetPowerUsage", bus_id=next(iter(simulation.state.gpus))
        )
        until(lambda: agent.gpus("hung") == 1)
        until(lambda: any("hung:1" in str(it.get("gpus")) for it in agent.logged))
        assert file.read_text() == before
        simulation.clear(fault)
        until(lambda: agent.gpus("present") == 2)
        until(lambda: str(agent.logged[-1].get("gpus")) == "present:2")
        assert file.read_text() == before
        assert file.stat().st_mtime_ns == written
