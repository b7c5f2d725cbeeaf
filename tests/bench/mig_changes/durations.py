# SPDX-License-Identifier: Apache-2.0
"""The last section of docs/mig-benchmarks.md: how long both programs take, in turns."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from simulator.description.machine_catalog import load_machine
from tests.bench.mig_changes.arms import OURS, PARTED, spec_of
from tests.bench.mig_changes.gpu_start import Desired, GpuStart, InstanceStart
from tests.bench.mig_changes.simulated_gpus import SimulatedGpus
from tests.bench.page import Section
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.foreign.parted_node import PartedNode, parted_node, with_gpus

ROUNDS: Final = 3
RESET_SECONDS: Final = 2.0
"""Of a simulated reset."""
MACHINE: Final = "a100-pcie-pairs"
GPUS: Final = 4
_SEVEN: Final = Counter({"1g.5gb": 7})
_OFF: Final = GpuStart(mig=False)
_SEVENTHS: Final = GpuStart(
    instances=tuple(
        InstanceStart(profile="1g.5gb", start=start, compute=((0, 1),)) for start in range(7)
    )
)
_TEXT: Final = (
    f"Both programs on one served machine with {GPUS} idle A100s without NVSwitches, started anew "
    f"each time, in turns: medians of {ROUNDS} rounds, and the median of the ratios of a round. "
    f"Calls of the simulated driver take no time, but for a reset, which takes {RESET_SECONDS:g} "
    "seconds. So the figures are the programs' own time: start, plan, and calls through the served "
    "library. gpuscape makes many more calls, because it reads the state before each step, and "
    "once more in a fresh session. On a real GPU the driver's time for creating, destroying and "
    "resetting comes on top; this time is not known. In the last row the driver does not reset: "
    "nvidia-mig-parted has nvidia-smi reset all GPUs in the time of one reset, and gpuscape with "
    "`mig-reset: off` rolls back."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedChange:
    """A change that is made again and again."""

    name: str
    start: GpuStart
    desired: Desired
    resets: bool = True
    """Whether the driver resets a GPU by itself."""


CHANGES: Final = (
    TimedChange(
        name="7 instances become 6 on one GPU",
        start=_SEVENTHS,
        desired={0: Counter({"1g.5gb": 6})},
    ),
    TimedChange(name="MIG on and 7 instances on one GPU", start=_OFF, desired={0: _SEVEN}),
    TimedChange(
        name=f"MIG on and 7 instances on {GPUS} GPUs",
        start=_OFF,
        desired=dict.fromkeys(range(GPUS), _SEVEN),
    ),
    TimedChange(
        name=f"7 instances and MIG off on {GPUS} GPUs",
        start=_SEVENTHS,
        desired=dict.fromkeys(range(GPUS)),
    ),
    TimedChange(
        name=f"MIG on and 7 instances on {GPUS} GPUs, driver that does not reset",
        start=_OFF,
        desired=dict.fromkeys(range(GPUS), _SEVEN),
        resets=False,
    ),
)


def section() -> Section:
    """Each change by both programs, round by round."""
    load = f" The load average of this machine was {os.getloadavg()[0]:.0f} when it began."
    machine = with_gpus(MACHINE, load_machine(MACHINE).gpus[:GPUS])
    with parted_node(machine, binaries(NVIDIA), "") as node:
        gpus = SimulatedGpus(node.there.simulation)
        taken = {
            change.name: [_round(change, node, gpus) for _ in range(ROUNDS)] for change in CHANGES
        }
    return Section(
        title="Time",
        text=_TEXT + load,
        columns=("", OURS, PARTED, "ratio"),
        rows=tuple(time_row(name, rounds) for name, rounds in taken.items()),
    )


def time_row(name: str, rounds: Sequence[Mapping[str, float | None]]) -> tuple[str, ...]:
    """Medians of the seconds, and of the ratios of the rounds; a program that failed has none."""
    seconds = {arm: [its[arm] for its in rounds] for arm in (OURS, PARTED)}
    cells = [_median(seconds[arm]) for arm in (OURS, PARTED)]
    ratios = [
        ours / theirs if ours and theirs else None
        for ours, theirs in zip(seconds[OURS], seconds[PARTED], strict=True)
    ]
    ratio = None if None in cells else _median(ratios)
    return (
        name,
        *("not reached" if cell is None else f"{cell:.1f} s" for cell in cells),
        "" if ratio is None else f"{ratio:.1f}",
    )


def _median(values: Sequence[float | None]) -> float | None:
    """None where it was not reached once."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if len(known) == len(values) else None


def _round(
    change: TimedChange, node: PartedNode, gpus: SimulatedGpus
) -> Mapping[str, float | None]:
    """Seconds of each program; None where the layout is not there in the end."""
    specs = [spec_of(index, devices) for index, devices in change.desired.items()]
    node.configure(yaml.safe_dump({"version": "v1", "mig-configs": {"wanted": specs}}))
    gpus.simulation.set_resets(
        mode_change="resets" if change.resets else "reset-required", seconds=RESET_SECONDS
    )

    def timed(program: Callable[[], object]) -> float | None:
        gpus.put((change.start,) * GPUS)
        gpus.simulation.log_calls(False)
        began = time.perf_counter()
        program()
        seconds = time.perf_counter() - began
        return seconds if gpus.has(change.desired) else None

    with tempfile.TemporaryDirectory() as folder:
        ours = timed(lambda: _run_ours(node, Path(folder)))
    return {OURS: ours, PARTED: timed(lambda: node.run("apply", "wanted"))}


def _run_ours(node: PartedNode, journal: Path) -> object:
    """The command on the node, over the library that mig-parted loads too."""
    library = node.there.machine.library
    assert library is not None
    return node.there.run(
        *(sys.executable, "-m", "gpuscape", "mig", "apply", "--yes"),
        *("-f", node.configs, "-c", "wanted", "--journal", journal),
        *("--host-root", node.there.simulation.host_root, "--library", library),
        covered=(),
    )
