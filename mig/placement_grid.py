# SPDX-License-Identifier: Apache-2.0
"""Places of a profile on a GPU, and the instances that occupy them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from discovery.mig_state import CurrentInstance, MigGpu, MigProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRow:
    """A possible place of a profile, and what occupies it."""

    start: int
    size: int
    taken_by: tuple[int, ...]
    """Ids of the instances in its memory units, by start; empty if one can be created there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGrid:
    """The memory units of a GPU, what is in them, and the places of a profile."""

    units: int
    """Units of the GPU, from 0."""
    instances: tuple[CurrentInstance, ...]
    """The current instances, by start."""
    rows: tuple[PlacementRow, ...]
    """Places of the profile, by start."""

    @property
    def room(self) -> int:
        """How many more instances fit in the free places together; engines may allow fewer."""
        end, count = 0, 0
        for row in self.rows:
            if not row.taken_by and row.start >= end:
                end, count = row.start + row.size, count + 1
        return count


def placement_grid(gpu: MigGpu, profile: MigProfile) -> PlacementGrid:
    """The grid of one profile on one GPU."""
    instances = tuple(sorted(gpu.instances, key=lambda instance: instance.start))
    return PlacementGrid(
        units=memory_units(gpu),
        instances=instances,
        rows=tuple(
            PlacementRow(
                start=start,
                size=profile.size,
                taken_by=tuple(
                    instance.id for instance in instances if _meets(instance, start, profile.size)
                ),
            )
            for start in profile.starts
        ),
    )


def memory_units(gpu: MigGpu) -> int:
    """Memory units of the GPU: the end of its last place or instance."""
    ends = [start + profile.size for profile in gpu.profiles for start in profile.starts]
    return max([*ends, *(instance.start + instance.size for instance in gpu.instances)], default=0)


def _meets(instance: CurrentInstance, start: int, size: int) -> bool:
    return instance.start < start + size and start < instance.start + instance.size
