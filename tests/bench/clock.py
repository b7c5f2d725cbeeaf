# SPDX-License-Identifier: Apache-2.0
"""How the benchmarks measure time: alternatives in turns, medians of what came out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

ROUNDS = 21
"""Odd, so that a median is one of the measured times."""


def medians_seconds(
    ways: Mapping[str, Callable[[], object]], rounds: int = ROUNDS
) -> dict[str, float]:
    """Median time of each way over as many rounds, in the order given."""
    return {name: median(seconds) for name, seconds in times_seconds(ways, rounds).items()}


def times_seconds(
    ways: Mapping[str, Callable[[], object]], rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """The times of each way over as many rounds.

    Each round runs every way once, so that whatever else the machine does hits all alike;
    one more round before the first is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - begin)
    return {name: measured[1:] for name, measured in times.items()}


def percentile(seconds: Sequence[float], percent: float) -> float:
    """The smallest time that so many percent of them do not exceed."""
    return sorted(seconds)[max(0, math.ceil(len(seconds) * percent / 100) - 1)]
