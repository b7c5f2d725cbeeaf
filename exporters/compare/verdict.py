# SPDX-License-Identifier: Apache-2.0
"""Verdicts on two sides' metrics, and how two series are compared. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from exporters.compare.tolerance import Measure, Tolerance
from exporters.compare.tracks import SeriesTrack

STALE_ROUNDS = 4
STALE_CHANGES = 3
"""So often one side has to move before the other, which does not, counts as stale."""


class MetricVerdict(StrEnum):
    """Result for one metric of the comparison; the worst first."""

    ONLY_LEFT = "only-left"
    ONLY_RIGHT = "only-right"
    TYPE = "type"
    MISSING_RIGHT = "missing-right"  # series that the left side has
    MISSING_LEFT = "missing-left"
    LABELS = "labels"
    STALE_RIGHT = "stale-right"  # it stands still while the left side moves
    STALE_LEFT = "stale-left"
    VALUES = "values"
    COLLIDING = "colliding"  # series that are one by the labels they are matched by
    HELP = "help"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One way in which the sides differ."""

    verdict: MetricVerdict
    series: int
    """How many it concerns."""
    detail: str
    examples: tuple[str, ...] = ()
    """Labels of some of them, as an exposition has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSide:
    """What one exporter served of one metric."""

    type: str | None
    help: str | None
    series: int
    """All that were seen in the run."""
    value: float | None
    """What was compared, as the mean over the series that both sides have.

    Of counters the rate, or the value where none moved.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One metric with its verdict and what both exporters served of it."""

    name: str
    verdict: MetricVerdict
    """The worst of the findings that count, else ``same``."""
    measure: Measure
    tolerance: str
    pairs: int
    """Series that both sides have."""
    moved: int
    """Those of them whose value changed within the run, on either side."""
    left: MetricSide
    right: MetricSide
    findings: tuple[Finding, ...] = ()
    """The worst first, those that do not count too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideActivity:
    """How many series one exporter had in the run, how many of them changed, and how often."""

    series: int
    """All that were seen in the run."""
    moving: int
    """Series of both sides whose values changed here."""
    frozen: int
    """Those that stood still here while they moved on the other side."""
    renewed_seconds: float | None
    """About how often values are new; None where none changed often enough to measure it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """Result of a comparison: all metrics with their verdicts."""

    same: bool
    rounds: int
    seconds: float
    left: SideActivity
    right: SideActivity
    metrics: tuple[Compared, ...]
    """By name."""

    @property
    def still(self) -> tuple[Compared, ...]:
        """Metrics that were found the same and of which nothing moved, but for plain facts.

        A broken exporter could serve them as well: only what moves shows that both read it.
        """
        return tuple(
            metric
            for metric in self.metrics
            if metric.verdict is MetricVerdict.SAME
            and metric.measure is not Measure.EXACT
            and not metric.moved
        )


def judge(
    left: SeriesTrack, right: SeriesTrack, measure: Measure, tolerance: Tolerance, rounds: int
) -> MetricVerdict:
    """``same``, ``values`` or one of ``stale-…`` for one series on both sides."""
    if measure is Measure.EXACT or not (math.isfinite(left.mean) and math.isfinite(right.mean)):
        return _same_if(equal(left.last, right.last))
    if rounds >= STALE_ROUNDS:
        least = tolerance if measure is Measure.MEAN else Tolerance()
        if _stands_still(right, left, least):
            return MetricVerdict.STALE_RIGHT
        if _stands_still(left, right, least):
            return MetricVerdict.STALE_LEFT
    if measure is Measure.MEAN:
        apart = abs(left.mean - right.mean)
        by_chance = 2 * math.sqrt(left.noise + right.noise)
        return _same_if(apart <= tolerance.of(left.mean, right.mean) + by_chance)
    if left.changes or right.changes:
        apart = abs(left.rate - right.rate)
        by_chance = left.step_rate + right.step_rate
        return _same_if(apart <= tolerance.of(left.rate, right.rate) + by_chance)
    if rounds >= STALE_ROUNDS:
        return _same_if(equal(left.last, right.last))
    return _same_if(abs(left.last - right.last) <= tolerance.of(left.last, right.last))


def compared_value(track: SeriesTrack, measure: Measure) -> float:
    """The value of a series that is compared, by the measure."""
    match measure:
        case Measure.EXACT:
            return track.last
        case Measure.MEAN:
            return track.mean
        case Measure.RATE:
            return track.rate


def equal(left: float, right: float) -> bool:
    """Equal numbers, or none of them a number."""
    return left == right or (math.isnan(left) and math.isnan(right))


def _same_if(same: bool) -> MetricVerdict:
    return MetricVerdict.SAME if same else MetricVerdict.VALUES


def _stands_still(one: SeriesTrack, other: SeriesTrack, tolerance: Tolerance) -> bool:
    """Whether the one never changed while the other moved, by more than the tolerance."""
    moved = other.high - other.low > tolerance.of(other.low, other.high)
    return not one.changes and other.changes >= STALE_CHANGES and moved
