# SPDX-License-Identifier: Apache-2.0
"""GPUs that NVIDIA's device plugin hands out: its best-effort policy, with the odds of its ties.

The policy cuts the free GPUs into groups of the requested size, one group smaller where they
do not divide, such that all pairs within groups have the most points together; of that cut it
hands out the group with the most points. Among equals the order decides in which the kubelet
names the free GPUs, and that is drawn (:mod:`placement.device_order`): so the answer is a
distribution over sets. Where a node has more GPUs, or some are required, any order is taken to be
as likely. Single GPUs have no pairs: the first one comes. Where the smaller group has the most
points the plugin hands it out as if it were whole and crashes, which counts as a loss of the pod.
Source: go-gpuallocator 0.5.0, gpuallocator/besteffort_policy.go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from placement.device_order import PLACES, first_named, named_from
from placement.masks import members, pairs, subsets, union
from placement.shape import Shape
from placement.workspace import Workspace

LOST = 0
"""The empty set stands for an allocation that fails."""

Odds = Mapping[int, Fraction]
"""Set of GPUs to the odds that just this one is handed out; they add up to 1."""


class BestEffort:
    """The device plugin's best-effort policy on one shape; the workspace keeps what it computed."""

    def __init__(self, shape: Shape, workspace: Workspace | None = None) -> None:
        workspace = workspace or Workspace()
        self._n = shape.n
        self._cuts = {size: _Cuts(shape, size, workspace) for size in range(2, shape.n + 1)}

    def odds(self, free: int, size: int, required: int = 0) -> Odds:
        """Sets that a request of ``size`` GPUs may get, with their odds; empty if too few are free.

        ``required``, fewer than ``size`` and among the free, come with any set.
        """
        count = free.bit_count()
        if not 0 < size <= count:
            return {}
        if self._n <= PLACES and not required:
            return self._in_their_orders(free, size)
        if size == 1:
            return dict.fromkeys(subsets(free, 1), Fraction(1, count))
        weights = self._cuts[size].weights(free, required)
        total = sum(weights.values())
        shares = {weight: weight / total for weight in set(weights.values())}
        return {group: shares[weight] for group, weight in weights.items()}

    def _in_their_orders(self, free: int, size: int) -> Odds:
        """Sets with their odds, over all orders in which a kubelet may name the free GPUs."""
        odds: dict[int, Fraction] = defaultdict(Fraction)
        for first, share in first_named(free, self._n).items():
            order = tuple(named_from(free, first))
            group = 1 << first if size == 1 else self._cuts[size].first_best(order)
            odds[group] += share
        return dict(odds)


class _Best(NamedTuple):
    """The best cuts of a set into whole groups."""

    points: int
    ways: Counter[int]
    """Cuts that have so many points, by how many of their groups have the points of the limit."""


class _Cuts:
    """Cuts of one shape's GPUs into groups of one size; the workspace keeps what it found."""

    def __init__(self, shape: Shape, size: int, workspace: Workspace) -> None:
        self._shape = shape
        self._size = size
        self._spend = workspace.spend
        self._value = workspace.cache(self._points, entry_bytes=120)
        self._cut = workspace.cache(self._best_cut, entry_bytes=700)
        self._most = workspace.cache(self._most_points, entry_bytes=120)

    def weights(self, free: int, required: int) -> Mapping[int, Fraction]:
        """Set to its weight: each best cut counts 1, shared by its groups with the most points."""
        most_points = max(self._total(free, *cut) for cut in self._all(free, required))
        weights: dict[int, Fraction] = defaultdict(Fraction)
        for group, remainder in self._all(free, required):  # again: for 16 GPUs they are millions
            if self._total(free, group, remainder) != most_points:
                continue
            rest = free & ~group & ~remainder
            if required:  # of disjoint groups just one has them
                weights[group] += self._cut(rest).ways.total()
            else:
                weights[group] += self._shares(rest, most_points, group, remainder)
        if not required:
            weights[LOST] += sum(
                self._shares(free & ~remainder, most_points, remainder)
                for remainder in subsets(free, free.bit_count() % self._size)
            )
        return {group: weight for group, weight in weights.items() if weight}

    def first_best(self, order: Sequence[int]) -> int:
        """The set handed out for GPUs named in this order: the first group with the most points, of
        the first of the best cuts that the policy meets."""
        groups: list[int] = []
        while order:
            groups.append(self._first_group(order))
            order = [place for place in order if not groups[-1] >> place & 1]
        best = max(groups, key=self._value)
        return best if best.bit_count() == self._size else LOST

    def _first_group(self, order: Sequence[int]) -> int:
        """The first group, in turn, that is part of a best cut."""
        free = union(order)
        return max(
            self._in_turn(order), key=lambda group: self._value(group) + self._most(free & ~group)
        )

    def _in_turn(self, remaining: Sequence[int]) -> Iterator[int]:
        """Groups of the first GPU, as the policy tries them: the smaller one, if there is one yet,
        ends with empty places, which come last."""
        empty = -len(remaining) % self._size
        rest = [1 << place for place in remaining[1:]] + [0] * empty
        for partners in combinations(rest, self._size - 1):
            self._spend(1)
            if partners.count(0) in (0, empty):
                yield 1 << remaining[0] | sum(partners)

    def _most_points(self, free: int) -> int:
        """Points of the best cut of these GPUs."""
        if not free:
            return 0
        group = self._first_group(members(free))
        return self._value(group) + self._most(free & ~group)

    def _all(self, free: int, required: int) -> Iterator[tuple[int, int]]:
        """All pairs of a whole group, which has the required GPUs, and the smaller group."""
        rest = free.bit_count() % self._size
        for chosen in subsets(free & ~required, self._size - required.bit_count()):
            for remainder in subsets(free & ~required & ~chosen, rest):
                self._spend(1)
                yield required | chosen, remainder

    def _total(self, free: int, group: int, remainder: int) -> int:
        rest = self._cut(free & ~group & ~remainder)
        return self._value(group) + self._value(remainder) + rest.points

    def _shares(self, rest: int, total: int, group: int, smaller: int = 0) -> Fraction:
        """Number of cuts with ``total`` points that hand out ``group``; a tie counts as its share.

        ``rest``: all other GPUs of the cut; ``smaller``: its smaller group, or 0.
        """
        points, smaller_points = self._value(group), self._value(smaller)
        cut = self._cut(rest, points)
        if not group or smaller_points > points or points + smaller_points + cut.points != total:
            return Fraction()
        tied = 1 + (smaller_points == points)
        return sum((Fraction(n, ties + tied) for ties, n in cut.ways.items()), Fraction())

    def _best_cut(self, mask: int, limit: int | None = None) -> _Best:
        """The best cuts of a set that divides, into groups of at most ``limit`` points."""
        if not mask:
            return _Best(0, Counter([0]))
        best, ways = -1, Counter[int]()
        first = mask & -mask  # in each group, so that no cut is met twice
        for partners in subsets(mask & ~first, self._size - 1):
            self._spend(1)
            group = first | partners
            points = self._value(group)
            if limit is not None and points > limit:
                continue
            rest = self._cut(mask & ~group, limit)
            if not rest.ways:
                continue
            total = points + rest.points
            if total > best:
                best, ways = total, Counter()
            if total == best:
                for ties, n in rest.ways.items():
                    ways[ties + (points == limit)] += n
        return _Best(best, ways)

    def _points(self, group: int) -> int:
        """Points of all pairs within the group."""
        points = self._shape.points
        return sum(points[i][j] for i, j in pairs(group))
