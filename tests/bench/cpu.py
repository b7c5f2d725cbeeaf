# SPDX-License-Identifier: Apache-2.0
"""Processor time of the agent with and without its own families, next to nvitop's exporter."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from discovery.simulator.simulation import Simulation
from tests.bench import programs
from tests.bench.exporters import (
    FAMILY,
    OURS,
    SAMPLE_SECONDS,
    SCRAPE_SECONDS,
    SETTLE_SECONDS,
    count_series,
    cpu_seconds,
)
from tests.bench.exporters import THEIRS as NVITOP
from tests.bench.page import Section

MACHINE = "hgx-h100"
CORE, NONE = OURS, "gpuscape_none"
NAMES = (CORE, NONE, NVITOP)
ROUNDS = 5
ROUND_SECONDS = 60.0
"""One discovery of the agent, and six samples."""
BUDGETS = {CORE: 1.3, NONE: 1.0}
"""Parts of nvitop's time."""


def measure(
    rounds: int = ROUNDS, seconds: float = ROUND_SECONDS
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Of each exporter its own processor seconds in each round, and how many series it serves."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        state_file = Simulation.create(MACHINE, Path(folder)).state_file
        running = [
            ending.enter_context(programs.running(name, state_file, SAMPLE_SECONDS))
            for name in NAMES
        ]
        for program in running:
            program.await_family(FAMILY[program.name])
        time.sleep(SETTLE_SECONDS)
        found: dict[str, list[float]] = {name: [] for name in NAMES}
        for _ in range(rounds):
            for name, (own, _simulated) in cpu_seconds(running, seconds).items():
                found[name].append(own)
        return found, {each.name: count_series(each.text()) for each in running}


def section() -> Section:
    """On an HGX H100, without a cluster."""
    found, series = measure()
    hourly = 3600 / ROUND_SECONDS
    ratios = {
        name: median(own / theirs for own, theirs in zip(found[name], found[NVITOP], strict=True))
        for name in BUDGETS
    }
    return Section(
        title="Processor time next to nvitop's exporter, on an HGX H100",
        text=(
            f"The agent with `own-families: core`, the same with `none`, and nvitop-exporter "
            f"{version('nvitop-exporter')}, at once on one simulated machine, each read every "
            f"{SAMPLE_SECONDS:g} s and scraped every {SCRAPE_SECONDS:g} s. User and system time of "
            f"all of a program's processes over {ROUND_SECONDS:g} s, the median of {ROUNDS} such "
            "rounds; ratios are of the same round. The simulator is taken out as in the sections "
            "above: each simulated call is timed in the process that makes it."
        ),
        columns=("", "own-families: core", "own-families: none", "nvitop"),
        rows=(
            ("series", *(f"{series[name]:,}" for name in NAMES)),
            ("CPU per hour", *(f"{median(found[name]) * hourly:.1f} s" for name in NAMES)),
            ("rounds", *(_rounds(found[name], hourly) for name in NAMES)),
            ("of nvitop's", *(f"{ratios[it]:.2f} (budget {BUDGETS[it]:g})" for it in BUDGETS), ""),
        ),
    )


def _rounds(seconds: Sequence[float], hourly: float) -> str:
    return ", ".join(f"{it * hourly:.1f}" for it in sorted(seconds))
