# SPDX-License-Identifier: Apache-2.0
"""Places of GPU instances on one GPU, and the limit that a set of them exceeds. Pure and exact.

A GPU's memory is a row of units; a profile takes some of them, at certain starts. A set of
instances fits when each profile's own limit holds, the engines suffice, and there are disjoint
places. Source: MIG user guide, "Device partitioning"; the figures are each GPU's own, from NVML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from discovery.mig_state import MigProfile
from mig.compute_places import compute_places
from mig.gpu_layout import DesiredInstance

Starts = tuple[int, ...]
"""First memory units of instances, in the order of the instances in the call."""


_KEPT: Final = 4096
"""Cached results: GPUs of a node are mostly equal, and a search repeats its questions."""


class Limit(StrEnum):
    """Why a set of instances does not fit an empty GPU."""

    PROFILE = "profile"
    """The GPU has no such profile, or the profile has no such start."""
    COUNT = "count"
    """More instances of a profile than the GPU allows."""
    ENGINES = "engines"
    """More decoders, encoders, JPEG or OFA engines than there are."""
    ROOM = "room"
    """No disjoint places."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A limit that a set of instances exceeds."""

    limit: Limit
    detail: str
    """The reason in words, with the figures."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The places of one GPU model, as its profiles give them. Equal for equal GPUs."""

    profiles: tuple[MigProfile, ...]
    _by_name: dict[str, MigProfile] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Index the profiles by name."""
        object.__setattr__(self, "_by_name", {profile.name: profile for profile in self.profiles})

    @property
    def units(self) -> int:
        """Memory units of the GPU."""
        return max(
            (profile.starts[-1] + profile.size for profile in self.profiles if profile.starts),
            default=0,
        )

    def profile(self, name: str) -> MigProfile | None:
        """The profile of this name."""
        return self._by_name.get(name)

    def profile_of(self, instance: DesiredInstance) -> MigProfile:
        """The profile of an instance. Raises KeyError for an unknown one."""
        return self._by_name[instance.profile]

    def size(self, instance: DesiredInstance) -> int:
        """Memory units of an instance. Raises KeyError for an unknown profile."""
        return self.profile_of(instance).size

    def starts(self, instance: DesiredInstance) -> Starts:
        """Units where an instance may start, free or not. Raises KeyError for an unknown one."""
        return self._by_name[instance.profile].starts if instance.start < 0 else (instance.start,)

    def max_count(self, profile: MigProfile) -> int:
        """How many instances of a profile fit on an empty GPU.

        Never more than there are disjoint places: a driver may report too many for an A30.
        Source: mig-parted's generated configurations, which correct that GPU by hand.
        """
        return min(profile.max_instances, _disjoint(profile.starts, profile.size))

    def misfit(self, instances: Sequence[DesiredInstance]) -> Misfit | None:
        """Why the instances do not fit an empty GPU; None where they do."""
        return (
            self._unknown(instances)
            or self._too_many(instances)
            or self._engines_short(instances)
            or self._no_room(instances)
        )

    def best_starts(self, instances: Sequence[DesiredInstance], taken: int = 0) -> Starts | None:
        """Starts that avoid ``taken``, a mask of units; None if there are none.

        Of several, the ones that leave the most places for other instances, the largest profiles
        first; then the lowest starts. Only places are checked, not the other limits.
        """
        return _best_starts(self, tuple(instances), taken)

    def nearest(self, instances: Sequence[DesiredInstance]) -> tuple[DesiredInstance, ...]:
        """The largest subset that fits: the most memory, then the most instances."""
        known = Counter(instance for instance in instances if self._unknown([instance]) is None)
        return max(
            self._fitting_parts(sorted(known.items())),
            key=lambda part: (self._units_of(part), len(part)),
        )

    def free_places(self, taken: int) -> tuple[int, ...]:
        """Free places of each profile, the largest profile first; ``taken``: mask of units."""
        return _free_places(self, taken)

    def _fitting_parts(
        self, kinds: Sequence[tuple[DesiredInstance, int]], begun: tuple[DesiredInstance, ...] = ()
    ) -> Iterator[tuple[DesiredInstance, ...]]:
        """Every subset of a multiset that fits, each once. A subset of what fits, fits."""
        yield begun
        for index, (instance, count) in enumerate(kinds):
            for number in range(1, count + 1):
                grown = (*begun, *(instance,) * number)
                if self.misfit(grown) is not None:
                    break  # a larger set does not fit either
                yield from self._fitting_parts(kinds[index + 1 :], grown)

    def _units_of(self, instances: Sequence[DesiredInstance]) -> int:
        return sum(self.size(instance) for instance in instances)

    def _unknown(self, instances: Sequence[DesiredInstance]) -> Misfit | None:
        details = (self._unknown_part(instance) for instance in instances)
        detail = next(filter(None, details), None)
        return None if detail is None else Misfit(Limit.PROFILE, detail)

    def _unknown_part(self, instance: DesiredInstance) -> str | None:
        """What the GPU does not have of the instance's profile."""
        profile = self.profile(instance.profile)
        if profile is None:
            return f"no profile {instance.profile}; the GPU has {', '.join(sorted(self._by_name))}"
        if instance.start >= 0 and instance.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            return f"no {profile.name} starts at unit {instance.start}; it may start at {starts}"
        slices = sum(instance.compute)
        if slices > profile.slices:
            return f"{slices} compute slices on a {profile.name}, which has {profile.slices}"
        # some drivers report no compute profiles: then the driver has the last word
        if profile.compute and compute_places(profile, instance.compute) is None:
            requested = " and ".join(f"{slices}c" for slices in instance.compute)
            sizes = ", ".join(dict.fromkeys(f"{compute.slices}c" for compute in profile.compute))
            return f"no places for {requested} in one {profile.name}; it may have {sizes}"
        return None

    def _too_many(self, instances: Sequence[DesiredInstance]) -> Misfit | None:
        for name, count in _counts(instances):
            limit = self.max_count(self._by_name[name])
            if count > limit:
                return Misfit(Limit.COUNT, f"{count} of {name}, of which the GPU allows {limit}")
        return None

    def _engines_short(self, instances: Sequence[DesiredInstance]) -> Misfit | None:
        """Engines are budgeted by what full use of any one profile takes.

        NVML has no total. For profiles such as +me the budget is exact; if a driver reports the
        same few engines for each profile, only the limit of each profile counts.
        """
        available = [
            [count * self.max_count(profile) for count in astuple(profile.engines)]
            for profile in self.profiles
        ]
        used = [astuple(self.profile_of(instance).engines) for instance in instances]
        kinds = ("decoder", "encoder", "JPEG", "OFA")
        needs, budgets = zip(*used, strict=True), zip(*available, strict=True)
        for kind, needed, full in zip(kinds, needs, budgets, strict=False):  # none without a need
            if sum(needed) > max(full):
                detail = f"{sum(needed)} {kind} engines, of which there are {max(full)}"
                return Misfit(Limit.ENGINES, detail)
        return None

    def _no_room(self, instances: Sequence[DesiredInstance]) -> Misfit | None:
        # one way is enough here; to rank all of them is the work of best_starts
        if next(_ways(self, tuple(instances), 0), None) is not None:
            return None
        needed = self._units_of(instances)
        if needed > self.units:
            return Misfit(Limit.ROOM, f"{needed} memory units, of which the GPU has {self.units}")
        names = ", ".join(f"{count} of {name}" for name, count in _counts(instances))
        return Misfit(Limit.ROOM, f"no disjoint places for {names}: each has few starts")


