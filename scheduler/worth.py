"""What free GPUs are worth to the pods that come next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from scheduler.masks import subsets
from scheduler.shape import Shape
from scheduler.speed import Speeds

SIZES: Mapping[int, float] = {2: 0.4, 4: 0.4, 8: 0.2}
"""How often so many linked GPUs are asked for. Assumed: facts on scoring."""


class Worth:
    """Worth of free sets of one shape: how many pods could still get a set as fast as any."""

    def __init__(self, shape: Shape, speeds: Speeds) -> None:
        self._sizes = {size: share for size, share in SIZES.items() if size <= shape.n}
        everything = (1 << shape.n) - 1
        self._ideal = {size: _fastest(speeds, everything, size) for size in self._sizes}
        self.of = cache(self._of)
        self._most = cache(self._most_disjoint)

    def _of(self, free: int) -> float:
        """In GPUs: those of the most ideal sets that fit beside each other, by how often asked."""
        return sum(share * size * self._most(free, size) for size, share in self._sizes.items())

    def _most_disjoint(self, free: int, size: int) -> int:
        """The most ideal sets of a size that share no GPU."""
        if free.bit_count() < size:
            return 0
        first = free & -free
        most = self._most(free & ~first, size)
        for group in self._ideal[size]:
            if group & first and not group & ~free:
                most = max(most, 1 + self._most(free & ~group, size))
        return most


def _fastest(speeds: Speeds, everything: int, size: int) -> tuple[int, ...]:
    """All sets of a size that are as fast as any of the class."""
    groups = tuple(subsets(everything, size))
    best = max(map(speeds.ring, groups))
    return tuple(group for group in groups if speeds.ring(group) == best)
