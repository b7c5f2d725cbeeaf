# SPDX-License-Identifier: Apache-2.0
"""Ways from what is on one GPU to what is wanted there. Pure and exact.

Safety: a way destroys an instance only if no way that disturbs fewer holders keeps it. Whether
anything may be destroyed at all is decided by the caller, who sees the holders of each way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from discovery.mig_state import FoundCompute, FoundInstance, MigGpu, MigProfile
from mig.compute_places import ComputePlace, chosen_places, compute_places
from mig.gpu_layout import GpuLayout, WantedInstance
from mig.holders import MigHolder, MigHolders, MigPart
from mig.placement import Grid, mask
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWay:
    """One way to change a GPU."""

    gpu: MigGpu
    kept: tuple[FoundInstance, ...]
    """Not touched, but for compute instances that are missing on them."""
    destroyed: tuple[FoundInstance, ...]
    disturbed: frozenset[MigHolder]
    """Of the instances that are destroyed; with a change of mode, of all of the GPU."""
    after: GpuLayout
    """What is there at the end, each instance at its place."""
    steps: tuple[MigStep, ...]
    """Compute instances end before their GPU instance; all ends before anything is made."""


Rank = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""What orders ways that disturb the same: instances destroyed, steps, places that are left (more is
better), starts of what is made, ids of what is kept. No two ways of a GPU are equal in all."""


def gpu_ways(gpu: MigGpu, want: GpuLayout, holders: MigHolders) -> tuple[GpuWay, ...]:
    """The best way for each set of holders that must be disturbed, fewest holders first.

    A set that contains another one's is left out. ``want`` must fit the empty GPU, and its mode
    must be possible without a reset.
    """
    if gpu.mode is not None and gpu.mode.current != want.mig:
        return (_with_other_mode(gpu, want, holders),)
    ways = _least_disturbing(_ways(gpu, want, holders))
    if gpu.mode is None or gpu.mode.pending == want.mig:
        return ways
    cancelled = SetMode(gpu=gpu.uuid, on=want.mig)  # the mode that holds ends the wait for another
    return tuple(replace(way, steps=(cancelled, *way.steps)) for way in ways)


def _with_other_mode(gpu: MigGpu, want: GpuLayout, holders: MigHolders) -> GpuWay:
    """Everything ends, the mode changes, and what is wanted is made."""
    everybody = frozenset().union(
        *(found for part, found in holders.items() if part.gpu == gpu.uuid)
    )
    grid = Grid(gpu.profiles)
    starts = grid.best_starts(want.instances) or ()
    made = _creates(gpu, grid, want.instances, starts)
    return GpuWay(
        gpu=gpu,
        kept=(),
        destroyed=gpu.instances,
        disturbed=everybody,
        after=GpuLayout(mig=want.mig, instances=_placed(want.instances, starts)),
        steps=(*_destroys(gpu, gpu.instances), SetMode(gpu=gpu.uuid, on=want.mig), *made),
    )


def _ways(gpu: MigGpu, want: GpuLayout, holders: MigHolders) -> Iterator[tuple[Rank, GpuWay]]:
    """A way for each set of instances that can be kept together."""
    grid = Grid(gpu.profiles)
    for number in range(len(gpu.instances), -1, -1):
        for kept in combinations(gpu.instances, number):
            way = _keeping(grid, gpu, want, holders, kept)
            if way is not None:
                yield way


def _keeping(
    grid: Grid,
    gpu: MigGpu,
    want: GpuLayout,
    holders: MigHolders,
    kept: Sequence[FoundInstance],
) -> tuple[Rank, GpuWay] | None:
    """The way that keeps these and destroys the others; None where there is none."""
    matched = _matched(grid, kept, want.instances)
    if matched is None:
        return None
    missing = tuple(sorted((Counter(want.instances) - Counter(matched)).elements()))
    taken = 0
    for one in kept:
        taken |= mask(one.start, one.size)
    starts = grid.best_starts(missing, taken)
    if starts is None:
        return None
    destroyed = tuple(one for one in gpu.instances if one not in kept)
    parts = (holders.get(MigPart(gpu.uuid, one.id), frozenset()) for one in destroyed)
    for wish, start in zip(missing, starts, strict=True):
        taken |= mask(start, grid.size(wish))
    way = GpuWay(
        gpu=gpu,
        kept=tuple(kept),
        destroyed=destroyed,
        disturbed=frozenset[MigHolder]().union(*parts),
        after=GpuLayout(
            mig=want.mig,
            instances=(
                *_placed(matched, [one.start for one in kept]),
                *_placed(missing, starts),
            ),
        ),
        steps=(
            *_destroys(gpu, destroyed),
            *_completions(gpu, grid, kept, matched),
            *_creates(gpu, grid, missing, starts),
        ),
    )
    room = tuple(-places for places in grid.left(taken))
    return (len(destroyed), len(way.steps), room, starts, tuple(one.id for one in kept)), way


