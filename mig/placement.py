# SPDX-License-Identifier: Apache-2.0
"""Where GPU instances fit on one GPU, and what stands in the way where they do not. Pure and exact.

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
from mig.gpu_layout import WantedInstance

Starts = tuple[int, ...]
"""First units of instances, in the order in which the instances were asked for."""


_KEPT: Final = 4096
"""Answers that are kept: GPUs of a node are mostly equal, and a search asks again and again."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A limit that a set of instances is past."""

    limit: Limit
    detail: str
    """In words, with the figures."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The places of one GPU model, as its profiles give them. Equal for equal GPUs."""

    profiles: tuple[MigProfile, ...]
    _by_name: dict[str, MigProfile] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Index the profiles by name."""
        object.__setattr__(self, "_by_name", {one.name: one for one in self.profiles})

    @property
    def units(self) -> int:
        """Memory units of the GPU."""
        return max((one.starts[-1] + one.size for one in self.profiles if one.starts), default=0)

    def profile(self, name: str) -> MigProfile | None:
        """The profile of this name."""
        return self._by_name.get(name)

    def size(self, one: WantedInstance) -> int:
        """Memory units of an instance. Raises KeyError for an unknown profile."""
        return self._by_name[one.profile].size

    def starts(self, one: WantedInstance) -> Starts:
        """Where an instance may be, free or not. Raises KeyError for an unknown profile."""
        return self._by_name[one.profile].starts if one.start < 0 else (one.start,)

    def most(self, profile: MigProfile) -> int:
        """How many instances of a profile an empty GPU takes.

        Never more than have disjoint places: a driver may report too many for an A30.
        Source: mig-parted's generated configurations, which correct that GPU by hand.
        """
        return min(profile.most, _disjoint(profile.starts, profile.size))

    def misfit(self, wanted: Sequence[WantedInstance]) -> Misfit | None:
        """Why the instances do not fit an empty GPU; None where they do."""
        return (
            self._unknown(wanted)
            or self._too_many(wanted)
            or self._engines_short(wanted)
            or self._no_room(wanted)
        )

    def best_starts(self, wanted: Sequence[WantedInstance], taken: int = 0) -> Starts | None:
        """Places beside ``taken``, a mask of units; None where there are none.

        Of several, those that leave the most for other instances, the largest profiles first; of
        these, the lowest starts. Only places are looked at, not the other limits.
        """
        return _best_starts(self, tuple(wanted), taken)

    def nearest(self, wanted: Sequence[WantedInstance]) -> tuple[WantedInstance, ...]:
        """The largest part of ``wanted`` that fits: the most memory, then the most instances."""
        known = Counter(one for one in wanted if self._unknown([one]) is None)
        return max(
            self._fitting_parts(sorted(known.items())),
            key=lambda part: (self._units_of(part), len(part)),
        )

    def left(self, taken: int) -> tuple[int, ...]:
        """How many places each profile still has, the largest profile first."""
        return _left(self, taken)

    def _fitting_parts(
        self, kinds: Sequence[tuple[WantedInstance, int]], begun: tuple[WantedInstance, ...] = ()
    ) -> Iterator[tuple[WantedInstance, ...]]:
        """Every part of a multiset that fits, each once. A part of what fits, fits."""
        yield begun
        for at, (one, count) in enumerate(kinds):
            for number in range(1, count + 1):
                grown = (*begun, *(one,) * number)
                if self.misfit(grown) is not None:
                    break
                yield from self._fitting_parts(kinds[at + 1 :], grown)

    def _units_of(self, instances: Sequence[WantedInstance]) -> int:
        return sum(self.size(one) for one in instances)

    def _unknown(self, wanted: Sequence[WantedInstance]) -> Misfit | None:
        for one in wanted:
            found = self.profile(one.profile)
            if found is None:
                names = ", ".join(sorted(self._by_name))
                return _misfit(Limit.PROFILE, f"no profile {one.profile}; the GPU has {names}")
            if one.start >= 0 and one.start not in found.starts:
                starts = ", ".join(map(str, found.starts))
                detail = f"no {one.profile} starts at unit {one.start}; it may start at {starts}"
                return _misfit(Limit.PROFILE, detail)
            if sum(one.compute) > found.slices:
                detail = (
                    f"{sum(one.compute)} compute slices on a {one.profile}, which has"
                    f" {found.slices}"
                )
                return _misfit(Limit.PROFILE, detail)
            if found.compute and compute_places(found, one.compute) is None:
                asked = " and ".join(f"{slices}c" for slices in one.compute)
                sizes = ", ".join(dict.fromkeys(f"{each.slices}c" for each in found.compute))
                detail = f"no places for {asked} in one {one.profile}; it may have {sizes}"
                return _misfit(Limit.PROFILE, detail)
        return None

    def _too_many(self, wanted: Sequence[WantedInstance]) -> Misfit | None:
        for name, count in sorted(Counter(one.profile for one in wanted).items()):
            most = self.most(self._by_name[name])
            if count > most:
                return _misfit(Limit.COUNT, f"{count} of {name}, of which the GPU allows {most}")
        return None

    def _engines_short(self, wanted: Sequence[WantedInstance]) -> Misfit | None:
        """Engines are budgeted by what full use of any one profile takes.

        NVML has no total. Of +me and its like that is exact; where a driver reports the same few
        for each profile, the limit of each profile counts alone.
        """
        for kind, (budget, asked) in self._engines(wanted).items():
            if asked > budget:
                return _misfit(
                    Limit.ENGINES, f"{asked} {kind} engines, of which there are {budget}"
                )
        return None

    def _engines(self, wanted: Sequence[WantedInstance]) -> dict[str, tuple[int, int]]:
        """Kind to how many there are, and how many are asked for."""
        asked = [astuple(self._by_name[one.profile].engines) for one in wanted]
        there = [
            tuple(engines * self.most(one) for engines in astuple(one.engines))
            for one in self.profiles
        ]
        kinds = ("decoder", "encoder", "JPEG", "OFA")
        return {
            kind: (max((one[at] for one in there), default=0), sum(one[at] for one in asked))
            for at, kind in enumerate(kinds)
        }

    def _no_room(self, wanted: Sequence[WantedInstance]) -> Misfit | None:
        if next(_ways(self, tuple(wanted), 0), None) is not None:
            return None
        asked = self._units_of(wanted)
        if asked > self.units:
            return _misfit(Limit.ROOM, f"{asked} memory units, of which the GPU has {self.units}")
        names = ", ".join(f"{n} of {name}" for name, n in _counts(wanted))
        return _misfit(Limit.ROOM, f"no disjoint places for {names}: each has few starts")


def mask(start: int, size: int) -> int:
    """The memory units of an instance as bits; bit 0 is unit 0."""
    return ((1 << size) - 1) << start


def _misfit(limit: Limit, detail: str) -> Misfit:
    return Misfit(limit=limit, detail=detail)


def _counts(wanted: Sequence[WantedInstance]) -> list[tuple[str, int]]:
    return sorted(Counter(one.profile for one in wanted).items())


def _disjoint(starts: Starts, size: int) -> int:
    """How many instances of one profile have disjoint places: greedily from the lowest."""
    count, end = 0, 0
    for start in sorted(starts):
        if start >= end:
            count, end = count + 1, start + size
    return count


@lru_cache(maxsize=_KEPT)
def _left(grid: Grid, taken: int) -> tuple[int, ...]:
    by_size = sorted(grid.profiles, key=lambda one: (-one.size, -one.slices, one.number))
    return tuple(
        sum(1 for start in one.starts if not mask(start, one.size) & taken) for one in by_size
    )


@lru_cache(maxsize=_KEPT)
def _best_starts(grid: Grid, wanted: tuple[WantedInstance, ...], taken: int) -> Starts | None:
    ways = _ways(grid, wanted, taken)
    best = max(
        ways, key=lambda way: (grid.left(way[1]), tuple(-start for start in way[0])), default=None
    )
    return None if best is None else best[0]


def _ways(
    grid: Grid, wanted: tuple[WantedInstance, ...], taken: int
) -> Iterator[tuple[Starts, int]]:
    """Every set of disjoint places, in the order of ``wanted``, with the units taken then.

    Instances with few places are placed first. Of equal ones the first has the lowest start, so
    that no set comes twice.
    """
    order = sorted(
        range(len(wanted)),
        key=lambda at: (len(grid.starts(wanted[at])), -grid.size(wanted[at]), wanted[at]),
    )
    chosen: list[int] = [-1] * len(wanted)

    def place(step: int, taken: int) -> Iterator[tuple[Starts, int]]:
        if step == len(order):
            yield tuple(chosen), taken
            return
        at = order[step]
        one = wanted[at]
        before = order[step - 1] if step else at
        above = chosen[before] if before != at and wanted[before] == one else -1
        for start in grid.starts(one):
            units = mask(start, grid.size(one))
            if start > above and not units & taken:
                chosen[at] = start
                yield from place(step + 1, taken | units)

    return place(0, taken)
