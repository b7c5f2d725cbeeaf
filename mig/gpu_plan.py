# SPDX-License-Identifier: Apache-2.0
"""Ways from one GPU's current layout to its desired layout. Pure and exact.

Safety: a way destroys an instance only if no way that disturbs fewer device users keeps it. The
caller sees the device users of each way, and decides whether anything may be destroyed at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from discovery.mig_state import CurrentCompute, CurrentInstance, MigGpu, MigProfile
from mig.compute_places import ComputePlace, chosen_places, compute_places
from mig.device_users import DeviceUser, DeviceUsers, MigPart
from mig.gpu_layout import DesiredInstance, GpuLayout
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
class Candidate:
    """A way to change a GPU: which instances stay, which go, and the steps."""

    gpu: MigGpu
    kept: tuple[CurrentInstance, ...]
    """Instances that stay; compute instances that they lack are added."""
    destroyed: tuple[CurrentInstance, ...]
    disturbed: frozenset[DeviceUser]
    """Users of the destroyed instances; with a change of mode, all device users of the GPU."""
    after: GpuLayout
    """The layout at the end, each instance at its place."""
    steps: tuple[MigStep, ...]
    """Destroys before creates, and compute instances are destroyed before their GPU instance."""


Rank = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Order of the ways that disturb the same device users: number of destroyed instances, number of
steps, free places (more is better), starts of new instances, ids of kept instances. No two ways of
a GPU have the same rank."""


def gpu_candidates(gpu: MigGpu, desired: GpuLayout, users: DeviceUsers) -> tuple[Candidate, ...]:
    """The best way for each set of device users that must be disturbed, smallest set first.

    A set that contains another set is left out. ``desired`` must fit the empty GPU, and its mode
    must be possible without a reset.
    """
    if gpu.mode is not None and gpu.mode.current != desired.mig:
        return (_with_other_mode(gpu, desired, users),)
    ways = _least_disturbing(_ways(gpu, desired, users))
    if gpu.mode is None or gpu.mode.pending == desired.mig:
        return ways
    # setting the current mode cancels the pending one
    cancelled = SetMode(gpu=gpu.uuid, on=desired.mig)
    return tuple(replace(way, steps=(cancelled, *way.steps)) for way in ways)


def _with_other_mode(gpu: MigGpu, desired: GpuLayout, users: DeviceUsers) -> Candidate:
    """The way that destroys everything, changes the mode, and creates the desired instances."""
    # a change of mode takes the whole GPU, from device users without an instance as well
    everybody = frozenset().union(
        *(part_users for part, part_users in users.items() if part.gpu == gpu.uuid)
    )
    grid = Grid(gpu.profiles)
    starts = grid.best_starts(desired.instances) or ()
    creates = _creates(gpu, grid, desired.instances, starts)
    return Candidate(
        gpu=gpu,
        kept=(),
        destroyed=gpu.instances,
        disturbed=everybody,
        after=GpuLayout(mig=desired.mig, instances=_placed(desired.instances, starts)),
        steps=(*_destroys(gpu, gpu.instances), SetMode(gpu=gpu.uuid, on=desired.mig), *creates),
    )


def _ways(gpu: MigGpu, desired: GpuLayout, users: DeviceUsers) -> Iterator[tuple[Rank, Candidate]]:
    """A way for each set of instances that can be kept together."""
    grid = Grid(gpu.profiles)
    # every set is tried: a GPU has seven instances at most, so that is 128 sets
    for number in range(len(gpu.instances), -1, -1):
        for kept in combinations(gpu.instances, number):
            way = _keeping(grid, gpu, desired, users, kept)
            if way is not None:
                yield way


def _keeping(
    grid: Grid,
    gpu: MigGpu,
    desired: GpuLayout,
    users: DeviceUsers,
    kept: Sequence[CurrentInstance],
) -> tuple[Rank, Candidate] | None:
    """The way that keeps these instances and destroys the others; None if that is impossible."""
    matched = _matched(grid, kept, desired.instances)
    if matched is None:
        return None
    # sorted: the order of the input must not decide between plans of equal worth
    missing = tuple(sorted((Counter(desired.instances) - Counter(matched)).elements()))
    taken = 0
    for instance in kept:
        taken |= mask(instance.start, instance.size)
    starts = grid.best_starts(missing, taken)
    if starts is None:
        return None
    destroyed = tuple(instance for instance in gpu.instances if instance not in kept)
    parts = (users.get(MigPart(gpu.uuid, instance.id), frozenset()) for instance in destroyed)
    for created, start in zip(missing, starts, strict=True):
        taken |= mask(start, grid.size(created))
    way = Candidate(
        gpu=gpu,
        kept=tuple(kept),
        destroyed=destroyed,
        disturbed=frozenset[DeviceUser]().union(*parts),
        after=GpuLayout(
            mig=desired.mig,
            instances=(
                *_placed(matched, [instance.start for instance in kept]),
                *_placed(missing, starts),
            ),
        ),
        steps=(
            *_destroys(gpu, destroyed),
            *_completions(gpu, grid, kept, matched),
            *_creates(gpu, grid, missing, starts),
        ),
    )
    room = tuple(-places for places in grid.free_places(taken))
    return (
        len(destroyed),
        len(way.steps),
        room,
        starts,
        tuple(instance.id for instance in kept),
    ), way


