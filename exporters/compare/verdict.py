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
"""Changes of a series on one side after which it is stale on the other, if it stands still."""


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
    """A difference between the sides, with some of its series."""

    verdict: MetricVerdict
    series: int
    """Number of series that differ in this way."""
    detail: str
    examples: tuple[str, ...] = ()
    """Labels of some of these series, as an exposition has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSide:
    """Type, help text, series and value of a metric as one exporter served it."""

    type: str | None
    help: str | None
    series: int
    """Number of series that were seen in the run."""
    value: float | None
    """The compared number, as the mean over the series that both sides have.

    For counters this is the rate, or the value where none moved.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A metric with its verdict and what both exporters served of it."""

    name: str
    verdict: MetricVerdict
    """Verdict of the worst finding that counts, else ``same``."""
    measure: Measure
    tolerance: str
    pairs: int
    """Number of series that both sides have."""
    moved: int
    """Number of these pairs whose value changed within the run, on either side."""
    left: MetricSide
    right: MetricSide
    findings: tuple[Finding, ...] = ()
    """All findings, the worst first, also those that do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideActivity:
    """Counts of an exporter's series in the run, and how often their values changed."""

    series: int
    """Number of series that were seen in the run."""
    moving: int
    """Series of both sides whose values changed here."""
    frozen: int
    """Series that stood still here while they moved on the other side."""
    renewed_seconds: float | None
    """Estimated time between new values; None where none changed often enough to measure it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """Result of a comparison: all metrics with their verdicts."""

    same: bool
    rounds: int
    seconds: float
    left: SideActivity
    right: SideActivity
    metrics: tuple[Compared, ...]
    """Verdicts of all metrics, sorted by name."""

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


def metric_verdict(
    left_track: SeriesTrack,
    right_track: SeriesTrack,
    measure: Measure,
    tolerance: Tolerance,
    rounds: int,
) -> MetricVerdict:
    """``same``, ``values`` or one of ``stale-…`` for one series on both sides."""
    if measure is Measure.EXACT or not (
        math.isfinite(left_track.mean) and math.isfinite(right_track.mean)
    ):
        return _same_if(equal(left_track.last, right_track.last))
    if rounds >= STALE_ROUNDS:
        still_tolerance = tolerance if measure is Measure.MEAN else Tolerance()
        if _stands_still(right_track, left_track, still_tolerance):
            return MetricVerdict.STALE_RIGHT
        if _stands_still(left_track, right_track, still_tolerance):
            return MetricVerdict.STALE_LEFT
    if measure is Measure.MEAN:
        difference = abs(left_track.mean - right_track.mean)
        by_chance = 2 * math.sqrt(left_track.noise + right_track.noise)
        return _same_if(
            difference <= tolerance.allowed(left_track.mean, right_track.mean) + by_chance
        )
    if left_track.changes or right_track.changes:
        difference = abs(left_track.rate - right_track.rate)
        by_chance = left_track.step_rate + right_track.step_rate
        return _same_if(
            difference <= tolerance.allowed(left_track.rate, right_track.rate) + by_chance
        )
    if rounds >= STALE_ROUNDS:
        return _same_if(equal(left_track.last, right_track.last))
    return _same_if(
        abs(left_track.last - right_track.last)
        <= tolerance.allowed(left_track.last, right_track.last)
    )


def compared_value(track: SeriesTrack, measure: Measure) -> float:
    """The value of a series that is compared, by the measure."""
    match measure:
        case Measure.EXACT:
            return track.last
        case Measure.MEAN:
            return track.mean
        case Measure.RATE:
            return track.rate


def equal(left_value: float, right_value: float) -> bool:
    """Equal numbers, or none of them a number."""
    return left_value == right_value or (math.isnan(left_value) and math.isnan(right_value))


def _same_if(same: bool) -> MetricVerdict:
    return MetricVerdict.SAME if same else MetricVerdict.VALUES


def _stands_still(track: SeriesTrack, other_track: SeriesTrack, tolerance: Tolerance) -> bool:
    """Whether ``track`` never changed while the other moved by more than the tolerance."""
    moved = other_track.high - other_track.low > tolerance.allowed(
        other_track.low, other_track.high
    )
    return not track.changes and other_track.changes >= STALE_CHANGES and moved
