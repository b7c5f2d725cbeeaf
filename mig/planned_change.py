# SPDX-License-Identifier: Apache-2.0
"""What a plan means for each GPU and each instance, as people compare it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from discovery.mig_state import FoundInstance, MigGpu
from discovery.model import Mode
from mig.holders import MigHolder, MigHolders, MigPart
from mig.planner import MigPlan
from mig.steps import CreateCompute, CreateInstance, MigStep, SetMode


class Fate(StrEnum):
    """What happens to an instance."""

    KEEP = "keep"
    DESTROY = "destroy"
    CREATE = "create"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceChange:
    """One GPU instance before or after the plan."""

    fate: Fate
    id: int | None
    """None for a new one: the driver chooses."""
    profile: str
    start: int
    """First memory unit."""
    size: int
    compute: tuple[int, ...]
    """Slices of its compute instances, the largest first: those that it has, or will have."""
    added: tuple[int, ...] = ()
    """Slices of those among them that a kept instance gets."""
    holders: tuple[MigHolder, ...] = ()
    """Who is on it now, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChange:
    """One GPU for which a layout is wanted."""

    index: int
    uuid: str
    model: str
    mode: Mode | None
    """Of now; None: the GPU has no MIG."""
    mode_after: bool
    sets_mode: bool
    """The mode is set, be it to end the wait for another one."""
    instances: tuple[InstanceChange, ...]
    """By start; at one start those that go before those that come."""
    steps: int


def planned_changes(
    gpus: Sequence[MigGpu], asked: Collection[str], plan: MigPlan, holders: MigHolders
) -> tuple[GpuChange, ...]:
    """The GPUs that a layout is wanted for, in bus order; ``asked``: their UUIDs."""
    return tuple(_change(gpu, plan, holders) for gpu in gpus if gpu.uuid in asked)


def _change(gpu: MigGpu, plan: MigPlan, holders: MigHolders) -> GpuChange:
    steps = [step for step in plan.steps if step.gpu == gpu.uuid]
    modes = [step.on for step in steps if isinstance(step, SetMode)]
    now = gpu.mode is not None and gpu.mode.current
    instances = (
        *_present(gpu, plan.kept, Fate.KEEP, steps, holders),
        *_present(gpu, plan.destroyed, Fate.DESTROY, (), holders),
        *_created(steps),
    )
    return GpuChange(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        mode=gpu.mode,
        mode_after=modes[-1] if modes else now,
        sets_mode=bool(modes),
        instances=tuple(sorted(instances, key=lambda one: (one.start, one.fate is Fate.CREATE))),
        steps=len(steps),
    )


def _present(
    gpu: MigGpu,
    found: Sequence[tuple[str, FoundInstance]],
    fate: Fate,
    steps: Sequence[MigStep],
    holders: MigHolders,
) -> Iterator[InstanceChange]:
    for uuid, one in found:
        if uuid == gpu.uuid:
            added = _made(steps, one.start)
            yield InstanceChange(
                fate=fate,
                id=one.id,
                profile=one.profile,
                start=one.start,
                size=one.size,
                compute=_sorted([*(each.slices for each in one.compute), *added]),
                added=added,
                holders=tuple(sorted(holders.get(MigPart(uuid, one.id), ()))),
            )


def _created(steps: Sequence[MigStep]) -> Iterator[InstanceChange]:
    for step in steps:
        if isinstance(step, CreateInstance):
            yield InstanceChange(
                fate=Fate.CREATE,
                id=None,
                profile=step.profile,
                start=step.start,
                size=step.size,
                compute=_made(steps, step.start),
            )


def _made(steps: Sequence[MigStep], start: int) -> tuple[int, ...]:
    """Compute instances that come to be in the GPU instance at a place, the largest first."""
    return _sorted(
        [one.slices for one in steps if isinstance(one, CreateCompute) and one.start == start]
    )


def _sorted(slices: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(slices, reverse=True))
