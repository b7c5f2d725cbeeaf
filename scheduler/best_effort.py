"""Which GPUs NVIDIA's device plugin hands out: its best-effort policy, with the odds of its ties.

The policy cuts the free GPUs into groups of the size asked for, one group smaller where they
do not divide, such that all pairs within groups have the most points together; of that cut it
hands out the group with the most points. Among equals the order decides in which the kubelet
names the free GPUs, and that is random: so the answer is a distribution over sets. Single
GPUs have no pairs, so any free one may come. Where the smaller group has the most points the
plugin hands it out as if it were whole and crashes, which is said here as a loss of the pod.
Source: go-gpuallocator 0.5.0, gpuallocator/besteffort_policy.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from scheduler.masks import pairs, subsets
from scheduler.shape import Shape

LOST = 0
"""The empty set stands for an allocation that fails."""

Odds = Mapping[int, Fraction]
"""Set of GPUs to the odds that just this one is handed out; they add up to 1."""


def odds(shape: Shape, free: int, size: int) -> Odds:
    """What a request of ``size`` GPUs is given when these are free; empty if they are too few."""
    count = free.bit_count()
    if not 0 < size <= count:
        return {}
    if size == 1:
        return {one: Fraction(1, count) for one in subsets(free, 1)}
    return _Cuts(shape, size).odds(free)


@dataclass(frozen=True, slots=True)
class _Best:
    """The best cuts of a set into whole groups."""

    points: int
    ways: int
    """How many cuts have so many points."""


_ONE_WAY = _Best(0, 1)
_NO_WAY = _Best(-1, 0)


class _Cuts:
    """Cuts of one shape's GPUs into groups of one size; keeps what it found."""

    def __init__(self, shape: Shape, size: int) -> None:
        self._shape = shape
        self._size = size
        self._points: dict[int, int] = {}
        self._best: dict[tuple[int, int | None], _Best] = {}

    def odds(self, free: int) -> Odds:
        """Each group counts once for every best cut in which it would be handed out."""
        rest = free.bit_count() % self._size
        remainders = [(each, self._value(each)) for each in (subsets(free, rest) if rest else (0,))]
        most = max(points + self._cut(free & ~each).points for each, points in remainders)
        weights: dict[int, Fraction] = {}
        for group in subsets(free, self._size):
            weight = self._weight(free & ~group, self._value(group), most, remainders)
            if weight:
                weights[group] = weight
        lost = self._lost(free, most, remainders)
        if lost:
            weights[LOST] = lost
        total = sum(weights.values(), Fraction())
        return {group: weight / total for group, weight in weights.items()}

    def _weight(
        self, others: int, points: int, most: int, remainders: list[tuple[int, int]]
    ) -> Fraction:
        """Best cuts with one group of so many points beside others that have no more."""
        ways = Fraction()
        for remainder, its in remainders:
            if its > points or remainder & ~others:
                continue
            cut = self._cut(others & ~remainder, points)
            if cut.ways and points + its + cut.points == most:
                share = Fraction(1, 2) if remainder and its == points else Fraction(1)
                ways += share * cut.ways
        return ways

    def _lost(self, free: int, most: int, remainders: list[tuple[int, int]]) -> Fraction:
        """Best cuts whose smaller group has the most points of all."""
        ways = Fraction()
        for remainder, its in remainders:
            if not remainder:
                continue
            cut = self._cut(free & ~remainder, its)
            if cut.ways and its + cut.points == most:
                ways += cut.ways
        return ways

    def _cut(self, mask: int, limit: int | None = None) -> _Best:
        """The best cuts of a set that divides, of groups that have no more than ``limit``."""
        if not mask:
            return _ONE_WAY
        key = mask, limit
        if key not in self._best:
            best, ways = -1, 0
            for group in self._groups_of_the_first(mask):
                points = self._value(group)
                if limit is not None and points > limit:
                    continue
                others = self._cut(mask & ~group, limit)
                if not others.ways:
                    continue
                total = points + others.points
                if total > best:
                    best, ways = total, 0
                if total == best:
                    ways += others.ways
            self._best[key] = _Best(best, ways) if ways else _NO_WAY
        return self._best[key]

    def _groups_of_the_first(self, mask: int) -> Iterator[int]:
        """Groups with the first GPU of the set, so that no cut is met twice."""
        first = mask & -mask
        return (first | others for others in subsets(mask & ~first, self._size - 1))

    def _value(self, group: int) -> int:
        """Points of all pairs within the group."""
        if group not in self._points:
            points = self._shape.points
            self._points[group] = sum(points[i][j] for i, j in pairs(group))
        return self._points[group]
