# SPDX-License-Identifier: Apache-2.0
"""How fast the GPUs of a set talk to each other."""

from __future__ import annotations

from functools import cache

from scheduler.scores.masks import members, pairs, subsets
from scheduler.scores.shape import Matrix, Shape


class SetSpeeds:
    """Speeds of sets of GPUs of one shape; caches what it computed."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.ring = cache(self._ring)
        self.fastest = cache(self._fastest)

    def _ring(self, group: int) -> int:
        """GB/s of the slowest link in the best ring through the set; 0 for one GPU alone.

        Collective operations run in rings, and a ring is as fast as its slowest link.
        """
        gbps = self._shape.gbps
        speeds = sorted({gbps[i][j] for i, j in pairs(group)}, reverse=True)
        return next((speed for speed in speeds if has_ring(gbps, group, speed)), 0)

    def _fastest(self, size: int) -> tuple[int, ...]:
        """All sets of a size that are as fast as any of the shape."""
        groups = tuple(subsets((1 << self._shape.n) - 1, size))
        best = max(map(self.ring, groups), default=0)
        return tuple(group for group in groups if self.ring(group) == best)

    def ideal(self, size: int) -> int:
        """GB/s of the fastest set of a size; 0 where the shape has none."""
        return self.ring(self.fastest(size)[0]) if 1 < size <= self._shape.n else 0


def has_ring(links: Matrix, group: int, least: int) -> bool:
    """Whether links of at least this weight lead through all of the set and back."""
    start, *others = members(group)

    def closes(last: int, left: int) -> bool:
        if not left:
            return links[last][start] >= least
        return any(
            links[last][each] >= least and closes(each, left & ~(1 << each))
            for each in members(left)
        )

    return closes(start, group & ~(1 << start)) if others else False
