# SPDX-License-Identifier: Apache-2.0
"""Does a measured quantity grow? A straight line through it, and how sure its slope is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression, mean

from scheduler.simulation.estimates import student


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
    upper = line.slope + student(confidence, freedom) * error
    return Slope(estimate=line.slope, upper=upper)
