# SPDX-License-Identifier: Apache-2.0
"""The page of the placement benchmark. Pure: runs in, Markdown out."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Final, NamedTuple

from tests.bench.page import Section, table
from tests.bench.placement_arms import (
    ARMS,
    LATE,
    MIXED_ARMS,
    NOW,
    OTHER_POLICY,
    OURS,
    PACK,
    REFERENCE,
    SPREAD,
)
from tests.bench.placement_fleets import WORKLOADS
from tests.bench.placement_runs import WARM_UP, Key, Run

LOADS: Final = (0.70, 0.85, 0.95)
PODS: Final = 8000
SEEDS: Final = 30
SEEDS_ALONE: Final = 6
"""On single machines, where best sets vary little; the two arms whose waits are compared have all
seeds there too."""
MACHINES: Final[Mapping[str, str]] = {
    "64*dgx1-v100": "DGX-1, hybrid cube mesh",
    "64*a100-pcie-pairs": "bridged pairs",
    "64*quads": "two bridged quads",
    "64*hgx-h100": "NVSwitch",
}
MIXED: Final[Mapping[str, str]] = {
    "24*dgx1-v100+8*hgx-h100": "24 DGX-1, 8 NVSwitch",
    "24*a100-pcie-pairs+8*hgx-h100": "24 bridged pairs, 8 NVSwitch",
    "12*dgx1-v100+12*a100-pcie-pairs+8*hgx-h100": "12 DGX-1, 12 bridged pairs, 8 NVSwitch",
}
GROWING: Final[Mapping[str, int]] = {
    **{f"{count}*dgx1-v100": count for count in (1, 2, 4, 8, 16, 32)},
    "64*dgx1-v100": 64,
}
GROWING_MIXED: Final[Mapping[str, int]] = {
    f"{3 * count}*dgx1-v100+{count}*hgx-h100": 4 * count for count in (1, 2, 4, 16)
} | {"24*dgx1-v100+8*hgx-h100": 32}
GROWTHS: Final = {"DGX-1 alone": GROWING, "three DGX-1 to one NVSwitch": GROWING_MIXED}
TUNED: Final = ("usual", "trace")
"""Workloads that the aims were tried with; on single machines the page has only them."""
GROWING_MIX, GROWING_LOAD = "usual", 0.85
COMPARED: Final = (2, 4, 8)
_TWO: Final = 2.0
"""Standard errors: about 95 % of the time the true figure is within so many."""


class Estimate(NamedTuple):
    """A figure over seeds, with its standard error; NaN where there is none."""

    value: float
    error: float

    def text(self, digits: int, sign: str = "") -> str:
        """Both, or what stands for no figure."""
        if math.isnan(self.value):
            return "none"
        return f"{self.value:{sign}.{digits}f} ± {self.error:.{digits}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All runs of one fleet, mix and load: by arm and seed."""

    fleet: str
    mix: str
    load: float
    runs: Mapping[str, Mapping[int, Run]] = field(repr=False)

    def mean(self, arm: str, figure: Callable[[Run], float]) -> float:
        """Over the seeds that all arms have; NaN without any."""
        seeds = set.intersection(*({*its} for its in self.runs.values()))
        its = self.runs.get(arm, {})
        return fmean(figure(its[seed]) for seed in seeds) if seeds and its else math.nan

    def gain(self, arm: str, over: str, figure: Callable[[Run], float]) -> Estimate:
        """How much more an arm has than another, over the seeds that both have."""
        pairs = self._pairs(arm, over, figure)
        if len(pairs) < 2:
            return Estimate(math.nan, math.nan)
        gains = [here - there for here, there in pairs]
        return Estimate(fmean(gains), stdev(gains) / math.sqrt(len(gains)))

    def ratio(self, arm: str, to: str, figure: Callable[[Run], float]) -> Estimate:
        """Of sums over the seeds that both have; the error is the jackknife's."""
        pairs = self._pairs(arm, to, figure)
        total, of = sum(here for here, _ in pairs), sum(there for _, there in pairs)
        if len(pairs) < 2 or not all(of - there for _, there in pairs):
            return Estimate(math.nan, math.nan)
        without = [(total - here) / (of - there) for here, there in pairs]
        middle = fmean(without)
        spread = sum((each - middle) ** 2 for each in without)
        return Estimate(total / of, math.sqrt(spread * (len(without) - 1) / len(without)))

    def stock(self, figure: Callable[[Run], float]) -> str:
        """The stock arm that has more of a figure."""
        return max((SPREAD, PACK), key=lambda arm: self.mean(arm, figure))

    @property
    def seeds(self) -> int:
        """Of ours."""
        return len(self.runs.get(NOW, ()))

    def _pairs(
        self, arm: str, other: str, figure: Callable[[Run], float]
    ) -> list[tuple[float, float]]:
        here, there = self.runs.get(arm, {}), self.runs.get(other, {})
        return [(figure(here[seed]), figure(there[seed])) for seed in sorted({*here} & {*there})]


