# SPDX-License-Identifier: Apache-2.0
"""The page of the placement benchmark. Pure: what was counted in, Markdown out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from scheduler.simulation.fleet_replay import Summary
from scheduler.simulation.workload import PUBLISHED, USUAL, USUAL_SECONDS
from tests.bench.page import Section, table

NODES: Final = 64
LOADS: Final = (0.70, 0.85, 0.95)
SEEDS: Final = 4
SEEDS_OF_WAITS: Final = 36
"""Waits vary far more than what else is counted; in these, only they are, for the two arms that
are compared."""
PODS: Final = 8000
WARM_UP: Final = 0.2
"""The first pods, of all, come to an emptier fleet: they are not counted."""
MIXES: Final[Mapping[str, Mapping[int, float]]] = {
    "assumed sizes": USUAL,
    "sizes of a trace": PUBLISHED,
}
MACHINES: Final[Mapping[str, str]] = {
    "dgx1-v100": "DGX-1, hybrid cube mesh",
    "a100-pcie-pairs": "bridged pairs",
    "quads": "two bridged quads",
    "hgx-h100": "NVSwitch",
}

SPREAD, PACK, REFERENCE, OTHER_POLICY = "spread", "bin-pack", "reference", "another policy"
OURS: Final[Mapping[str, float]] = {f"lag {lag:g} s": lag for lag in (0.0, 0.5, 2.0, 5.0)}
"""Arm to seconds of lag."""
NOW: Final = next(iter(OURS))
PLAIN: Final = (SPREAD, PACK, NOW, REFERENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All arms at one load on one kind of machine: a summary of each seed by the arm's name.

    All arms have the first seeds, and some have more.
    """

    machine: str
    load: float
    runs: Mapping[str, Sequence[Summary]] = field(repr=False)

    def ideal(self, arm: str) -> float:
        """Share of pods with several GPUs on a set than which none is faster."""
        return fmean(run.ideal_ratio or 0.0 for run in self.runs[arm][:SEEDS])

    def speed(self, arm: str) -> float:
        """Mean of their speed to the best."""
        return fmean(run.speed_ratio or 0.0 for run in self.runs[arm][:SEEDS])

    def wait_seconds(self, arm: str) -> float:
        """Mean of all pods."""
        return fmean(self._waits(arm)[:SEEDS])

    def wait_ratio(self, arm: str, to: str) -> tuple[float, float]:
        """Of mean waits over the same seeds, and its standard error; NaN where nobody waits.

        The error is the jackknife's: each seed is left out once.
        """
        here, there = self._waits(arm), self._waits(to)
        total, of = sum(here), sum(there)
        if not all(of - each for each in there):
            return math.nan, math.nan
        ratios = [(total - a) / (of - b) for a, b in zip(here, there, strict=True)]
        mean = fmean(ratios)
        spread = sum((ratio - mean) ** 2 for ratio in ratios)
        return total / of, math.sqrt(spread * (len(ratios) - 1) / len(ratios))

    @property
    def lost(self) -> int:
        """Pods over which the device plugin failed, in all arms."""
        return sum(run.lost for runs in self.runs.values() for run in runs)

    def _waits(self, arm: str) -> list[float]:
        return [run.mean_wait_seconds for run in self.runs[arm]]


def page(cells: Mapping[str, Sequence[Cell]]) -> str:
    """The whole page; cells by the mix of sizes."""
    lost = sum(cell.lost for them in cells.values() for cell in them)
    parts = [section for mix, them in cells.items() for section in sections(mix, them)]
    return "\n".join([_head(lost), *map(table, parts)])