def _placed(
    instances: Sequence[DesiredInstance], starts: Sequence[int]
) -> tuple[DesiredInstance, ...]:
    return tuple(
        replace(instance, start=start) for instance, start in zip(instances, starts, strict=True)
    )


def _matched(
    grid: Grid, kept: Sequence[CurrentInstance], desired: Sequence[DesiredInstance]
) -> tuple[DesiredInstance, ...] | None:
    """The desired instance for each kept one, in their order; None if one of them has no match.

    An exact match is preferred to a match that lacks compute instances, and a desired instance
    with a certain place to one that may be anywhere.
    """
    if not kept:
        return ()
    first, *remaining = kept
    candidates = [
        candidate for candidate in dict.fromkeys(desired) if _can_become(grid, first, candidate)
    ]
    # a candidate may leave a later instance without its match, so the next one is tried then
    for candidate in sorted(
        candidates, key=lambda candidate: (_missing(first, candidate).total(), -candidate.start)
    ):
        unmatched = list(desired)
        unmatched.remove(candidate)
        rest = _matched(grid, remaining, unmatched)
        if rest is not None:
            return (candidate, *rest)
    return None


def _can_become(grid: Grid, instance: CurrentInstance, desired: DesiredInstance) -> bool:
    """Whether adding compute instances in free slices makes the instance the desired one."""
    return (
        instance.profile == desired.profile
        and desired.start in (-1, instance.start)
        and _slices(instance) <= Counter(desired.compute)
        and _has_room(grid, instance, desired)
    )


def _has_room(grid: Grid, instance: CurrentInstance, desired: DesiredInstance) -> bool:
    """Whether the missing compute instances fit next to those that exist."""
    profile, missing = grid.profile(instance.profile), tuple(_missing(instance, desired).elements())
    if profile is None:
        return not missing
    return compute_places(profile, missing, instance.compute) is not None


def _missing(instance: CurrentInstance, desired: DesiredInstance) -> Counter[int]:
    return Counter(desired.compute) - _slices(instance)


def _slices(instance: CurrentInstance) -> Counter[int]:
    return Counter(compute.slices for compute in instance.compute)


def _destroys(gpu: MigGpu, instances: Sequence[CurrentInstance]) -> Iterator[MigStep]:
    for instance in instances:
        # nvmlGpuInstanceDestroy gives NVML_ERROR_IN_USE while there are compute instances (nvml.h)
        for compute in instance.compute:
            yield DestroyCompute(gpu=gpu.uuid, instance=instance.id, compute=compute.id)
        yield DestroyInstance(
            gpu=gpu.uuid, instance=instance.id, profile=instance.profile, start=instance.start
        )


def _completions(
    gpu: MigGpu, grid: Grid, kept: Sequence[CurrentInstance], matched: Sequence[DesiredInstance]
) -> Iterator[MigStep]:
    for instance, desired in zip(kept, matched, strict=True):
        missing = tuple(_missing(instance, desired).elements())
        yield from _compute_creates(
            gpu, grid.profile(instance.profile), instance.start, missing, instance.compute
        )


def _creates(
    gpu: MigGpu, grid: Grid, instances: Sequence[DesiredInstance], starts: Sequence[int]
) -> Iterator[MigStep]:
    """Steps that create instances, the largest first: drivers that choose the places need that."""
    placed = sorted(
        zip(instances, starts, strict=True), key=lambda pair: (-grid.size(pair[0]), pair[1])
    )
    for instance, start in placed:
        size = grid.size(instance)
        yield CreateInstance(gpu=gpu.uuid, profile=instance.profile, start=start, size=size)
        yield from _compute_creates(gpu, grid.profile(instance.profile), start, instance.compute)


def _compute_creates(
    gpu: MigGpu,
    profile: MigProfile | None,
    start: int,
    sizes: Sequence[int],
    present: Sequence[CurrentCompute] = (),
) -> Iterator[MigStep]:
    """Steps for compute instances in the GPU instance at ``start``, from the first slice on.

    The driver chooses the places that it has not named; the order suits a driver that takes the
    first free place.
    """
    places = None if profile is None else compute_places(profile, sizes, present)
    if profile is None or places is None:  # no known place fits: the driver decides
        places = tuple(ComputePlace(first=-1, slices=size) for size in sizes)
    is_chosen = profile is not None and chosen_places(profile, sizes)
    for place in places:
        first = place.first if is_chosen else -1
        yield CreateCompute(gpu=gpu.uuid, start=start, slices=place.slices, first=first)


def _least_disturbing(ways: Iterator[tuple[Rank, Candidate]]) -> tuple[Candidate, ...]:
    """The best way for each minimal set of device users. A way that keeps nothing always exists."""
    best: dict[frozenset[DeviceUser], tuple[Rank, Candidate]] = {}
    for rank, way in ways:
        if way.disturbed not in best or rank < best[way.disturbed][0]:
            best[way.disturbed] = rank, way
    least = [
        (len(disturbed), rank, way)
        for disturbed, (rank, way) in best.items()
        if not any(other < disturbed for other in best)
    ]
    return tuple(way for _, _, way in sorted(least, key=lambda ranked: ranked[:2]))
