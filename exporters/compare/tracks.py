# SPDX-License-Identifier: Apache-2.0
"""Statistics of one series over a run of scrapes. Pure."""

from __future__ import annotations

import math


class SeriesTrack:
    """The values of one series on one side, as a few numbers."""

    __slots__ = (
        "changes",
        "first_at",
        "high",
        "increase",
        "last",
        "last_at",
        "low",
        "mean",
        "round",
        "rounds",
        "spread",
    )

    def __init__(self, value: float, at_seconds: float, number: int) -> None:
        """Begin a track; the series came first in the scrape of this ``number``."""
        self.round = number
        self.rounds = 1
        self.changes = 0
        self.first_at = self.last_at = at_seconds
        self.last = self.low = self.high = self.mean = value
        self.increase = 0.0
        """Increase of a counter over the run; a counter that fell began at zero again."""
        self.spread = 0.0
        """Sum of the squared distances from the mean."""

    def add(self, value: float, at_seconds: float, number: int) -> None:
        """Add the value of a later scrape."""
        if value != self.last and not (math.isnan(value) and math.isnan(self.last)):
            self.changes += 1
            self.increase += value - self.last if value >= self.last else value
            self.low, self.high = min(self.low, value), max(self.high, value)
        self.round = number
        self.rounds += 1
        self.last, self.last_at = value, at_seconds
        distance = value - self.mean
        self.mean += distance / self.rounds
        self.spread += distance * (value - self.mean)

    @property
    def rate(self) -> float:
        """Increase of the values each second; 0 after a single scrape."""
        seconds = self.last_at - self.first_at
        return self.increase / seconds if seconds > 0 else 0.0

    @property
    def step_rate(self) -> float:
        """Possible error of the rate, since a scrape may come just before a renewal."""
        return self.rate / self.changes if self.changes else 0.0

    @property
    def noise(self) -> float:
        """Variance of the mean, where a value that was scraped twice counts once."""
        return self.spread / self.rounds / (self.changes + 1)
