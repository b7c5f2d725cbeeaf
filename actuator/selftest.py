# SPDX-License-Identifier: Apache-2.0
"""Tries layouts on one idle GPU, and restores the previous layout.

The journal has a change in the direction back from the first moment on, so however the process ends
in the middle, the next one restores the previous layout. As in every change, nothing that has a
device user is destroyed. A layout that fails does not end the test, a device user does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from actuator.change import ChangeResult, begin, drive, refused, result_of
from actuator.change_record import Direction
from actuator.journal import Journal
from actuator.layout_steps import observed_gpu, reach
from actuator.mig_world import MigWorld, StepFailed
from actuator.restore import take_in_order
from actuator.verified_layouts import VerifiedLayout
from api.mig_outcome import Outcome
from discovery.mig_state import CurrentInstance, MigGpu, MigProfile
from mig.gpu_layout import GpuLayout, current_layout
from mig.planner import MigRefusal, Obstacle, ObstacleKind, plan
from mig.steps import CreateInstance, DestroyInstance, MigStep
from mig.trial_layouts import EMPTY, trial_layouts, trial_title
from mig.users.device_users import DeviceUsers, users_on_gpu

log = logging.getLogger(__name__)

ASKED: Final = "a self-test"
"""Origin of the change in the history."""
_PLACED: Final = (CreateInstance, DestroyInstance)
_STOPPED: Final = "a self-test was stopped in the middle"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedStep:
    """A step of the self-test: its duration and failure."""

    kind: str
    """Name of the step's class in :mod:`mig.steps`."""
    profile: str = ""
    """Profile of the GPU instance that the step creates or destroys; else empty."""
    seconds: float
    failure: str = ""
    """The driver's error; empty if the step succeeded."""


