# SPDX-License-Identifier: Apache-2.0
"""The page of the placement benchmark. Pure: runs in, Markdown and a raw table out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

from tests.bench.page import Section, table
from tests.bench.placement_arms import AHEAD, COMPARED, FASTEST, NOW, PACK, SPREAD
from tests.bench.placement_cells import (
    BOUND,
    COUNTED_PART,
    FLEETS,
    LONGER,
    SLOWER,
    WAIT_SECONDS,
    Cell,
    cells,
    speed,
    wait,
    weighted,
)
from tests.bench.placement_fleets import WORKLOADS
from tests.bench.placement_runs import WARM_UP, Run

MOST_ROWS: Final = 60
ENOUGH: Final = 0.95
"""Of the reference's speed ours has at least so much."""
RAW: Final = "scheduler-quality.csv"
_COLUMNS: Final = ("fleet", "mix", "load", "arm", "seeds", "gpus", "speed", "wait_seconds")


def page(runs: Sequence[Run]) -> str:
    """The whole page, of the runs that there are."""
    found = sorted((each for each in cells(runs) if each.fleet in FLEETS), key=_order)
    rows = tuple(_row(each) for each in found[:MOST_ROWS])
    section = Section(
        title="Speed by fleet, the worst first",
        text=(
            "Each row has the mean bandwidth over the GPUs of pods with several GPUs. The table "
            f"has {len(rows)} of {len(found)} cells: first all that break a limit, then those "
            "where gpuscape reaches the smallest part of the reference's bandwidth (`to "
            f"reference`). The last columns compare the wait of all pods with `{PACK}`, and name "
            f"broken limits. [{RAW}]({RAW}) has each pod size."
        ),
        columns=(
            *("fleet, sizes, load", SPREAD, PACK, FASTEST, AHEAD, "gpuscape"),
            *("reference", "to reference", f"wait, to {PACK}'s", "limits broken"),
        ),
        rows=rows,
    )
    return "\n".join([_head(runs, found), table(section)])


def raw(runs: Sequence[Run]) -> str:
    """A CSV table with a line for each cell, arm and size."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for cell in cells(runs):
        for arm, its in cell.runs.items():
            sizes = sorted({size for run in its.values() for size in run.sizes})
            for size in sizes:
                figures = [cell.means(arm, arm, figure)[0] for figure in (speed(size), wait(size))]
                numbers = (f"{figure:.4f}" for figure in figures)
                lines.writerow((cell.fleet, cell.mix, cell.load, arm, len(its), size, *numbers))
    return text.getvalue()


def _order(cell: Cell) -> tuple[bool, float]:
    """The worst first: a broken limit, then the smallest part of the reference's speed."""
    return not cell.broken(NOW), _part(cell)


def _part(cell: Cell) -> float:
    """Ours to the reference; 0 where either was not played."""
    value = cell.ratio(NOW, cell.reference, weighted).value
    return value if value == value else 0.0  # NaN is not itself


def _row(cell: Cell) -> tuple[str, ...]:
    waits = cell.ratio(NOW, PACK, wait())
    ours, _ = cell.means(NOW, PACK, wait())
    return (
        f"{FLEETS[cell.fleet]}, {cell.mix}, {cell.load:.2f}",
        *(f"{cell.mean(arm, weighted):.3f}" for arm in COMPARED),
        cell.reference,
        cell.ratio(NOW, cell.reference, weighted).text(3),
        f"{ours:.1f} s, {waits.text(2)}",
        "; ".join(cell.broken(NOW)),
    )


def _head(runs: Sequence[Run], found: Sequence[Cell]) -> str:
    seeds = max((len(its) for each in found for its in each.runs.values()), default=0)
    pods = max((run.key.pods for run in runs), default=0)
    lost = sum(each.lost for each in runs)
    under = [each for each in found if _part(each) < ENOUGH]
    broken = [each for each in found if each.broken(NOW)]
    sizes = "; ".join(f"*{mix}*: {_sizes(mix)}" for mix in sorted({each.mix for each in found}))
    return (
        "# Where pods land\n\n"
        "Written by `.venv/bin/python -m tests.bench.placement`, from simulated runs that can be "
        "repeated.\n\n"
        f"**The result.** In {len(found) - len(broken)} of {len(found)} cells gpuscape breaks no "
        f"limit, and in {len(found) - len(under)} it has {ENOUGH:.2f} of the reference's speed or "
        "more. A cell is a fleet, a mix of pod sizes and a load. The sections below define the "
        "reference and the limits.\n\n"
        f"**The runs.** Each figure is the mean of {seeds} runs of {pods:,} pods at most. The "
        f"first {WARM_UP * 100:.0f} % of each run is warm-up and is not counted. The load is the "
        "part of all GPUs that pods request.\n\n"
        "**The pods** arrive at random (Poisson) and live 600 s on average (exponential). A pod "
        "that fits nowhere waits, and smaller pods behind it go first. The simulation has no CPU "
        "or memory, no gangs and no pods of several containers. The mixes give the part of pods "
        f"that request each number of GPUs: {sizes}. The mix *trace* has the sizes of Alibaba's "
        "trace of 2023 (cluster-trace-gpu-v2023, multigpu50); the mix *usual* is assumed.\n\n"
        "**The device plugin.** For all schedulers NVIDIA's go-gpuallocator allocates the GPUs, "
        f"not gpuscape's prediction of it. It failed to allocate GPUs to {lost} pods.\n\n"
        "**The judge** decides how fast a set is, and shares no code with the scheduler. It "
        "searches the links as NCCL does, and its bandwidths are within 15 % of published "
        "measurements (`tests/judge`). Speeds are relative to the fastest set of the fleet.\n\n"
        "**The schedulers.** `gpuscape` is bin-pack with gpuscape's ranks at weight 10, computed "
        "by the code that the extender runs. The four others run in a simulation of their own, "
        "which has no rule of the product (`tests/bench/placement_reference.py`):\n\n"
        f"- `{SPREAD}` and `{PACK}` are the stock scheduler: NodeResourcesFit as LeastAllocated "
        "and as MostAllocated on GPUs.\n"
        f"- `{FASTEST}` takes the fastest free set. Of equal sets it takes the one on the slowest "
        "machine, then the one on the fullest node.\n"
        f"- `{AHEAD}` knows when the pods of the next hour arrive, what they request and how long "
        "they live. For each pod it plays that hour with each candidate. No real scheduler can "
        "know this.\n\n"
        "**The limits.** A cell breaks a limit if one of these is true by more than "
        f"{BOUND:.0f} standard errors:\n\n"
        f"- Pods of a size that uses at least {COUNTED_PART:.0%} of the GPUs are slower than with "
        f"the better stock scheduler by more than {SLOWER}.\n"
        f"- All pods together wait more than {LONGER:.2f} times as long as with `{PACK}`, and "
        f"more than {WAIT_SECONDS:.0f} s.\n\n"
        "The **reference** of a cell is the fastest of the four other schedulers that keeps to the "
        f"limits; if none does, `{PACK}`.\n\n"
        "**On uniform NVSwitch machines nothing is gained in speed: every set of GPUs is as fast "
        "as any other.**\n"
    )


def _sizes(mix: str) -> str:
    its = WORKLOADS[mix].sizes
    total = sum(its.values())
    return ", ".join(f"{part / total:.0%} {size}" for size, part in its.items())
