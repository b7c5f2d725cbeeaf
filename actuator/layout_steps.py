# SPDX-License-Identifier: Apache-2.0
"""Brings GPUs to MIG layouts, one planned step at a time, each planned from what is there then."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from actuator.mig_world import MigWorld, StepFailed
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, found_layout, has_layout
from mig.holders import MigHolders, MigPart
from mig.planner import MigRefusal, plan
from mig.steps import MigStep

log = logging.getLogger(__name__)

_TRIES: Final = 4
"""Of a step that the driver refuses for a cause that may pass."""
_MOST_STEPS: Final = 1000
"""Sixteen GPUs with seven instances each need 448 at most."""
_FIRST_PAUSE_SECONDS: Final = 0.5
"""Doubled with each further try."""


def empty(world: MigWorld, gpus: Iterable[str]) -> None:
    """Destroy what is idle on GPUs that the driver still answers for, each by itself."""
    for uuid in gpus:
        try:
            found = next((one for one in world.observe([uuid]) if one.uuid == uuid), None)
            if found is not None:
                _take_steps(world, {uuid: _busy_part(found, world.holders())})
        except StepFailed as error:
            log.warning("MIG GPU not emptied", extra={"gpu": uuid, "why": str(error)})


def _busy_part(gpu: MigGpu, holders: MigHolders) -> GpuLayout:
    """The instances of a GPU that have a holder, where they are."""
    busy = tuple(one for one in gpu.instances if holders.get(MigPart(gpu.uuid, one.id)))
    return found_layout(replace(gpu, instances=busy), exact=True)


def reach(world: MigWorld, wanted: Mapping[str, GpuLayout]) -> str | None:
    """Bring the GPUs there and see it in a fresh session; None, or why not.

    Other GPUs are not looked at: no step touches them, and what somebody else does to them
    meanwhile, or that one of them does not answer, is no reason to take back a right change.
    """
    try:
        failure = _take_steps(world, wanted)
        if failure is not None:
            return failure
        world.reopen()
        seen = {gpu.uuid: gpu for gpu in world.observe(wanted.keys())}
    except StepFailed as error:
        return str(error)
    for uuid, layout in wanted.items():
        if uuid not in seen or not has_layout(seen[uuid], layout):
            return f"GPU {uuid} does not have the layout after all steps"
    return None


def reach_each(world: MigWorld, wanted: Mapping[str, GpuLayout]) -> dict[str, str]:
    """Bring each GPU there by itself; by UUID why one is not, empty where all are."""
    failures: dict[str, str] = {}
    for uuid, layout in wanted.items():
        try:
            failure = _take_steps(world, {uuid: layout})
        except StepFailed as error:
            failure = str(error)
        if failure is not None:
            failures[uuid] = failure
    reached = {uuid: layout for uuid, layout in wanted.items() if uuid not in failures}
    if not reached:
        return failures
    try:
        world.reopen()
        seen = {gpu.uuid: gpu for gpu in world.observe(reached.keys())}
    except StepFailed as error:
        return failures | dict.fromkeys(reached, str(error))
    for uuid, layout in reached.items():
        if uuid not in seen or not has_layout(seen[uuid], layout):
            failures[uuid] = "it does not have the layout after all steps"
    return failures


def _take_steps(world: MigWorld, wanted: Mapping[str, GpuLayout]) -> str | None:
    """Plan, take the first step, look again, until no step is left; None, or why it stopped.

    A step that failed counts as done where the state shows it. One that brings nothing is tried
    again a few times if the cause may pass. Progress is a state that was not there before,
    whatever the plans say: steps that lead back to an earlier one would go on for ever. Raises
    StepFailed where the state cannot be read.
    """
    states: list[_State] = []
    tries = 0
    failure = StepFailed("no step was taken")
    for _ in range(_MOST_STEPS):
        seen = world.observe(wanted.keys())
        found = plan(seen, wanted, world.holders(), spare_busy=True)
        if isinstance(found, MigRefusal):
            return found.obstacles[0].detail
        if not found.steps:
            return None
        state = _state(seen)
        if state not in states:
            states.append(state)
            tries = 0
        elif state != states[-1]:
            return (
                "the steps lead back to a layout that was there before; somebody else may be"
                f" changing MIG: {found.steps[0]} would be next"
            )
        else:
            tries += 1
            if tries == _TRIES or not failure.passes:
                return str(failure)
            world.pause(_FIRST_PAUSE_SECONDS * 2 ** (tries - 1))
        failure = _perform(world, found.steps[0])
    return f"no end after {_MOST_STEPS} steps"


_State = tuple[object, ...]


def _state(gpus: Iterable[MigGpu]) -> _State:
    """What steps change, without the ids, which the driver chooses."""
    return tuple(
        (
            gpu.uuid,
            gpu.mode,
            tuple(
                (one.profile, one.start, tuple(sorted((c.start, c.slices) for c in one.compute)))
                for one in sorted(gpu.instances, key=lambda one: one.start)
            ),
        )
        for gpu in gpus
    )


def _perform(world: MigWorld, step: MigStep) -> StepFailed:
    """Do a step; what to report if the state does not show it afterwards."""
    log.info("MIG step", extra={"step": str(step)})
    try:
        world.perform(step)
    except StepFailed as error:
        log.warning("MIG step failed", extra={"step": str(step), "why": str(error)})
        return error
    return StepFailed(f"the driver reported success without effect: {step}", passes=True)
