# SPDX-License-Identifier: Apache-2.0
"""Errors of a simulation's figures: intervals over samples, and which differences count. Pure.

A sample is a run of its own seed, or a part of one run; samples of schedulers with the same place
in their lists have the same pods. Intervals are Student's, for samples that are independent: parts
of one run that follow each other are not quite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import product
from statistics import fmean, stdev
from typing import Final

from scheduler.simulation.fleet_replay import Summary

CONFIDENCE: Final = 0.95
LEAST_SAMPLES: Final = 5
"""Below this there are no intervals: one of fewer is mostly a guess of its own width."""
LEAST_PODS: Final = 20
"""Pods that each sample needs for schedulers to be compared."""
_STEPS: Final = 200
_HALVINGS: Final = 50


class Figure(StrEnum):
    """Figures of a run that are compared, by their names in a :class:`Summary`."""

    BEST_SETS = "ideal_ratio"
    SPEED = "speed_ratio"
    MEAN_WAIT = "mean_wait_seconds"

    def of(self, summary: Summary) -> float | None:
        """The figure; None where no pod has it."""
        value: float | None = getattr(summary, self) if summary.pods else None
        return value


class Verdict(StrEnum):
    """Result of a comparison. It takes no side: for waits less is better."""

    MORE = "more"
    LESS = "less"
    NO_DIFFERENCE = "no difference"
    """Any difference is within the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureDifference:
    """Difference between two schedulers in one figure, with the same pods."""

    other: str
    figure: Figure
    difference: float
    """Difference in the figure's unit: a share of 1, or seconds."""
    error: float
    """Half of the interval around the difference; all comparisons of a call together are right in
    95 % of runs."""
    larger: float
    """The larger of the two figures."""
    verdict: Verdict
    """Result by the interval: a difference within the error is none."""


def with_errors(pooled: Summary, samples: Sequence[Summary]) -> Summary:
    """The summary of all pods with the half intervals that its samples give; None where a sample
    has no such figure, and with fewer than :data:`LEAST_SAMPLES`.
    """
    return replace(
        pooled,
        ideal_ratio_error=_error(Figure.BEST_SETS, samples),
        speed_ratio_error=_error(Figure.SPEED, samples),
        mean_wait_error_seconds=_error(Figure.MEAN_WAIT, samples),
    )


def compared(
    ours: Sequence[Summary], other_schedulers: Mapping[str, Sequence[Summary]]
) -> tuple[FigureDifference, ...]:
    """Every figure against every other scheduler's, sample by sample.

    None for samples that are too few or too small, and none of a figure that one does not have.
    """
    if len(ours) < LEAST_SAMPLES or min(sample.pods for sample in ours) < LEAST_PODS:
        return ()
    # so many are asked at once that of intervals of 95 % some would miss by chance
    miss = (1 - CONFIDENCE) / (len(other_schedulers) * len(Figure))
    differences = []
    for (name, other_samples), figure in product(other_schedulers.items(), Figure):
        pairs = [(figure.of(a), figure.of(b)) for a, b in zip(ours, other_samples, strict=True)]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(known) < len(pairs):
            continue
        gains = [a - b for a, b in known]
        difference, error = fmean(gains), half_interval(gains, 1 - miss)
        differences.append(
            FigureDifference(
                other=name,
                figure=figure,
                difference=difference,
                error=error,
                larger=max(fmean(a for a, _ in known), fmean(b for _, b in known)),
                verdict=_verdict(difference, error),
            )
        )
    return tuple(differences)


def half_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> float:
    """Half the width of the interval around the mean of two values or more."""
    error = stdev(values) / math.sqrt(len(values))
    return error * student(confidence, len(values) - 1)


@cache
def student(confidence: float, freedom: int) -> float:
    """Standard errors, each way from the mean, that hold the true mean with this confidence.

    Student's distribution with t = sqrt(freedom) tan(angle), whose density in the angle is a power
    of the cosine: integrated by Simpson's rule, and inverted by halving.
    """
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if 2 * norm * _power_integral(freedom - 1, middle) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _power_integral(power: int, end: float) -> float:
    """Integral of a power of the cosine, from 0 to ``end``."""
    step = end / _STEPS
    inner = math.fsum(
        (4 if index % 2 else 2) * math.cos(index * step) ** power for index in range(1, _STEPS)
    )
    return step / 3 * (1 + inner + math.cos(end) ** power)


def _verdict(difference: float, error: float) -> Verdict:
    if abs(difference) <= error:
        return Verdict.NO_DIFFERENCE
    return Verdict.MORE if difference > 0 else Verdict.LESS


def _error(figure: Figure, samples: Sequence[Summary]) -> float | None:
    values = [value for sample in samples if (value := figure.of(sample)) is not None]
    return half_interval(values) if LEAST_SAMPLES <= len(values) == len(samples) else None
