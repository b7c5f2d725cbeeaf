# SPDX-License-Identifier: Apache-2.0
"""Effect of a plan on each GPU and each instance, to show to people. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from discovery.mig_state import CurrentInstance, MigGpu
from discovery.model import Mode
from mig.planner import MigPlan
from mig.steps import CreateCompute, CreateInstance, MigStep, SetMode
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
class GpuChange:
    """Effect of the plan on a GPU that has a desired layout."""

    index: int
    uuid: str
    model: str
    mode: Mode | None
    """Current mode; None: the GPU has no MIG."""
    mode_after: bool
    sets_mode: bool
    """Whether a step sets the mode, be it to cancel a pending one."""
    resets: bool = False
    """Whether the driver resets the GPU for its new mode: all that is on it ends."""
    instances: tuple[InstanceChange, ...]
    """Instances by start; at the same start a destroyed one comes before a created one."""
    steps: int


def planned_changes(
    gpus: Sequence[MigGpu], uuids: Collection[str], plan: MigPlan, users: DeviceUsers
) -> tuple[GpuChange, ...]:
    """The plan's effect on the GPUs that have a desired layout, in bus order; ``uuids``: theirs."""
    return tuple(_change(gpu, plan, users) for gpu in gpus if gpu.uuid in uuids)


def _change(gpu: MigGpu, plan: MigPlan, users: DeviceUsers) -> GpuChange:
    steps = [step for step in plan.steps if step.gpu == gpu.uuid]
    modes = [step.on for step in steps if isinstance(step, SetMode)]
    now = gpu.mode is not None and gpu.mode.current
    instances = (
        *_kept(gpu, plan, steps, users),
        *_destroyed(gpu, plan, users),
        *_created(steps),
    )
    return GpuChange(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        mode=gpu.mode,
        mode_after=modes[-1] if modes else now,
        sets_mode=bool(modes),
        resets=bool(modes) and modes[-1] != now and not gpu.resetless,
        instances=tuple(
            sorted(
                instances, key=lambda change: (change.start, change.action is InstanceAction.CREATE)
            )
        ),
        steps=len(steps),
    )


def _kept(
    gpu: MigGpu, plan: MigPlan, steps: Sequence[MigStep], users: DeviceUsers
) -> Iterator[InstanceChange]:
    lost = [
        (instance.id, compute)
        for uuid, instance, compute in plan.destroyed_compute
        if uuid == gpu.uuid
    ]
    for uuid, instance in plan.kept:
        if uuid == gpu.uuid:
            removed = [compute for number, compute in lost if number == instance.id]
            stays = [compute for compute in instance.compute if compute not in removed]
            added = _made(steps, instance.start)
            yield replace(
                _present(gpu, instance, InstanceAction.KEEP, users),
                compute=_sorted([*(compute.slices for compute in stays), *added]),
                added=added,
                removed=_sorted([compute.slices for compute in removed]),
            )


def _destroyed(gpu: MigGpu, plan: MigPlan, users: DeviceUsers) -> Iterator[InstanceChange]:
    for uuid, instance in plan.destroyed:
        if uuid == gpu.uuid:
            yield _present(gpu, instance, InstanceAction.DESTROY, users)


def _present(
    gpu: MigGpu, instance: CurrentInstance, action: InstanceAction, users: DeviceUsers
) -> InstanceChange:
    """A GPU instance with all its compute instances."""
    return InstanceChange(
        action=action,
        id=instance.id,
        profile=instance.profile,
        start=instance.start,
        size=instance.size,
        compute=_sorted([compute.slices for compute in instance.compute]),
        users=tuple(sorted(instance_users(users, gpu.uuid, instance.id))),
    )


def _created(steps: Sequence[MigStep]) -> Iterator[InstanceChange]:
    for step in steps:
        if isinstance(step, CreateInstance):
            yield InstanceChange(
                action=InstanceAction.CREATE,
                id=None,
                profile=step.profile,
                start=step.start,
                size=step.size,
                compute=_made(steps, step.start),
            )


def _made(steps: Sequence[MigStep], start: int) -> tuple[int, ...]:
    """Slices of compute instances created in the GPU instance at ``start``, the largest first."""
    return _sorted(
        [step.slices for step in steps if isinstance(step, CreateCompute) and step.start == start]
    )


def _sorted(slices: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(slices, reverse=True))