def mask(start: int, size: int) -> int:
    """The memory units of an instance as bits; bit 0 is unit 0."""
    return ((1 << size) - 1) << start


def _counts(instances: Sequence[DesiredInstance]) -> list[tuple[str, int]]:
    return sorted(Counter(instance.profile for instance in instances).items())


def _disjoint(starts: Starts, size: int) -> int:
    """How many instances of one profile have disjoint places: greedily from the lowest."""
    count, end = 0, 0
    for start in sorted(starts):
        if start >= end:
            count, end = count + 1, start + size
    return count


@lru_cache(maxsize=_KEPT)
def _free_places(grid: Grid, taken: int) -> tuple[int, ...]:
    by_size = sorted(
        grid.profiles, key=lambda profile: (-profile.size, -profile.slices, profile.number)
    )
    return tuple(
        sum(1 for start in profile.starts if not mask(start, profile.size) & taken)
        for profile in by_size
    )


@lru_cache(maxsize=_KEPT)
def _best_starts(grid: Grid, instances: tuple[DesiredInstance, ...], taken: int) -> Starts | None:
    def worth(way: tuple[Starts, int]) -> tuple[tuple[int, ...], Starts]:
        return grid.free_places(way[1]), tuple(-start for start in way[0])

    best = max(_ways(grid, instances, taken), key=worth, default=None)
    return None if best is None else best[0]


def _ways(
    grid: Grid, instances: tuple[DesiredInstance, ...], taken: int
) -> Iterator[tuple[Starts, int]]:
    """Every set of disjoint starts, in the order of ``instances``, with the units taken then.

    Instances with few places are placed first. Of equal instances the first has the lowest start,
    so that no set comes twice.
    """
    order = sorted(
        range(len(instances)),
        key=lambda index: (
            len(grid.starts(instances[index])),
            -grid.size(instances[index]),
            instances[index],
        ),
    )
    chosen: list[int] = [-1] * len(instances)

    def place(step: int, taken: int) -> Iterator[tuple[Starts, int]]:
        if step == len(order):
            yield tuple(chosen), taken
            return
        index = order[step]
        instance = instances[index]
        before = order[step - 1] if step else index
        above = chosen[before] if before != index and instances[before] == instance else -1
        for start in grid.starts(instance):
            units = mask(start, grid.size(instance))
            if start > above and not units & taken:
                chosen[index] = start
                yield from place(step + 1, taken | units)

    return place(0, taken)
