# SPDX-License-Identifier: Apache-2.0
"""The best set of free GPUs for a request: one answer, the same for whoever computes it."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from placement.masks import members, subsets, union
from placement.shape import Shape
from placement.speed import SetSpeeds
from placement.workspace import Workspace
from placement.worth import Worth


class ExactChoice:
    """The best sets of one shape; keeps what it computed in the workspace."""

    def __init__(self, shape: Shape, workspace: Workspace | None = None) -> None:
        self._shape = shape
        self._workspace = workspace = workspace or Workspace()
        self._speeds = SetSpeeds(shape, workspace)

    def best(self, available: int, size: int, required: int = 0) -> int:
        """Set of ``size`` available GPUs that has all required ones and is best.

        The best set is the fastest one (:meth:`SetSpeeds.speed`). Of equally fast sets it is the
        one that leaves most to later pods (:meth:`Worth.expected_linked`), then the one of the
        lowest mask. A GPU alone has no speed: the one of the fewest GB/s to the other available
        GPUs is best. Raises ValueError where no set fits the request, and TooMuchWork where the
        caller counts steps (:meth:`Workspace.counted`).
        """
        missing = size - required.bit_count()
        if required & ~available or not 0 <= missing <= (available & ~required).bit_count():
            raise ValueError(f"no {size} of {available:x} with {required:x}")
        if self._speeds.are_gpus_alike:
            return required | union(members(available & ~required)[:missing])
        groups = [required | more for more in subsets(available & ~required, missing)]
        self._workspace.spend(len(groups))
        if size == 1:
            ranked = [(-self._linked_gbps(group, available), group) for group in groups]
        else:
            ranked = [(self._speeds.speed(group), group) for group in groups]
        first = max(rank for rank, _ in ranked)
        fastest = [group for rank, group in ranked if rank == first]
        if len(fastest) == 1:
            return fastest[0]
        return max(fastest, key=lambda group: (self._left(available & ~group), -group))

    @cached_property
    def _worth(self) -> Worth:
        return Worth(self._shape, self._speeds, self._workspace)  # it takes long for many GPUs

    def _left(self, rest: int) -> Fraction:
        return self._worth.expected_linked(rest)

    def _linked_gbps(self, gpu: int, available: int) -> int:
        """GB/s between a GPU and all other available ones together."""
        row = self._shape.gbps[gpu.bit_length() - 1]
        return sum(row[other] for other in members(available))
