"""The score table of one topology class: for free GPUs and a request, what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from scheduler.best_effort import LOST, Odds, odds
from scheduler.shape import Shape
from scheduler.speed import Speeds
from scheduler.worth import Worth

# A GB/s of the expected set counts more than anything it leaves for others, that in tenths of a
# GPU more than how full the node is already.
_PER_GBPS = 1_000_000
_PER_TENTH_KEPT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a request meets on a node with these free GPUs."""

    sets: Odds
    """What the device plugin will hand out."""
    score: int
    """Higher is better; it compares across classes. 0 where the request cannot be met."""


class Table:
    """Outcomes of one class, each computed when first asked for."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._speeds = Speeds(shape)
        self._worth = Worth(shape, self._speeds)
        self.outcome = cache(self._outcome)

    def _outcome(self, free: int, size: int) -> Outcome:
        """For a pod with one container that asks for ``size`` GPUs."""
        sets = odds(self._shape, free, size)
        if not sets:
            return Outcome(sets={}, score=0)
        speed = sum(float(p) * self._speeds.ring(each) for each, p in sets.items() if each != LOST)
        before = self._worth.of(free)
        loss = sum(float(p) * (before - self._worth.of(free & ~each)) for each, p in sets.items())
        kept = self._shape.n - loss
        fuller = self._shape.n - free.bit_count()
        score = round(speed) * _PER_GBPS + round(kept * 10) * _PER_TENTH_KEPT + fuller + 1
        return Outcome(sets=sets, score=score)
