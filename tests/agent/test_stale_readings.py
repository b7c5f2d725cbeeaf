# SPDX-License-Identifier: Apache-2.0
"""The whole agent while a tick of its own stands still: nothing old is served as if it were new."""

from __future__ import annotations

from pathlib import Path

from agent.tick_health import EXIT_TICK_STOPPED
from simulator.simulation import Hang, Simulation
from tests.agent.agent_process import SOON, AgentProcess, running, until

OLDEST_SECONDS = 3 * 1.0
SLACK_SECONDS = 0.5
"""Between the decision about the readings and the writing of their age, on a busy machine."""

HANGS = """
import os
import threading

opens = os.open

def open_or_hang(path, *rest, **named):
    if os.fspath(path) == {file!r} and os.path.exists({when!r}):
        threading.Event().wait()
    return opens(path, *rest, **named)

os.open = open_or_hang
"""
"""As on a mount whose server is gone: whoever opens the file waits in the kernel."""


def _value(text: str, series: str) -> float | None:
    line = next((it for it in text.splitlines() if it.startswith(f"{series} ")), None)
    return None if line is None else float(line.rpartition(" ")[2])


def _has_readings(agent: AgentProcess) -> bool:
    return "\nDCGM_FI_DEV_GPU_TEMP{" in agent.metrics()


def test_readings_go_at_three_intervals_though_the_tick_that_makes_them_stands_still(
    tmp_path: Path,
) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    with running(
        simulation, "--sample-interval", "1s", "--deadline", "1h", "--tick-limit", "24h"
    ) as agent:
        until(lambda: _has_readings(agent))
        simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetPowerUsage")
        ages: list[float] = []

        def gone() -> bool:
            text = agent.metrics()
            if "\nDCGM_FI_DEV_GPU_TEMP{" not in text:
                return True
            ages.append(_value(text, "gpuscape_samples_age_seconds") or 0.0)
            return False

        until(gone)
        assert max(ages) <= OLDEST_SECONDS + SLACK_SECONDS
        assert agent.gpus("present") == 2


def test_a_tick_that_a_file_blocks_is_shown_and_logged_and_ends_the_process_with_its_code(
    tmp_path: Path,
) -> None:
    """It is in a metric before, and no device reader is left behind."""
    file, gone = tmp_path / "counters.csv", tmp_path / "server-gone"
    file.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, x\n")
    (tmp_path / "sitecustomize.py").write_text(HANGS.format(file=str(file), when=str(gone)))
    simulation = Simulation.create("a30-pair", tmp_path / "machine")
    limits = ("--tick-limit", "20s", "--deadline", "1s", "--init-deadline", "1s")
    with running(simulation, "--counters", str(file), *limits, defect=tmp_path) as agent:
        until(lambda: _has_readings(agent))
        readers = agent.readers()
        assert _value(agent.metrics(), "gpuscape_tick_stalled_seconds") == 0.0
        gone.touch()
        until(lambda: (_value(agent.metrics(), "gpuscape_tick_stalled_seconds") or 0.0) > 0.0)
        assert agent.process.wait(SOON) == EXIT_TICK_STOPPED
        until(lambda: agent.logged[-1]["message"] == "agent stopped")
        (stopped,) = [it for it in agent.logged if it["message"] == "tick stopped"]
        assert stopped["tick"] == "counters"
        assert agent.logged[-1]["reason"] == "tick"
        assert not any(reader.is_running() for reader in readers)
