# SPDX-License-Identifier: Apache-2.0
"""What a change of GPUs begins with, and what is desired of them. Values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

Place = tuple[int, int]
"""First slice and slices of a compute instance."""
Desired = Mapping[int, Counter[str] | None]
"""Index of a GPU to its devices, by the names of mig-parted's format; None: MIG off.

GPUs that are not in it are nobody's concern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStart:
    """A GPU instance that is there."""

    profile: str
    start: int
    compute: tuple[Place, ...]
    """In the order of their ids."""
    busy: frozenset[int] = frozenset()
    """Which of its compute instances have a program, by their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStart:
    """A GPU as a change finds it."""

    mig: bool = True
    instances: tuple[InstanceStart, ...] = ()
    busy: bool = False
    """Whether a program has the whole GPU; with MIG off."""

    @property
    def programs(self) -> int:
        """Programs on it."""
        return self.busy + sum(len(instance.busy) for instance in self.instances)
