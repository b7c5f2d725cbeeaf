"""What free GPUs are worth to the pods that come next."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import comb

from scheduler.scores.masks import members
from scheduler.scores.shape import Shape
from scheduler.scores.speed import Speeds

SIZES: Mapping[int, int] = {2: 4, 4: 4, 8: 2}
"""Of ten requests, how many are for so many linked GPUs. Assumed: facts on scoring."""


class Worth:
    """Worth of free sets of one shape; keeps what it found."""

    def __init__(self, shape: Shape, speeds: Speeds) -> None:
        self._sizes = {
            size: share for size, share in SIZES.items() if _matters(shape.n, size, speeds)
        }
        self._ideal = {size: _by_first(shape.n, speeds.fastest(size)) for size in self._sizes}
        self.linked = cache(self._linked)
        self.spare = cache(self._spare)
        self._most = cache(self._most_disjoint)

    def of(self, free: int) -> Fraction:
        """In tenths of a GPU, to pods with several GPUs and to those with one.

        A GPU that a pod can have to itself without loss to others counts as one tenth: enough
        to decide where linked sets are left alike. In simulations that is worth one ideal set
        in a hundred on bridged pairs at a load of 0.95.
        """
        return self.linked(free) + self.spare(free)

    def _linked(self, free: int) -> int:
        """In tenths of a GPU: how many pods could still get a set as fast as any.

        The GPUs of the most ideal sets that fit beside each other, by how often asked for.
        """
        return sum(share * size * self._most(free, size) for size, share in self._sizes.items())

    def _spare(self, free: int) -> Fraction:
        """How many single GPUs can go before linked sets do: the mean, for any one may go next."""
        rests = [free & ~(1 << place) for place in members(free)]
        kept = [1 + self.spare(rest) for rest in rests if self.linked(rest) == self.linked(free)]
        return sum(kept, Fraction()) / max(1, len(rests))

    def _most_disjoint(self, free: int, size: int) -> int:
        """The most ideal sets of a size that share no GPU."""
        bound = free.bit_count() // size
        if not bound:
            return 0
        first = free & -free
        most = 0
        for group in self._ideal[size][first.bit_length() - 1]:
            if not group & ~free:
                most = max(most, 1 + self._most(free & ~group, size))
                if most == bound:
                    return most
        return max(most, self._most(free & ~first, size))


def _matters(n: int, size: int, speeds: Speeds) -> bool:
    """Whether it is of weight to these requests which GPUs are left: not if all sets are alike."""
    return size == n or (size < n and len(speeds.fastest(size)) < comb(n, size))


def _by_first(n: int, groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """For each GPU the sets of which it is the first."""
    return tuple(
        tuple(group for group in groups if members(group)[0] == place) for place in range(n)
    )