def _placed(wanted: Sequence[WantedInstance], starts: Sequence[int]) -> tuple[WantedInstance, ...]:
    return tuple(replace(one, start=at) for one, at in zip(wanted, starts, strict=True))


def _matched(
    grid: Grid, kept: Sequence[FoundInstance], wanted: Sequence[WantedInstance]
) -> tuple[WantedInstance, ...] | None:
    """What each kept instance is to be, in their order; None where one of them is not wanted.

    One that is exactly as wanted comes before one whose compute instances are missing, and a wish
    for a certain place before a wish for any.
    """
    if not kept:
        return ()
    first, *others = kept
    wishes = [wish for wish in dict.fromkeys(wanted) if _can_become(grid, first, wish)]
    for wish in sorted(wishes, key=lambda wish: (_missing(first, wish).total(), -wish.start)):
        left = list(wanted)
        left.remove(wish)
        rest = _matched(grid, others, left)
        if rest is not None:
            return (wish, *rest)
    return None


def _can_become(grid: Grid, found: FoundInstance, wish: WantedInstance) -> bool:
    """By making compute instances alone, in the slices that those which are there leave."""
    return (
        found.profile == wish.profile
        and wish.start in (-1, found.start)
        and _slices(found) <= Counter(wish.compute)
        and _has_room(grid, found, wish)
    )


def _has_room(grid: Grid, found: FoundInstance, wish: WantedInstance) -> bool:
    """For the compute instances that are missing, next to those that are there."""
    profile, missing = grid.profile(found.profile), tuple(_missing(found, wish).elements())
    if profile is None:
        return not missing
    return compute_places(profile, missing, found.compute) is not None


def _missing(found: FoundInstance, wish: WantedInstance) -> Counter[int]:
    return Counter(wish.compute) - _slices(found)


def _slices(found: FoundInstance) -> Counter[int]:
    return Counter(one.slices for one in found.compute)


def _destroys(gpu: MigGpu, instances: Sequence[FoundInstance]) -> Iterator[MigStep]:
    for one in instances:
        for compute in one.compute:
            yield DestroyCompute(gpu=gpu.uuid, instance=one.id, compute=compute.id)
        yield DestroyInstance(gpu=gpu.uuid, instance=one.id, profile=one.profile, start=one.start)


def _completions(
    gpu: MigGpu, grid: Grid, kept: Sequence[FoundInstance], matched: Sequence[WantedInstance]
) -> Iterator[MigStep]:
    for one, wish in zip(kept, matched, strict=True):
        missing = tuple(_missing(one, wish).elements())
        yield from _compute_creates(gpu, grid.profile(one.profile), one.start, missing, one.compute)


def _creates(
    gpu: MigGpu, grid: Grid, wanted: Sequence[WantedInstance], starts: Sequence[int]
) -> Iterator[MigStep]:
    """The largest first: the order in which a driver that must choose places itself succeeds."""
    placed = sorted(zip(wanted, starts, strict=True), key=lambda one: (-grid.size(one[0]), one[1]))
    for wish, start in placed:
        size = grid.size(wish)
        yield CreateInstance(gpu=gpu.uuid, profile=wish.profile, start=start, size=size)
        yield from _compute_creates(gpu, grid.profile(wish.profile), start, wish.compute)


def _compute_creates(
    gpu: MigGpu,
    profile: MigProfile | None,
    start: int,
    sizes: Sequence[int],
    present: Sequence[FoundCompute] = (),
) -> Iterator[MigStep]:
    """Compute instances of the GPU instance at ``start``, from the first slice on.

    Places that the driver has not named are left to it, in an order that suits one that takes the
    first free place.
    """
    places = None if profile is None else compute_places(profile, sizes, present)
    if profile is None or places is None:  # nothing is known that fits: the driver has the word
        places = tuple(ComputePlace(first=-1, slices=size) for size in sizes)
    is_chosen = profile is not None and chosen_places(profile, sizes)
    for place in places:
        first = place.first if is_chosen else -1
        yield CreateCompute(gpu=gpu.uuid, start=start, slices=place.slices, first=first)


def _least_disturbing(ways: Iterator[tuple[Rank, GpuWay]]) -> tuple[GpuWay, ...]:
    """The best way of each least set of holders. To keep nothing is always a way."""
    best: dict[frozenset[MigHolder], tuple[Rank, GpuWay]] = {}
    for rank, way in ways:
        if way.disturbed not in best or rank < best[way.disturbed][0]:
            best[way.disturbed] = rank, way
    least = [
        (len(disturbed), rank, way)
        for disturbed, (rank, way) in best.items()
        if not any(other < disturbed for other in best)
    ]
    return tuple(way for _, _, way in sorted(least, key=lambda one: one[:2]))
