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

from tests.bench.placement_arms import COMPARED, JUDGED, PACK, SPREAD
from tests.bench.placement_runs import Key, Run

LOADS: Final = (0.30, 0.50, 0.70, 0.85, 0.95)
MIXES: Final = ("usual", "trace")
PODS: Final = 4000
SEEDS: Final = 4
MACHINES: Final[Mapping[str, str]] = {
    "64*dgx1-v100": "DGX-1, hybrid cube mesh",
    "64*a100-pcie-pairs": "bridged pairs",
    "64*quads": "two bridged quads",
    "64*hgx-h100": "NVSwitch",
}
MIXED: Final[Mapping[str, str]] = {
    "24*dgx1-v100+8*hgx-h100": "24 DGX-1, 8 H100",
    "10*dgx1-v100+14*hgx-h100": "10 DGX-1, 14 H100",
    "28*dgx1-v100+4*hgx-h100": "28 DGX-1, 4 H100",
    "16*dgx1-v100+16*hgx-h100": "16 DGX-1, 16 H100",
    "16*dgx1-v100+16*dgx-a100": "16 DGX-1, 16 DGX A100",
    "12*dgx-a100+12*hgx-h100": "12 DGX A100, 12 H100",
    "24*a100-pcie-pairs+8*hgx-h100": "24 bridged pairs, 8 H100",
    "12*dgx1-v100+12*a100-pcie-pairs+8*hgx-h100": "12 DGX-1, 12 bridged pairs, 8 H100",
    "24*dgx1-v100+8*dgx1-broken": "24 DGX-1, 8 that lost a link",
    "32*four-a100+16*dgx-a100": "32 of 4 joined A100, 16 DGX A100",
    "32*four-a100+16*dgx1-v100": "32 of 4 joined A100, 16 DGX-1",
    "32*four-a100+16*hgx-h100": "32 of 4 joined A100, 16 H100",
}
FLEETS: Final = {**MACHINES, **MIXED}
SLOWER: Final = 0.02
"""Of the fleet's best speed: so much may a size lose to the better stock scheduler."""
COUNTED_PART: Final = 0.05
"""Sizes whose pods have a smaller part of the GPUs are not counted."""
LONGER: Final = 1.10
"""All pods may wait so many times as long as with packing, where they wait WAIT_SECONDS."""
WAIT_SECONDS: Final = 10.0
BOUND: Final = 2.0
"""Standard errors beyond which a limit is broken and not only by chance."""


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

    @property
    def sizes(self) -> list[int]:
        """Sizes of several GPUs whose pods have more than a trifle of all GPUs."""
        runs = [run for its in self.runs.values() for run in its.values()]
        found = sorted({size for run in runs for size in run.sizes if size > 1})
        return [size for size in found if fmean(run.part(size) for run in runs) >= COUNTED_PART]

    def broken(self, arm: str) -> list[str]:
        """Limits that an arm breaks by more than chance explains, in words."""
        found = []
        for size in self.sizes:
            lost = self.gain(arm, self.stock(speed(size)), speed(size))
            if lost.value + BOUND * lost.error < -SLOWER:
                found.append(f"{size} GPUs {lost.text(3, '+')}")
        longer = self.ratio(arm, PACK, wait())
        waits, _ = self.means(arm, PACK, wait())
        if waits > WAIT_SECONDS and longer.value - BOUND * longer.error > LONGER:
            found.append(f"waits {longer.text(2)} times")
        return found

    @property
    def reference(self) -> str:
        """Of the arms that have none of our rules the fastest that keeps to the limits; where none
        does, the stock arm whose pods wait no longer."""
        kept = [arm for arm in JUDGED if self.runs.get(arm) and not self.broken(arm)]
        return max(kept, key=lambda arm: self.mean(arm, weighted), default=PACK)

    def _pairs(
        self, arm: str, other: str, figure: Callable[[Run], float]
    ) -> list[tuple[float, float]]:
        here, there = self.runs.get(arm, {}), self.runs.get(other, {})
        return [(figure(here[seed]), figure(there[seed])) for seed in sorted({*here} & {*there})]


def plan() -> Iterator[Key]:
    """The runs of the page; the first seeds of everything come first."""
    for seed, fleet, mix, load, arm in itertools.product(
        range(SEEDS), FLEETS, MIXES, LOADS, COMPARED
    ):
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


def weighted(run: Run) -> float:
    """Speed over the GPUs of all pods that have several."""
    return run.weighted_speed


def speed(size: int) -> Callable[[Run], float]:
    """Mean over the pods of a size; NaN without any."""
    return lambda run: run.speed(size) if size in run.sizes else math.nan


def wait(size: int | None = None) -> Callable[[Run], float]:
    """Mean of the pods of a size, or of all, in seconds."""
    return lambda run: run.wait_seconds(size)
