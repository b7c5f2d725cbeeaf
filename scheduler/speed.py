"""How fast the GPUs of a set talk to each other."""

from __future__ import annotations

from functools import cache

from scheduler.masks import members, pairs
from scheduler.shape import Shape


class Speeds:
    """Speeds of sets of one shape; keeps what it found."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.ring = cache(self._ring)

    def _ring(self, group: int) -> float:
        """GB/s of the slowest link in the best ring through the set; 0 for one GPU alone.

        Collective operations run in rings, and a ring is as fast as its slowest link.
        """
        gbps = self._shape.gbps
        speeds = sorted({gbps[i][j] for i, j in pairs(group)}, reverse=True)
        return next((speed for speed in speeds if self._has_ring(group, speed)), 0.0)

    def _has_ring(self, group: int, least: float) -> bool:
        """Whether links of at least this speed lead through all of the set and back."""
        gbps = self._shape.gbps
        start, *others = members(group)

        def closes(last: int, left: int) -> bool:
            if not left:
                return gbps[last][start] >= least
            return any(
                gbps[last][each] >= least and closes(each, left & ~(1 << each))
                for each in members(left)
            )

        return closes(start, group & ~(1 << start)) if others else False
