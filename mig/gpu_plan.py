# SPDX-License-Identifier: Apache-2.0
"""The plan of one GPU: the chosen way with its steps. Pure.

Destroys come before creates, and compute instances are destroyed before their GPU instance. What
is kept is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from discovery.mig_state import CurrentCompute, CurrentInstance, MigGpu, MigProfile
from mig.compute_places import ComputePlace, chosen_places, compute_places
from mig.gpu_layout import GpuLayout
from mig.gpu_ways import KeptInstance, Way
from mig.placement import Grid
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)
from mig.users.device_users import DeviceUser, DeviceUsers, instance_users


class InstanceAction(StrEnum):
    """What the plan does with an instance."""

    KEEP = "keep"
    DESTROY = "destroy"
    CREATE = "create"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceChange:
    """A GPU instance that the plan keeps, destroys or creates."""

    action: InstanceAction
    id: int | None
    """Id of the instance; None for a new one: the driver chooses it."""
    profile: str
    start: int
    """First memory unit."""
    size: int
    compute: tuple[int, ...]
    """Slices of its compute instances, the largest first; of a kept instance those at the end."""
    added: tuple[int, ...] = ()
    """Slices of the compute instances that the plan adds to a kept instance."""
    removed: tuple[int, ...] = ()
    """Slices of the compute instances that the plan destroys in a kept instance."""
    users: tuple[DeviceUser, ...] = ()
    """Current device users of the instance and of its compute instances, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """The change of one GPU: what stays, what goes, and the steps."""

    gpu: MigGpu
    kept: tuple[KeptInstance, ...]
    destroyed: tuple[CurrentInstance, ...]
    """GPU instances that go, with all their compute instances."""
    instances: tuple[InstanceChange, ...]
    """Instances by start; at the same start a destroyed one comes before a created one."""
    disturbed: frozenset[DeviceUser]
    """Users of what is destroyed; with a change of mode, all device users of the GPU."""
    after: GpuLayout
    """The layout at the end, each instance at its place; where ``assumed`` it is the desired one,
    since the driver may have other places."""
    assumed: bool
    """Whether the profiles are those of the table of known models: the driver reports them once MIG
    is on."""
    steps: tuple[MigStep, ...]

    @property
    def sets_mode(self) -> bool:
        """Whether a step sets the mode, be it to cancel a pending one."""
        return any(isinstance(step, SetMode) for step in self.steps)

    @property
    def resets(self) -> bool:
        """Whether the driver resets the GPU for its new mode: all that is on it ends."""
        mode = self.gpu.mode
        return mode is not None and not self.gpu.resetless and mode.current != self.after.mig


def gpu_plan(
    gpu: MigGpu, desired: GpuLayout, way: Way, users: DeviceUsers, *, assumed: bool
) -> GpuPlan:
    """The plan of a GPU by one of its ways to the desired layout."""
    grid = Grid(gpu.profiles)
    mode, set_mode = gpu.mode, (SetMode(gpu=gpu.uuid, on=desired.mig),)
    switches = mode is not None and mode.current != desired.mig
    # with the mode that holds, the step ends the wait for another one
    cancels = mode is not None and not switches and mode.pending != desired.mig
    return GpuPlan(
        gpu=gpu,
        kept=way.kept,
        destroyed=way.destroyed,
        instances=_instance_changes(gpu, grid, way, users),
        disturbed=way.disturbed,
        after=desired if assumed else GpuLayout(mig=desired.mig, instances=way.after),
        assumed=assumed,
        steps=(
            *(set_mode if cancels else ()),
            *_destroys(gpu, way),
            *(set_mode if switches else ()),
            *_creates(gpu, grid, way),
        ),
    )


def _instance_changes(
    gpu: MigGpu, grid: Grid, way: Way, users: DeviceUsers
) -> tuple[InstanceChange, ...]:
    """The instances by start; at the same start a destroyed one comes before a created one."""
    kept = (
        replace(
            _present(gpu, stays.instance, InstanceAction.KEEP, users),
            compute=stays.desired.compute,
            added=stays.missing,
            removed=_slices(stays.destroyed),
        )
        for stays in way.kept
    )
    destroyed = (_present(gpu, gone, InstanceAction.DESTROY, users) for gone in way.destroyed)
    created = (
        InstanceChange(
            action=InstanceAction.CREATE,
            id=None,
            profile=instance.profile,
            start=instance.start,
            size=grid.size(instance),
            compute=instance.compute,
        )
        for instance in way.created
    )
    # sorting is stable
    return tuple(sorted((*kept, *destroyed, *created), key=lambda change: change.start))


def _present(
    gpu: MigGpu, instance: CurrentInstance, action: InstanceAction, users: DeviceUsers
) -> InstanceChange:
    return InstanceChange(
        action=action,
        id=instance.id,
        profile=instance.profile,
        start=instance.start,
        size=instance.size,
        compute=_slices(instance.compute),
        users=tuple(sorted(instance_users(users, gpu.uuid, instance.id))),
    )


def _slices(compute: Iterable[CurrentCompute]) -> tuple[int, ...]:
    return tuple(sorted((part.slices for part in compute), reverse=True))


def _destroys(gpu: MigGpu, way: Way) -> Iterator[MigStep]:
    for stays in way.kept:
        for compute in stays.destroyed:
            yield DestroyCompute(gpu=gpu.uuid, instance=stays.instance.id, compute=compute.id)
    for instance in way.destroyed:
        # nvmlGpuInstanceDestroy gives NVML_ERROR_IN_USE while there are compute instances (nvml.h)
        for compute in instance.compute:
            yield DestroyCompute(gpu=gpu.uuid, instance=instance.id, compute=compute.id)
        yield DestroyInstance(
            gpu=gpu.uuid, instance=instance.id, profile=instance.profile, start=instance.start
        )


def _creates(gpu: MigGpu, grid: Grid, way: Way) -> Iterator[MigStep]:
    """Steps that complete kept instances, then those that create instances.

    The largest comes first: drivers that choose the places need that.
    """
    for stays in way.kept:
        profile, start = grid.profile_of(stays.desired), stays.instance.start
        yield from _compute_creates(gpu, profile, start, stays.missing, stays.compute)
    for instance in sorted(way.created, key=lambda new: (-grid.size(new), new.start)):
        profile, start = grid.profile_of(instance), instance.start
        yield CreateInstance(gpu=gpu.uuid, profile=profile.name, start=start, size=profile.size)
        yield from _compute_creates(gpu, profile, start, instance.compute)


def _compute_creates(
    gpu: MigGpu,
    profile: MigProfile,
    start: int,
    sizes: Sequence[int],
    present: Sequence[CurrentCompute] = (),
) -> Iterator[MigStep]:
    """Steps for compute instances in the GPU instance at ``start``, from the first slice on.

    The driver chooses the places that it has not named; the order suits a driver that takes the
    first free place.
    """
    places = compute_places(profile, sizes, present)
    if places is None:  # no known place fits: the driver decides
        places = tuple(ComputePlace(first=-1, slices=size) for size in sizes)
    is_chosen = chosen_places(profile, sizes)
    for place in places:
        first = place.first if is_chosen else -1
        yield CreateCompute(gpu=gpu.uuid, start=start, slices=place.slices, first=first)
