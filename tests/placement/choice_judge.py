# SPDX-License-Identifier: Apache-2.0
"""The best set of a request by trying everything: a judge that shares no code with the choice.

For small shapes whose NVLinks all have one rate. Sets are frozensets of GPU numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain, combinations, permutations, product
from typing import Any

Set = frozenset[int]
SHARES = {2: 3, 4: 3, 8: 4}


class ChoiceJudge:
    """All that counts of one shape: NVLinks of each pair, their rate, and GB/s over PCIe."""

    def __init__(
        self, links: Sequence[Sequence[int]], pcie: Sequence[Sequence[int]], *, rate: int = 25
    ) -> None:
        self.n, self.links, self.pcie, self.rate = len(links), links, pcie, rate
        self.speed = cache(self._speed)
        self.left = cache(self._left)

    def best(self, available: Set, size: int, required: Set) -> Set:
        """The set by its definition; of all that are allowed the greatest."""
        allowed = [
            frozenset(group)
            for group in combinations(sorted(available), size)
            if required <= frozenset(group)
        ]
        return max(allowed, key=lambda group: self._rank(group, available))

    def _rank(self, group: Set, available: Set) -> tuple[float, Fraction, int]:
        first = self.speed(group) if len(group) > 1 else -self._near(min(group), available)
        return first, self.left(available - group), -sum(2**gpu for gpu in group)

    def _near(self, gpu: int, available: Set) -> int:
        return sum(self._pair(gpu, other) for other in available - {gpu})

    def _pair(self, a: int, b: int) -> int:
        return self.links[a][b] * self.rate or self.pcie[a][b]

    def _speed(self, group: Set) -> float:
        gpus = sorted(group)
        if len(gpus) == 2:
            return self._pair(*gpus)
        cycles = [(gpus[0], *rest) for rest in permutations(gpus[1:])]
        steps = [list(zip(cycle, (*cycle[1:], cycle[0]), strict=True)) for cycle in cycles]
        both_ways = {frozenset(pair): 2 * self.links[min(pair)][max(pair)]
                     for pair in combinations(gpus, 2)}  # fmt: skip
        count = packed([[frozenset(step) for step in ring] for ring in steps], both_ways)
        if count:
            return count * self.rate
        one_way = {(a, b): 2 * self.links[a][b] for a, b in permutations(gpus, 2)}
        relayed = chain.from_iterable(self._relayed(ring, gpus) for ring in steps)
        if count := packed(relayed, one_way):
            return count * self.rate / 2
        return max(min(self._pair(a, b) for a, b in ring) for ring in steps)

    def _relayed(self, ring: list[tuple[int, int]], gpus: list[int]) -> Iterator[list[object]]:
        ways = [
            [[(a, b)]] if self.links[a][b] else [[(a, c), (c, b)] for c in gpus if c not in (a, b)]
            for a, b in ring
        ]
        for path in product(*ways):
            yield list(chain.from_iterable(path))

    def _left(self, free: Set) -> Fraction:
        used = frozenset(range(self.n)) - free
        whole = SHARES.get(self.n, 4) * self.n * Fraction(1, 4) ** len(used)
        parts = Fraction()
        for count in range(len(used) + 1):
            for back in combinations(sorted(used), count):
                odds = Fraction(1, 4) ** count * Fraction(3, 4) ** (len(used) - count)
                parts += odds * self._parts(free | frozenset(back))
        return whole + parts

    def _parts(self, free: Set) -> int:
        total = 0
        for size, share in SHARES.items():
            if size < self.n:
                groups = [frozenset(group) for group in combinations(range(self.n), size)]
                fastest = max(map(self.speed, groups))
                ideal = [group for group in groups if self.speed(group) == fastest]
                if len(ideal) < len(groups):
                    total += share * size * disjoint([g for g in ideal if g <= free])
        return total


def disjoint(groups: Sequence[Set]) -> int:
    """The most of these sets that share nothing."""
    if not groups:
        return 0
    first, *rest = groups
    return max(disjoint(rest), 1 + disjoint([group for group in rest if not group & first]))


def packed(rings: Iterable[Sequence[object]], capacity: Mapping[Any, int]) -> int:
    """The most rings, each as often as one likes, that use nothing more often than it may be."""
    names = list(capacity)
    uses = {tuple(ring.count(name) for name in names) for ring in rings}

    @cache
    def most(room: tuple[int, ...]) -> int:
        rests = (tuple(r - u for r, u in zip(room, use, strict=True)) for use in uses)
        return max((1 + most(rest) for rest in rests if min(rest) >= 0), default=0)

    return most(tuple(capacity[name] for name in names))