def sections(mix: str, cells: Sequence[Cell]) -> tuple[Section, ...]:
    """Of one mix of sizes."""
    plain = ("machine, load", SPREAD, PACK, "gpuscape", REFERENCE)
    words = f"{mix} ({_shares(MIXES[mix])})"
    return (
        Section(
            title=f"Pods on the best GPUs: {words}",
            text=(
                "Of the pods with several GPUs those that no set of an empty machine would serve "
                "faster. Then ours as a part of the reference: with the state of the agents up to "
                "date, late by so much, and with a device plugin that prefers nothing, where ours "
                "expects NVIDIA's."
            ),
            columns=(
                *plain,
                "to reference (target 0.99)",
                "lag 0.5 s (target 0.97)",
                *list(OURS)[2:],
                OTHER_POLICY,
            ),
            rows=tuple(_ideals(cell) for cell in cells),
        ),
        Section(
            title=f"Speed of their sets to the best: {words}",
            text="Mean over the same pods, of the ring that the GPUs form.",
            columns=plain,
            rows=tuple(
                (_place(cell), *(f"{cell.speed(arm):.3f}" for arm in PLAIN)) for cell in cells
            ),
        ),
        Section(
            title=f"Waiting: {words}",
            text=(
                "Mean of all pods. The ratio is over the same pods at the same times, with its "
                "standard error."
            ),
            columns=(*plain, f"gpuscape to {PACK} (target 1.05)"),
            rows=tuple(_waits(cell) for cell in cells),
        ),
    )


def _shares(sizes: Mapping[int, float]) -> str:
    total = sum(sizes.values())
    return ", ".join(f"{share / total * 100:.0f} % {size}" for size, share in sizes.items())


def _ideals(cell: Cell) -> tuple[str, ...]:
    best = cell.ideal(REFERENCE)
    return (
        _place(cell),
        *(f"{cell.ideal(arm) * 100:.1f} %" for arm in PLAIN),
        *(f"{cell.ideal(arm) / best:.3f}" for arm in (*OURS, OTHER_POLICY)),
    )


def _waits(cell: Cell) -> tuple[str, ...]:
    ratio, error = cell.wait_ratio(NOW, PACK)
    return (
        _place(cell),
        *(f"{cell.wait_seconds(arm):.2f} s" for arm in PLAIN),
        "nobody waits" if math.isnan(ratio) else f"{ratio:.2f} ± {error:.2f}",
    )


def _place(cell: Cell) -> str:
    return f"{MACHINES[cell.machine]}, {cell.load:.2f}"


def _head(lost: int) -> str:
    """What the figures are, and what they are not."""
    return (
        "# Where pods land\n\n"
        "Written by `.venv/bin/python -m tests.bench.placement`, from a simulation that repeats: "
        f"{NODES} nodes of 8 GPUs, {PODS:,} pods of each of {SEEDS} seeds, of {SEEDS_OF_WAITS} for "
        f"the ratio of waits; the first {WARM_UP * 100:.0f} % are not counted. Pods come at random "
        f"(Poisson), ask for whole GPUs, live {USUAL_SECONDS:g} s on average (exponential; about "
        "the median of the trace below, far below its mean), and wait where they fit nowhere, "
        "while smaller ones behind them go first.\n\n"
        "`spread` and `bin-pack` are the stock scheduler with NodeResourcesFit as LeastAllocated "
        "and as MostAllocated on GPUs; `gpuscape` is bin-pack with our ranks at weight 10, by the "
        "code that the extender runs; `reference` knows at each decision what is free and what "
        "each node would hand out, with the same order of aims. GPUs are handed out by NVIDIA's "
        "go-gpuallocator, asked in random orders, in every arm: not by our prediction of it.\n\n"
        "Sizes are drawn from two mixes: an assumed one, and the pods with whole GPUs of Alibaba's "
        "trace of 2023 (cluster-trace-gpu-v2023, multigpu50). No trace tells NVLink shapes: each "
        "machine has the whole fleet to itself. One fleet size, no CPU or memory, no gangs, no "
        f"pods of several containers. The device plugin failed over {lost} pods.\n\n"
        "**On uniform NVSwitch machines nothing is gained in speed: every set of GPUs is as fast "
        "as any other.**\n"
    )
