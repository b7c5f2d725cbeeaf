# SPDX-License-Identifier: Apache-2.0
"""What free GPUs are worth to the pods that come next."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from scheduler.scores.masks import members, subsets
from scheduler.scores.shape import Shape
from scheduler.scores.speed import SetSpeeds
from scheduler.scores.workspace import Workspace

SIZES: Mapping[int, int] = {2: 3, 4: 3, 8: 4}
"""Of ten requests, how many are for so many linked GPUs.

Assumed: about the middle of the mixes that scheduler.simulation.workload has.
"""
_WHOLE = SIZES[8]
"""The same for all GPUs of a node of another size."""
COMES_FREE = Fraction(1, 4)
"""Odds that a GPU in use is free in time for a pod to come. Assumed: in simulations pods wait no
longer for odds from a quarter to a third."""


class Worth:
    """Worth of free GPUs for later pods, on one shape; keeps what it computed in the workspace."""

    def __init__(self, shape: Shape, speeds: SetSpeeds, workspace: Workspace | None = None) -> None:
        self._workspace = workspace = workspace or Workspace()
        self._n = shape.n
        self._sizes = {
            size: share
            for size, share in SIZES.items()
            if size < shape.n and not speeds.are_alike(size)  # else what is left is of no weight
        }
        self._ideal = {size: _by_first(shape.n, speeds.fastest(size)) for size in self._sizes}
        self.of = workspace.cache(self._of, entry_bytes=300)
        self.most = workspace.cache(self._most_of)
        self._parts = workspace.cache(self._of_parts)
        self._most = workspace.cache(self._most_disjoint)

    def linked(self, free: int) -> int:
        """In tenths of a GPU: how many pods could get a set as fast as any at once.

        The GPUs of the most ideal sets that fit at the same time, by how often a size is used.
        """
        is_whole = free.bit_count() == self._n
        return self._parts(free) + (SIZES.get(self._n, 0) * self._n if is_whole else 0)

    def _most_of(self, count: int) -> int:
        """The most that ``linked`` is of any so many GPUs."""
        return max(map(self.linked, subsets((1 << self._n) - 1, count)))

    def _of(self, free: int) -> Fraction:
        """In tenths of a GPU: what ``linked`` is expected to be when the next pods come.

        So a node counts as whole the more the fewer GPUs are missing, and what is broken anyway
        counts less than what may be mended. A whole node is wanted whatever its size.
        """
        used = (1 << self._n) - 1 & ~free
        whole = SIZES.get(self._n, _WHOLE) * self._n * COMES_FREE ** used.bit_count()
        if not self._sizes:
            return whole
        self._workspace.spend(1 << used.bit_count())
        return whole + sum(
            COMES_FREE**count
            * (1 - COMES_FREE) ** (used.bit_count() - count)
            * sum(self._parts(free | back) for back in subsets(used, count))
            for count in range(used.bit_count() + 1)
        )

    def _of_parts(self, free: int) -> int:
        """The same as ``linked`` without the set of all GPUs."""
        return sum(share * size * self._most(free, size) for size, share in self._sizes.items())

    def _most_disjoint(self, free: int, size: int) -> int:
        """The most ideal sets of a size that share no GPU."""
        bound = free.bit_count() // size
        if not bound:
            return 0
        first = free & -free
        most = 0
        self._workspace.spend(1 + len(self._ideal[size][first.bit_length() - 1]) // 16)
        for group in self._ideal[size][first.bit_length() - 1]:
            if not group & ~free:
                most = max(most, 1 + self._most(free & ~group, size))
                if most == bound:
                    return most
        return max(most, self._most(free & ~first, size))


def _by_first(n: int, groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """For each GPU the sets of which it is the first."""
    return tuple(
        tuple(group for group in groups if members(group)[0] == place) for place in range(n)
    )
