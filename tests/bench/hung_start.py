# SPDX-License-Identifier: Apache-2.0
"""How soon an agent that starts next to GPUs that hang serves the well ones, at default settings.

``python -m tests.bench.hung_start`` prints the section of docs/benchmarks.md and writes it there.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from simulator.simulation import Hang, Simulation
from tests.agent.agent_process import AgentProcess, running, until
from tests.bench.page import Section, table, with_section

MACHINES = ("dgx-a100", "dgx-a100-mig-mixed")
"""Whole GPUs, and MIG."""
GPUS = 8
HUNG = (0, 1, 2, 4, 7)
BUDGET_SECONDS = 15
CONFIRMED_SECONDS = 120.0
"""Until all hung GPUs have missed a second deadline and are in the state file."""
OPEN = "nvmlDeviceGetHandleByPciBusId*"
_READING = re.compile(r'DCGM_FI_DEV_GPU_TEMP\{gpu="([0-9]+)"')
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start, in seconds from the moment the process was made."""

    readings: float
    """Readings of all well GPUs are on /metrics."""
    ready: float
    labels: float
    """The labels, with the right number of GPUs."""

    @property
    def cell(self) -> str:
        return f"{self.readings:.1f} / {self.ready:.1f} / {self.labels:.1f} s"


def section() -> Section:
    """Start agents next to so many hung GPUs, without a state file and with one."""
    rows = tuple(
        (f"{machine}, {hung} of {GPUS} hang", *(it.cell for it in _starts(machine, hung)))
        for machine in MACHINES
        for hung in HUNG
    )
    return Section(
        title="A start next to hung GPUs",
        text=(
            f"{GPUS} simulated GPUs, of which some hang at the first call that names them and are "
            "deaf to SIGTERM. From the start of the agent's process until the readings of all "
            "others are on `/metrics`, `/readyz` is 200, and the labels are there (target "
            f"{BUDGET_SECONDS} s). First without a state file; then with that of an agent that saw "
            "the same GPUs hang for good. The default deadlines: 30 seconds for a first answer."
        ),
        rows=rows,
        columns=("", "without a state file", "with one"),
    )


def _starts(machine: str, hung: int) -> tuple[Start, Start]:
    with tempfile.TemporaryDirectory() as folder:
        simulation, state = Simulation.create(machine, Path(folder)), Path(folder) / "records"
        first = _start(simulation, hung, state, until_in_file=True)
        return first, _start(simulation, hung, state, until_in_file=False)


def _start(simulation: Simulation, hung: int, state: Path, *, until_in_file: bool) -> Start:
    features = state.with_name(f"features-{until_in_file}")
    for bus_id in tuple(simulation.state.gpus)[:hung]:  # an agent that ends clears all faults
        simulation.fault(Hang(uninterruptible=True), OPEN, bus_id=bus_id)
    began = time.monotonic()
    options = ("--state-file", str(state), "--feature-file", str(features))
    with running(simulation, *options) as agent:
        until(lambda: _readings(agent) >= GPUS - hung)
        readings = time.monotonic() - began
        until(lambda: agent.get("probes", "/readyz")[0] == 200)
        ready = time.monotonic() - began
        until(lambda: features.exists() and f"gpu.count={GPUS}" in features.read_text())
        labels = time.monotonic() - began
        if until_in_file:
            until(lambda: state.read_text().count('"hung":true') == hung, CONFIRMED_SECONDS)
    return Start(readings=readings, ready=ready, labels=labels)


def _readings(agent: AgentProcess) -> int:
    """GPUs of which readings are served, whole or cut by MIG."""
    lines = agent.metrics().splitlines()
    return len({found[1] for line in lines if (found := _READING.match(line))})


def main() -> None:
    """Measure, print and write the section."""
    text = table(section())
    sys.stdout.write(text)
    page = PAGE.read_text("utf-8")
    PAGE.write_text(with_section(page, "A start next to hung GPUs", text), "utf-8")


if __name__ == "__main__":
    main()