class TriedLayout(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A layout that was tried, with its result."""

    name: str
    desired: GpuLayout
    seconds: float
    """Duration with all readings in between, and the one in a new session at the end."""
    steps: tuple[TriedStep, ...]
    kept: int
    """Number of GPU instances of the layout before that were to stay, and did."""
    failure: str = ""
    """Why the layout was not reached; empty if it was."""


class OfferedNow(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The profiles that the driver reports with MIG on."""

    profiles: tuple[MigProfile, ...]


SelftestEvent = TriedLayout | OfferedNow


@dataclass(frozen=True, slots=True)
class SelftestEdge:
    """Callbacks and clock of a self-test."""

    report: Callable[[SelftestEvent], None]
    is_over: Callable[[], bool]
    """Whether no further layout is to be tried."""
    clock: Callable[[], float]
    """Monotonic clock, in seconds."""


def selftest(world: MigWorld, journal: Journal, uuid: str, edge: SelftestEdge) -> ChangeResult:
    """Try all layouts on a GPU; each result is reported as it comes.

    The result's outcome is PREVIOUS with an empty reason where all layouts were tried, and with the
    reason where the test ended early; HELD where the way back failed; None where it was refused:
    a device user of the GPU or of a part of it, a mode that takes a reset. Raises JournalUnusable
    where a change is open or none can be kept, and StepFailed where the GPU cannot be read: nothing
    was done then.
    """
    journal.need_no_change([uuid])
    before = observed_gpu(world, uuid)
    refusal = _refusal(before, world.device_users())
    if refusal is not None:
        return refused(refusal)
    image = VerifiedLayout.from_gpu(before, world.driver_load())
    # BACK from the start: a process that dies in the test leaves nothing but the way back
    (record,) = begin(
        world,
        journal,
        [before],
        {uuid: current_layout(before, exact=True)},
        origin=ASKED,
        direction=Direction.BACK,
        reason=_STOPPED,
    )
    why_early = _try_all(world, uuid, edge)
    _put_back(world, before, image)
    record = drive(world, journal, replace(record, reason=why_early))
    result = replace(result_of([record]), reason=record.reason, gpus=())
    if result.outcome is not Outcome.ROLLED_BACK:
        return result
    return replace(result, problems=_lost_devices(world, uuid, image))


def _try_all(world: MigWorld, uuid: str, edge: SelftestEdge) -> str:
    """Try layout after layout; why the test ended early, empty if it did not."""
    try:
        _try_layout(world, uuid, EMPTY, edge)
        gpu = observed_gpu(world, uuid)
        edge.report(OfferedNow(profiles=gpu.profiles))
        for layout in trial_layouts(gpu):
            if edge.is_over():
                return "no further layout was to be tried"
            # before each layout: a pod may have come, and its instance must not be destroyed
            if held := users_on_gpu(world.device_users(), uuid):
                return f"somebody took the GPU: {', '.join(map(str, sorted(held)))}"
            _try_layout(world, uuid, layout, edge)
    except StepFailed as error:
        return str(error)
    return "" if gpu.profiles else "the driver reports no profiles, also with MIG on"


def _try_layout(world: MigWorld, uuid: str, layout: GpuLayout, edge: SelftestEdge) -> None:
    """Try a layout and report the result. Raises StepFailed if the GPU cannot be read."""
    title = trial_title(layout)
    log.info("MIG self-test layout", extra={"layout": title})
    steps: list[TriedStep] = []
    perform = partial(_timed_step, world, edge.clock, steps)
    began = edge.clock()
    seen = [observed_gpu(world, uuid)]
    planned = plan(seen, {uuid: layout}, world.device_users(), spare_busy=True)
    kept: Sequence[CurrentInstance] = ()
    if isinstance(planned, MigRefusal):
        failure = planned.obstacles[0].detail
    else:
        kept = [stays.instance for gpu in planned.gpus for stays in gpu.kept]
        why = reach(world, uuid, layout, perform=perform)
        failure = why or _defect(observed_gpu(world, uuid), kept)
    if failure:
        log.warning("MIG self-test layout failed", extra={"layout": title, "why": failure})
    tried = TriedLayout(
        name=title,
        desired=layout,
        seconds=edge.clock() - began,
        steps=tuple(steps),
        kept=0 if failure else len(kept),
        failure=failure,
    )
    edge.report(tried)


def _timed_step(
    world: MigWorld, clock: Callable[[], float], steps: list[TriedStep], step: MigStep
) -> None:
    """Take a step, and add its duration and failure to ``steps``. Raises StepFailed."""
    began, failure = clock(), ""
    try:
        world.perform(step)
    except StepFailed as error:
        failure = str(error)
        raise
    finally:
        steps.append(
            TriedStep(
                kind=type(step).__name__,
                profile=step.profile if isinstance(step, _PLACED) else "",
                seconds=clock() - began,
                failure=failure,
            )
        )


def _defect(gpu: MigGpu, kept: Sequence[CurrentInstance]) -> str:
    """What is wrong with a GPU that has its layout; empty if nothing is."""
    replaced = [instance for instance in kept if instance not in gpu.instances]
    if replaced:
        names = ", ".join(f"{instance.profile} at unit {instance.start}" for instance in replaced)
        return f"these were to stay, and are others now: {names}"
    unnamed = sum(compute.uuid is None for _, compute in gpu.devices())
    return f"{unnamed} compute instances have no MIG device" if unnamed else ""


def _put_back(world: MigWorld, before: MigGpu, image: VerifiedLayout) -> None:
    """Create the previous instances in the order of their ids, so that they get their old UUIDs.

    The planner does what fails here; it does not preserve ids.
    """
    if not before.instances:
        return
    try:
        if reach(world, before.uuid, EMPTY) is None:
            take_in_order(world, observed_gpu(world, before.uuid), image)
    except StepFailed as error:
        log.warning("MIG step failed", extra={"step": "in the old order", "why": str(error)})


def _lost_devices(world: MigWorld, uuid: str, image: VerifiedLayout) -> tuple[str, ...]:
    """MIG devices that did not come back, as a sentence."""
    try:
        gone = image.gone(observed_gpu(world, uuid))
    except StepFailed as error:
        return (f"whether all MIG devices are there again is not known: {error}",)
    if not gone:
        return ()
    log.warning("MIG devices gone", extra={"gpu": uuid, "devices": ", ".join(gone)})
    return (
        f"the layout is there again, but these MIG devices are gone: {', '.join(gone)};"
        " delete the pods that use them",
    )


def _refusal(gpu: MigGpu, users: DeviceUsers) -> MigRefusal | None:
    """Why a GPU cannot be tested; None if it can."""
    if held := users_on_gpu(users, gpu.uuid):
        detail = f"the GPU is in use: {', '.join(map(str, sorted(held)))}"
        busy = Obstacle(kind=ObstacleKind.BUSY, gpu=gpu.uuid, detail=detail, users=held)
        return MigRefusal(obstacles=(busy,))
    planned = plan([gpu], {gpu.uuid: EMPTY}, users, spare_busy=True)
    return planned if isinstance(planned, MigRefusal) else None
