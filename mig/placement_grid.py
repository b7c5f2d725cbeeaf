# SPDX-License-Identifier: Apache-2.0
"""Where instances of a profile may be on a GPU, and what is there. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from discovery.mig_state import FoundInstance, MigGpu, MigProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRow:
    """One possible place of a profile."""

    start: int
    size: int
    taken_by: tuple[FoundInstance, ...]
    """What is in its memory units, by start; empty where an instance can be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGrid:
    """The memory units of a GPU, what is in them, and the places of a profile."""

    units: int
    """Units of the GPU, from 0."""
    instances: tuple[FoundInstance, ...]
    """What is there, by start."""
    rows: tuple[PlacementRow, ...]
    """By start."""

    @property
    def room(self) -> int:
        """How many more instances the free places hold side by side; engines may allow fewer."""
        end, found = 0, 0
        for row in self.rows:
            if not row.taken_by and row.start >= end:
                end, found = row.start + row.size, found + 1
        return found


def placement_grid(gpu: MigGpu, profile: MigProfile) -> PlacementGrid:
    """The grid of one profile on one GPU."""
    there = tuple(sorted(gpu.instances, key=lambda one: one.start))
    return PlacementGrid(
        units=memory_units(gpu),
        instances=there,
        rows=tuple(
            PlacementRow(
                start=start,
                size=profile.size,
                taken_by=tuple(one for one in there if _meets(one, start, profile.size)),
            )
            for start in profile.starts
        ),
    )


def memory_units(gpu: MigGpu) -> int:
    """In how many units the GPU's memory is placed: where its largest profile ends."""
    ends = [start + one.size for one in gpu.profiles for start in one.starts]
    return max([*ends, *(one.start + one.size for one in gpu.instances)], default=0)


def _meets(one: FoundInstance, start: int, size: int) -> bool:
    return one.start < start + size and start < one.start + one.size
