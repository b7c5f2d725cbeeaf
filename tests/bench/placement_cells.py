# SPDX-License-Identifier: Apache-2.0
"""What the placement benchmark plays, and how runs of the same are compared. Pure."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Final, NamedTuple

from tests.bench.placement_arms import ARMS, LATE, MIXED_ARMS, NOW, PACK, REFERENCE, SPREAD
from tests.bench.placement_fleets import WORKLOADS
from tests.bench.placement_runs import Key, Run

LOADS: Final = (0.70, 0.85, 0.95)
PODS: Final = 8000
SEEDS: Final = 16
SEEDS_ALONE: Final = 12
"""Of single machines and of fleets that grow."""
SEEDS_VARIED: Final = 60
"""Where figures vary most from day to day."""
SEEDS_FULL: Final = 30
"""Of single machines that are nearly full, in the arms that are compared there."""
SEEDS_OF_ALL: Final = 5
"""Of arms other than the stock schedulers and ours: shares of best sets, and ratios to the
reference, vary little."""
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
SMALL_NODES: Final = "32*four-a100+16*dgx-a100"
OTHERS: Final[Mapping[str, str]] = {
    SMALL_NODES: "32 nodes of 4 joined A100, 16 of 8 behind NVSwitch",
    "32*four-a100+16*dgx1-v100": "32 nodes of 4 joined A100, 16 DGX-1",
    "32*four-a100+16*hgx-h100": "32 nodes of 4 joined A100, 16 of 8 H100 behind NVSwitch",
    "24*dgx1-v100+8*dgx1-broken": "24 DGX-1, 8 that lost a link",
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
OF_OTHERS: Final = (*TUNED, "threes")
"""Workloads of fleets with other nodes."""
GROWING_MIX, GROWING_LOAD = "usual", 0.85
VARIED: Final = (("threes", 0.70), ("threes", 0.85), ("threes", 0.95), ("fours", 0.95))
"""Mixes and loads of mixed fleets."""
VARIED_SMALL: Final = (("trace", 0.70), ("trace", 0.95))
"""Of SMALL_NODES."""
COMPARED: Final = (SPREAD, PACK, NOW)
"""The stock schedulers and ours."""
FULL_ARMS: Final = (REFERENCE, NOW, LATE)
BOUND: Final = 1.65
"""Standard errors: with 95 % confidence the true figure is no worse than so many away."""


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

    def means(self, arm: str, other: str, figure: Callable[[Run], float]) -> tuple[float, float]:
        """Of two arms, over the seeds that both have; NaN without any."""
        pairs = self._pairs(arm, other, figure)
        if not pairs:
            return math.nan, math.nan
        return fmean(here for here, _ in pairs), fmean(there for _, there in pairs)

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

    def least(self, size: int) -> float:
        """What ours gains in speed over the better stock scheduler, with 95 % confidence."""
        figure = speed(size)
        found = self.gain(NOW, self.stock(figure), figure)
        return found.value - BOUND * found.error

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
        is_all = seed < SEEDS_OF_ALL
        for fleet in MACHINES if seed < SEEDS_ALONE else ():
            for mix, load in itertools.product(TUNED, LOADS):
                yield from _keys(fleet, mix, load, seed, ARMS if is_all else (PACK, NOW))
        for fleets, mixes in ((MIXED, (*WORKLOADS,)), (OTHERS, OF_OTHERS)):
            for fleet, mix, load in itertools.product(fleets, mixes, LOADS):
                yield from _keys(fleet, mix, load, seed, MIXED_ARMS if is_all else COMPARED)
        for fleet in sorted(growing) if seed < SEEDS_ALONE else ():
            more = (REFERENCE,) if is_all else ()
            yield from _keys(fleet, GROWING_MIX, GROWING_LOAD, seed, (*COMPARED, *more))
    varied = [*itertools.product(MIXED, VARIED), *itertools.product([SMALL_NODES], VARIED_SMALL)]
    for seed, (fleet, (mix, load)) in itertools.product(range(SEEDS, SEEDS_VARIED), varied):
        yield from _keys(fleet, mix, load, seed, COMPARED)
    for seed, fleet, mix in itertools.product(range(SEEDS_OF_ALL, SEEDS_FULL), MACHINES, TUNED):
        known = (PACK, NOW) if seed < SEEDS_ALONE else ()
        arms = (arm for arm in FULL_ARMS if arm not in known)
        yield from _keys(fleet, mix, max(LOADS), seed, arms)


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


def on_best(run: Run) -> float:
    """Part of the pods with several GPUs on a set as fast as any."""
    return run.best_part


def weighted(run: Run) -> float:
    """Speed over the GPUs of all pods that have several."""
    return run.weighted_speed


def speed(size: int) -> Callable[[Run], float]:
    """Mean over the pods of a size; NaN without any."""
    return lambda run: run.speed(size) if size in run.sizes else math.nan


def wait(size: int | None = None) -> Callable[[Run], float]:
    """Mean of the pods of a size, or of all, in seconds."""
    return lambda run: run.wait_seconds(size)
