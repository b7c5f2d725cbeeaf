# SPDX-License-Identifier: Apache-2.0
"""Brings a GPU to its desired layout step by step, each planned from the current layout."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from actuator.mig_world import MigWorld, StepFailed
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, current_layout, has_layout
from mig.mode_permission import NO_RESETS, ModePermission
from mig.planner import MigRefusal, ObstacleKind, plan
from mig.steps import MigStep, SetMode
from mig.users.device_users import UserKind, instance_users

log = logging.getLogger(__name__)

_TRIES: Final = 4
"""Tries of a step that the driver refuses for a cause that may pass."""
_MOST_STEPS: Final = 1000
"""Steps of a change at most; sixteen GPUs with seven instances each need 448."""
_FIRST_PAUSE_SECONDS: Final = 0.5
"""Pause before the second try; it doubles with each further one."""
_LONGEST_PAUSE_SECONDS: Final = 8.0

Perform = Callable[[MigStep], None]
"""Takes a step, as :meth:`MigWorld.perform`."""


def observed_gpu(world: MigWorld, uuid: str) -> MigGpu:
    """A GPU, read now. Raises StepFailed."""
    for gpu in world.observe([uuid]):
        if gpu.uuid == uuid:
            return gpu
    raise StepFailed("the driver lists no such GPU, or it cannot be read")


def empty(world: MigWorld, uuid: str, modes: ModePermission = NO_RESETS) -> None:
    """Destroy the idle instances of a GPU, if the driver can still read it."""
    try:
        gpu = observed_gpu(world, uuid)
        users = world.device_users()
        busy = tuple(
            instance for instance in gpu.instances if instance_users(users, uuid, instance.id)
        )
        _take_steps(world, uuid, current_layout(replace(gpu, instances=busy), exact=True), modes)
    except StepFailed as error:
        log.warning("MIG GPU not emptied", extra={"gpu": uuid, "why": str(error)})


def reach(
    world: MigWorld,
    uuid: str,
    desired: GpuLayout,
    modes: ModePermission = NO_RESETS,
    perform: Perform | None = None,
) -> str | None:
    """Bring a GPU to its desired layout and verify it in a fresh session; None, or why not.

    ``perform`` is called for each step, in place of the world's. Other GPUs are not read: no step
    touches them, and what becomes of them is no reason to roll back a good change.
    """
    try:
        failure = _take_steps(world, uuid, desired, modes, perform)
        if failure is not None:
            return failure
        world.reopen()
        reached = has_layout(observed_gpu(world, uuid), desired)
    except StepFailed as error:
        return str(error)
    return None if reached else "it does not have the layout after all steps"


def _take_steps(
    world: MigWorld,
    uuid: str,
    desired: GpuLayout,
    modes: ModePermission,
    perform: Perform | None = None,
) -> str | None:
    """Plan, take the first step, read again, until no step remains; None, or why it stopped.

    A step that failed counts as done if the state shows its effect. A step without effect is tried
    again a few times if the cause may pass, a reset for longer: programs that watch the GPU come
    and go. Progress is a state that was not seen before, whatever the plans say: steps back to an
    earlier state would go on for ever. Raises StepFailed if the state cannot be read.
    """
    states: list[object] = []
    tries = blocked = 0
    last_step: MigStep | None = None
    failure = StepFailed("no step was taken")
    for _ in range(_MOST_STEPS):
        seen = world.observe([uuid])
        users = world.device_users()
        planned = plan(seen, {uuid: desired}, users, spare_busy=True, modes=modes)
        if isinstance(planned, MigRefusal):
            blocked += 1
            if not (_may_pass(planned, modes) and _waited_for_reset(world, blocked)):
                return _why_refused(planned, failure if last_step else None)
            continue
        if not planned.steps:
            return None
        state = _state(next(gpu for gpu in seen if gpu.uuid == uuid))
        if planned.steps[0] == last_step and not failure.passes:
            return str(failure)  # also if it has done something else, such as to make a mode wait
        if state not in states:
            states.append(state)
            tries = 0
        elif state != states[-1]:
            return (
                "the steps lead back to a layout that was there before; somebody else may be"
                f" changing MIG: {planned.steps[0]} would be next"
            )
        else:
            tries += 1
            if not failure.passes:
                return str(failure)
            if isinstance(planned.steps[0], SetMode) and uuid in modes.begun:
                if not _waited_for_reset(world, tries):
                    return str(failure)
            elif tries == _TRIES:
                return str(failure)
            else:
                world.pause(_pause_seconds(tries))
        last_step = planned.steps[0]
        failure = _taken(last_step, perform or world.perform)
    return f"no end after {_MOST_STEPS} steps"


def _why_refused(refusal: MigRefusal, failure: StepFailed | None) -> str:
    """The refusal's reason, after that of the step that may have made the GPU unreadable."""
    first = refusal.obstacles[0]
    is_gone = failure is not None and first.kind is ObstacleKind.UNKNOWN_GPU
    return f"{failure}; {first.detail}" if is_gone else first.detail


def _may_pass(refusal: MigRefusal, modes: ModePermission) -> bool:
    """Whether the GPU is still being reset, or only programs, which may end, are in the way of it.

    The kernel goes on with a reset whose caller was killed, and the GPU does not answer meanwhile.
    """
    return all(
        obstacle.gpu in modes.begun
        and obstacle.kind in (ObstacleKind.BUSY, ObstacleKind.UNKNOWN_GPU)
        and all(user.kind is UserKind.PROCESS for user in obstacle.users)
        for obstacle in refusal.obstacles
    )


def _waited_for_reset(world: MigWorld, tries: int) -> bool:
    """Wait before a reset is tried again; False, at once, where its time is over.

    Each GPU has the tries of any step, however long others have waited.
    """
    seconds = _pause_seconds(tries)
    if tries >= _TRIES and world.reset_patience_seconds < seconds:
        return False
    world.reset_patience_seconds -= seconds
    world.pause(seconds)
    return True


def _pause_seconds(tries: int) -> float:
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1), _LONGEST_PAUSE_SECONDS)


def _state(gpu: MigGpu) -> object:
    """The state that steps change, without the ids, which the driver chooses."""
    instances = frozenset(
        (
            instance.profile,
            instance.start,
            tuple(sorted((part.start, part.slices) for part in instance.compute)),
        )
        for instance in gpu.instances
    )
    return gpu.mode, instances


def _taken(step: MigStep, perform: Perform) -> StepFailed:
    """Take a step; the error to report if the state does not show its effect afterwards."""
    log.info("MIG step", extra={"step": str(step)})
    try:
        perform(step)
    except StepFailed as error:
        log.warning("MIG step failed", extra={"step": str(step), "why": str(error)})
        return error
    return StepFailed(f"the driver reported success without effect: {step}", passes=True)