def plan() -> Iterator[Key]:
    """The runs of the page; the first seeds of everything come first."""
    growing = {*GROWING, *GROWING_MIXED} - {*MACHINES, *MIXED}
    for seed in range(SEEDS):
        for fleet in MACHINES:
            arms = ARMS if seed < SEEDS_ALONE else (PACK, NOW)
            for mix, load in itertools.product(TUNED, LOADS):
                yield from _keys(fleet, mix, load, seed, arms)
        for fleet in MIXED:
            for mix, load in itertools.product(WORKLOADS, LOADS):
                yield from _keys(fleet, mix, load, seed, MIXED_ARMS)
        for fleet in sorted(growing):
            yield from _keys(fleet, GROWING_MIX, GROWING_LOAD, seed, (SPREAD, PACK, REFERENCE, NOW))


def _keys(fleet: str, mix: str, load: float, seed: int, arms: Iterable[str]) -> Iterator[Key]:
    for arm in arms:
        yield Key(fleet=fleet, mix=mix, load=load, arm=arm, seed=seed, pods=PODS)


def cells(runs: Iterable[Run]) -> list[Cell]:
    """Runs together that are of the same."""
    found: dict[tuple[str, str, float], dict[str, dict[int, Run]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for run in runs:
        its = run.key
        found[its.fleet, its.mix, its.load][its.arm][its.seed] = run
    return [
        Cell(fleet=fleet, mix=mix, load=load, runs=arms)
        for (fleet, mix, load), arms in found.items()
    ]


def page(runs: Sequence[Run]) -> str:
    """The whole page, of the runs that there are."""
    found = cells(runs)
    parts: list[Section] = []
    for mix in WORKLOADS:
        alone = _of(found, mix, MACHINES)
        mixed = _of(found, mix, MIXED)
        if alone:
            parts += [_best_sets(mix, alone), _waits(mix, alone, MACHINES)]
        if mixed:
            parts += [_speeds(mix, mixed), _waits(mix, mixed, MIXED)]
    parts += [
        _growth(title, its, fleets)
        for title, fleets in (
            ("DGX-1 alone", GROWING),
            ("three DGX-1 to one NVSwitch", GROWING_MIXED),
        )
        if (its := _growing(found, fleets))
    ]
    return "\n".join([_head(runs), *map(table, parts)])


def _of(found: Iterable[Cell], mix: str, fleets: Mapping[str, str]) -> list[Cell]:
    order = list(fleets)
    its = [each for each in found if each.mix == mix and each.fleet in fleets]
    return sorted(its, key=lambda each: (order.index(each.fleet), each.load))


def _growing(found: Iterable[Cell], fleets: Mapping[str, int]) -> list[Cell]:
    its = [
        each
        for each in found
        if each.fleet in fleets and (each.mix, each.load) == (GROWING_MIX, GROWING_LOAD)
    ]
    return sorted(its, key=lambda each: fleets[each.fleet])


def _best_sets(mix: str, its: Sequence[Cell]) -> Section:
    arms = (SPREAD, PACK, NOW, REFERENCE)

    def row(cell: Cell) -> tuple[str, ...]:
        best = cell.mean(REFERENCE, _best)
        return (
            _place(cell, MACHINES),
            *(f"{cell.mean(arm, _best) * 100:.1f} %" for arm in arms),
            *(f"{cell.mean(arm, _best) / best:.3f}" for arm in (*OURS, OTHER_POLICY)),
        )

    return Section(
        title=f"Pods on the best GPUs: {_words(mix)}",
        text=(
            "Of the pods with several GPUs those that no set of an empty machine would serve "
            "faster, by the judge. Then ours as a part of the reference: with the state of the "
            "agents up to date, late by so much, and with a device plugin that prefers nothing, "
            "where ours expects NVIDIA's."
        ),
        columns=(
            *("machine, load", SPREAD, PACK, "gpuscape", REFERENCE),
            *("to reference (target 0.99)", f"{LATE} (target 0.97)", *list(OURS)[2:]),
            OTHER_POLICY,
        ),
        rows=tuple(map(row, its)),
    )


def _speeds(mix: str, its: Sequence[Cell]) -> Section:
    def gain(cell: Cell, figure: Callable[[Run], float]) -> str:
        stock = cell.stock(figure)
        found = cell.gain(NOW, stock, figure)
        least = found.value - _TWO * found.error
        more = f"{found.text(3, '+')}, at least {least:+.3f}, to {stock}"
        return f"{cell.mean(NOW, figure):.3f} ({more})"

    def row(cell: Cell) -> tuple[str, ...]:
        ours, best = cell.mean(NOW, _weighted), cell.mean(REFERENCE, _weighted)
        return (
            _place(cell, MIXED),
            *(gain(cell, _speed(size)) for size in COMPARED),
            *(f"{cell.mean(arm, _weighted):.3f}" for arm in (SPREAD, PACK, NOW, REFERENCE)),
            f"{ours / best:.3f}",
            f"{cell.mean(LATE, _weighted) / best:.3f}",
        )

    return Section(
        title=f"Speed in mixed fleets: {_words(mix)}",
        text=(
            "Bandwidth of the sets that pods of a size get, by the judge, to that of the fastest "
            "set of the fleet; in brackets how much more it is than with the better stock "
            "scheduler on the same days, its standard error, and the least that it is with 95 % "
            "confidence (target -0.02). Then the mean over the GPUs of all pods that have several, "
            "and ours as a part of the reference (target 0.95), also with agents 0.5 s late."
        ),
        columns=(
            "fleet, load",
            *(f"{size} GPUs" for size in COMPARED),
            *(SPREAD, PACK, "gpuscape", REFERENCE, "to reference", f"{LATE}, to reference"),
        ),
        rows=tuple(map(row, its)),
    )


def _waits(mix: str, its: Sequence[Cell], fleets: Mapping[str, str]) -> Section:
    sizes = sorted(WORKLOADS[mix].sizes)

    def row(cell: Cell) -> tuple[str, ...]:
        return (
            _place(cell, fleets),
            *(f"{cell.mean(arm, _wait()):.2f} s" for arm in (SPREAD, PACK, NOW, REFERENCE)),
            *(cell.ratio(NOW, PACK, _wait(size)).text(2) for size in (None, *sizes)),
        )

    return Section(
        title=f"Waiting{' in mixed fleets' if fleets is MIXED else ''}: {_words(mix)}",
        text=(
            f"Mean of all pods. Then gpuscape to {PACK} over the same pods at the same times, with "
            "the standard error: of all pods (target 1.05), and of each size (target 1.15)."
        ),
        columns=(
            *("fleet, load", SPREAD, PACK, "gpuscape", REFERENCE, "all"),
            *(f"{size} GPUs" if size > 1 else "1 GPU" for size in sizes),
        ),
        rows=tuple(map(row, its)),
    )


def _growth(title: str, its: Sequence[Cell], fleets: Mapping[str, int]) -> Section:
    def row(cell: Cell) -> tuple[str, ...]:
        stock = cell.stock(_weighted)
        return (
            str(fleets[cell.fleet]),
            *(f"{cell.mean(arm, _weighted):.3f}" for arm in (SPREAD, PACK, NOW, REFERENCE)),
            f"{cell.gain(NOW, stock, _weighted).text(3, '+')}",
            cell.ratio(NOW, PACK, _wait()).text(2),
        )

    return Section(
        title=f"By the size of the fleet: {title}",
        text=(
            f"Mean speed over GPUs as above, at load {GROWING_LOAD:.2f} and with assumed sizes. "
            "The gain is over the better stock scheduler."
        ),
        columns=(*("nodes", SPREAD, PACK, "gpuscape", REFERENCE, "gain", f"waits, to {PACK}"),),
        rows=tuple(map(row, its)),
    )


def _best(run: Run) -> float:
    return run.best_part


def _weighted(run: Run) -> float:
    return run.weighted_speed


def _speed(size: int) -> Callable[[Run], float]:
    return lambda run: run.speed(size) if size in run.sizes else math.nan


def _wait(size: int | None = None) -> Callable[[Run], float]:
    return lambda run: run.wait_seconds(size)


def _words(mix: str) -> str:
    its = WORKLOADS[mix]
    total = sum(its.sizes.values())
    parts = (f"{part / total * 100:.0f} % {size}" for size, part in its.sizes.items())
    return f"{its.words} ({', '.join(parts)})"


def _place(cell: Cell, fleets: Mapping[str, str]) -> str:
    return f"{fleets[cell.fleet]}, {cell.load:.2f}"


def _head(runs: Sequence[Run]) -> str:
    """What the figures are, and what they are not."""
    seeds = sorted({each.seeds for each in cells(runs)} - {0})
    span = "no" if not seeds else str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    lost = sum(each.lost for each in runs)
    return (
        "# Where pods land\n\n"
        "Written by `.venv/bin/python -m tests.bench.placement`, from a simulation that repeats: "
        f"{PODS:,} pods of each of {span} seeds; the first {WARM_UP * 100:.0f} % are not counted. "
        "Pods come at random (Poisson), ask for whole GPUs, live 600 s on average (exponential, "
        "or lognormal where that is said; about the median of the trace below, far below its "
        "mean), and wait where they fit nowhere, while smaller ones behind them go first.\n\n"
        "`spread` and `bin-pack` are the stock scheduler with NodeResourcesFit as LeastAllocated "
        "and as MostAllocated on GPUs; `gpuscape` is bin-pack with our ranks at weight 10, by the "
        "code that the extender runs. GPUs are handed out by NVIDIA's go-gpuallocator, asked in "
        "random orders, in every arm: not by our prediction of it.\n\n"
        "How fast a set is says a judge that shares no code with the scheduler: it makes the "
        "search that NCCL makes over the links, and has the bandwidths that others measured "
        "within 15 % (`tests/judge`). `reference` knows at each decision what is free and what "
        "each node would hand out, and goes by the judge: speed to the best of the machine, whole "
        "nodes left whole, an equal part of each machine for each size, what is left for others "
        "(`tests/bench/placement_reference.py`); by the first of these aims it has at least 95 % "
        "of what exhaustive search reaches on fleets of two to four nodes.\n\n"
        "The sizes of the trace are those of the pods with whole GPUs of Alibaba's trace of 2023 "
        "(cluster-trace-gpu-v2023, multigpu50). No trace tells NVLink shapes. No CPU or memory, no "
        f"gangs, no pods of several containers. The device plugin failed over {lost} pods.\n\n"
        "**On uniform NVSwitch machines nothing is gained in speed: every set of GPUs is as fast "
        "as any other.**\n"
    )
