# SPDX-License-Identifier: Apache-2.0
"""Does a measured quantity grow? A straight line through it, and how sure its slope is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, linear_regression, mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Growth for each unit of the first quantity."""

    estimate: float
    upper: float
    """The upper end of its confidence interval."""


def slope(points: Sequence[tuple[float, float]], confidence: float = 0.95) -> Slope:
    """The slope of the least-squares line through at least three points.

    The interval is two-sided, from Student's t with two degrees of freedom less than points,
    as if each measurement strayed from the line by itself.
    """
    xs, ys = zip(*points, strict=True)
    line = linear_regression(xs, ys)
    middle = mean(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    rest = sum((y - line.intercept - line.slope * x) ** 2 for x, y in points)
    freedom = len(points) - 2
    error = math.sqrt(rest / freedom / spread)
    upper = line.slope + student((1 + confidence) / 2, freedom) * error
    return Slope(estimate=line.slope, upper=upper)


def student(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, to 1 % from three degrees of freedom on.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
