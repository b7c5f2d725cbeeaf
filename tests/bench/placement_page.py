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
    found = sorted((each for each in cells(runs) if each.fleet in FLEETS), key=_part)
    rows = tuple(_row(each) for each in found[:MOST_ROWS])
    section = Section(
        title="Speed by fleet, the worst first",
        text=(
            f"Mean bandwidth over the GPUs of pods with several, of {len(found)} cells the "
            f"{len(rows)} where gpuscape has least of the reference's. All are in [{RAW}]({RAW})."
        ),
        columns=(
            *("fleet, sizes, load", SPREAD, PACK, FASTEST, AHEAD, "gpuscape"),
            *("reference", "to reference", "wait, to packing's", "limits broken"),
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
        "more. The table has the worst cells first.\n\n"
        f"**The runs.** Each figure is the mean of {seeds} runs of {pods:,} pods at most. The "
        f"first {WARM_UP * 100:.0f} % of each run is warm-up and is not counted. A cell is a "
        "fleet, a mix of pod sizes and a load, which is the part of all GPUs that pods request.\n\n"
        "**The pods** arrive at random (Poisson) and live 600 s on average (exponential). A pod "
        "that fits nowhere waits, and smaller ones behind it go first. The simulation has no CPU "
        f"or memory, no gangs and no pods of several containers. Sizes: {sizes}. The sizes of the "
        "trace are those of Alibaba's trace of 2023 (cluster-trace-gpu-v2023, multigpu50).\n\n"
        "**The device plugin.** For all schedulers NVIDIA's go-gpuallocator allocates the GPUs, "
        f"not our prediction of it. It failed over {lost} pods.\n\n"
        "**The judge** decides how fast a set is, and shares no code with the scheduler. It "
        "searches the links as NCCL does, and its bandwidths are within 15 % of published "
        "measurements (`tests/judge`). Speeds are relative to the fastest set of the fleet.\n\n"
        "**The schedulers.** `gpuscape` is bin-pack with gpuscape's ranks at weight 10, computed "
        "by the code that the extender runs. The four others are played by a simulation of their "
        "own, which has no rule of the product (`tests/bench/placement_reference.py`):\n\n"
        f"- `{SPREAD}` and `{PACK}` are the stock scheduler: NodeResourcesFit as LeastAllocated "
        "and as MostAllocated on GPUs.\n"
        f"- `{FASTEST}` takes the fastest free set, of equal ones on the slowest machine and the "
        "fullest node.\n"
        f"- `{AHEAD}` knows when the pods of the next hour arrive, what they request and how long "
        "they live. It tries the candidates for each pod on that hour. No scheduler can know "
        "this.\n\n"
        f"**The limits.** No size that {COUNTED_PART:.0%} of the GPUs use may be slower than with "
        f"the better stock scheduler by more than {SLOWER}. All pods together may wait at most "
        f"{LONGER:.2f} times as long as with packing, where they wait {WAIT_SECONDS:.0f} s. Both "
        f"count beyond {BOUND:.0f} standard errors. The **reference** of a cell is the fastest of "
        "the four others that keeps to the limits.\n\n"
        "**On uniform NVSwitch machines nothing is gained in speed: every set of GPUs is as fast "
        "as any other.**\n"
    )


def _sizes(mix: str) -> str:
    its = WORKLOADS[mix].sizes
    total = sum(its.values())
    return ", ".join(f"{part / total:.0%} {size}" for size, part in its.items())
