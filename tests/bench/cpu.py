# SPDX-License-Identifier: Apache-2.0
"""Processor time of the agent with and without its own families, next to nvitop's exporter."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from simulator.clibrary.served_machine import ServedMachine, served_machine
from simulator.simulation import Simulation
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
from tests.bench.launch import HOST, NODE, Meter
from tests.bench.page import Section
from tests.bench.programs import Program
from tests.controlplane.components import free_port

MACHINE = "hgx-h100"
CORE, NONE = OURS, "gpuscape_none"
NAMES = (CORE, NONE, NVITOP)
_OWN_FAMILIES = {CORE: "core", NONE: "none"}
ROUNDS = 5
ROUND_SECONDS = 60.0
"""One discovery of the agent, and six samples."""
BUDGETS = {CORE: 1.0, NONE: 0.7}
"""Parts of nvitop's time."""


def measure(
    rounds: int = ROUNDS, seconds: float = ROUND_SECONDS
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Of each exporter its processor seconds in each round, and how many series it serves."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        machine = ending.enter_context(served_machine(Simulation.create(MACHINE, Path(folder))))
        running = [ending.enter_context(_running(name, machine)) for name in NAMES]
        for program in running:
            program.await_family(FAMILY[program.name])
        time.sleep(SETTLE_SECONDS)
        found: dict[str, list[float]] = {name: [] for name in NAMES}
        for _ in range(rounds):
            for name, (whole, _) in cpu_seconds(running, seconds).items():
                found[name].append(whole)
        return found, {each.name: count_series(each.text()) for each in running}


@contextlib.contextmanager
def _running(name: str, machine: ServedMachine) -> Iterator[Program]:
    """One of them by its own command, with the machine's library in the driver's place."""
    assert machine.library is not None
    with tempfile.TemporaryDirectory() as folder:
        port, meter = free_port(), Meter(Path(folder) / "meter")  # nothing is metered
        process = subprocess.Popen(
            _command(name, machine, port),
            env={**os.environ, "LD_LIBRARY_PATH": str(machine.library.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        program = Program(name, process, port, meter)
        try:
            yield program
        finally:
            program.close()


def _command(name: str, machine: ServedMachine, port: int) -> list[str]:
    if name == NVITOP:
        start = "from nvitop_exporter.cli import main; main()"
        command = [sys.executable, "-c", start, "--bind-address", HOST, "--port", str(port)]
        return [*command, "--hostname", NODE, "--interval", f"{SAMPLE_SECONDS:g}"]
    command = [sys.executable, "-m", "gpuscape", "agent", "--standalone", "--node-name", NODE]
    command += ["--host-root", str(machine.driver_root), "--own-families", _OWN_FAMILIES[name]]
    command += ["--listen", f"{HOST}:{port}", "--probe-listen", f"{HOST}:0"]
    command += ["--sample-interval", f"{SAMPLE_SECONDS:g}s", "--log-level", "error"]
    return [*command, "--start-spread", "0"]


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
            f"{version('nvitop-exporter')}, at once on one simulated machine, each by its own "
            f"command, read every {SAMPLE_SECONDS:g} s and scraped every {SCRAPE_SECONDS:g} s. All "
            "load the same libnvidia-ml.so.1, which asks another process, so nothing has to be "
            "taken out: a call costs each of them the same. User and system time of all of a "
            f"program's processes over {ROUND_SECONDS:g} s, the median of {ROUNDS} such rounds; "
            "ratios are of the same round. The budgets are goals. Of the agent's time "
            "about three fifths are its device reader's: six samples of 80 calls and one discovery "
            "of 100 each minute, each a question to another process here, and every two seconds "
            "a look at its own memory. The rest is the agent's own: rendering, answering scrapes, "
            "and the scheduler of its ticks. nvitop has one process, in which a driver call that "
            "hangs stops all of it. The floor of this design is near: the calls that remain give "
            "what changes by the second."
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
