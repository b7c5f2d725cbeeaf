# SPDX-License-Identifier: Apache-2.0
"""Worth of free GPUs to the pods that come next."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from placement.masks import members, subsets
from placement.shape import Shape
from placement.speed import SetSpeeds
from placement.workspace import Workspace

SIZES: Mapping[int, int] = {2: 3, 4: 3, 8: 4}
"""Number of linked GPUs to how many of ten requests ask for it.

Assumed: about the middle of the mixes that scheduler.simulation.workload has.
"""
_WHOLE = SIZES[8]
"""How many of ten requests ask for all GPUs of a node of another size."""
COMES_FREE = Fraction(1, 4)
"""Odds that a GPU in use is free in time for a pod to come. Assumed: in simulations pods wait no
longer for odds from a quarter to a third."""


class Worth:
    """Worth of free GPUs for later pods, on one shape; keeps what it computed in the workspace."""

    def __init__(self, shape: Shape, speeds: SetSpeeds, workspace: Workspace | None = None) -> None:
        self._workspace = workspace = workspace or Workspace()
        self._n = shape.n
        fastest = {size: speeds.fastest(size) for size in SIZES if size < shape.n}
        self._ideal = {size: _by_first(shape.n, sets) for size, sets in fastest.items() if sets}
        """Size to its fastest sets; without sizes whose sets are all alike, so that what is left is
        of no weight."""
        self.expected_linked = workspace.cache(self._expected_linked, entry_bytes=300)
        self.most_linked = workspace.cache(self._most_linked)
        self._parts = workspace.cache(self._linked_parts)
        self._most = workspace.cache(self._most_disjoint)

    def linked(self, free: int) -> int:
        """Worth of free GPUs to pods that need a set as fast as any, in tenths of a GPU.

        The GPUs of the most ideal sets that fit at the same time, by how often a size is used.
        """
        is_whole = free.bit_count() == self._n
        return self._parts(free) + (SIZES.get(self._n, 0) * self._n if is_whole else 0)

    def _most_linked(self, count: int) -> int:
        """The highest ``linked`` of any ``count`` GPUs."""
        return max(map(self.linked, subsets((1 << self._n) - 1, count)))

    def _expected_linked(self, free: int) -> Fraction:
        """Expected ``linked`` when the next pods come, in tenths of a GPU.

        So a node counts as whole the more the fewer GPUs are missing, and what is broken anyway
        counts less than what may be mended. A whole node is wanted whatever its size.
        """
        used = (1 << self._n) - 1 & ~free
        whole = SIZES.get(self._n, _WHOLE) * self._n * COMES_FREE ** used.bit_count()
        if not self._ideal:
            return whole
        self._workspace.spend(1 << used.bit_count())
        return whole + sum(
            COMES_FREE**count
            * (1 - COMES_FREE) ** (used.bit_count() - count)
            * sum(self._parts(free | back) for back in subsets(used, count))
            for count in range(used.bit_count() + 1)
        )

    def _linked_parts(self, free: int) -> int:
        """Part of ``linked`` that sets of fewer GPUs than the whole node make up."""
        return sum(SIZES[size] * size * self._most(free, size) for size in self._ideal)

    def _most_disjoint(self, free: int, size: int) -> int:
        """The most ideal sets of a size that share no GPU."""
        bound = free.bit_count() // size
        if not bound:
            return 0
        # sets with the lowest GPU, then all without it: so no choice of sets is tried twice
        first = free & -free
        most_sets = 0
        self._workspace.spend(1 + len(self._ideal[size][first.bit_length() - 1]) // 16)
        for group in self._ideal[size][first.bit_length() - 1]:
            if not group & ~free:
                most_sets = max(most_sets, 1 + self._most(free & ~group, size))
                if most_sets == bound:
                    return most_sets
        return max(most_sets, self._most(free & ~first, size))


def _by_first(n: int, groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Sets by their first GPU: a tuple for each of the ``n`` GPUs."""
    return tuple(
        tuple(group for group in groups if members(group)[0] == place) for place in range(n)
    )
