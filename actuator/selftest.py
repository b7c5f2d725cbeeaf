# SPDX-License-Identifier: Apache-2.0
"""Tries layouts on one idle GPU, and leaves the layout from before.

The journal has a change that goes back from its first moment on, so whatever ends the process in
the middle, the next one brings the layout from before; and as of every change, nothing that has a
holder is destroyed. A layout that fails does not end the test, a holder does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from actuator.change import ChangeResult, begin, drive
from actuator.change_record import ChangeOutcome, Direction
from actuator.journal import Journal
from actuator.layout_steps import reach
from actuator.mig_world import MigWorld, StepFailed
from actuator.restore import take_in_order
from actuator.verified_layouts import VerifiedLayout
from discovery.mig_state import FoundInstance, MigGpu, MigProfile
from mig.gpu_layout import GpuLayout, found_layout
from mig.holders import MigHolder, MigHolders
from mig.planner import MigRefusal, Obstacle, ObstacleKind, plan
from mig.steps import CreateInstance, DestroyInstance, MigStep
from mig.trial_layouts import EMPTY, TrialLayout, trial_layouts

log = logging.getLogger(__name__)

ASKED: Final = "a self-test"
"""In the history of changes."""
_PLACED: Final = (CreateInstance, DestroyInstance)
_STOPPED: Final = "a self-test was stopped in the middle"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedStep:
    """One call that changes the GPU."""

    kind: str
    """Name of the step's class in :mod:`mig.steps`."""
    profile: str = ""
    """Of a GPU instance."""
    seconds: float
    failure: str = ""
    """What the driver said; empty where it succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedLayout:
    """One layout, and what became of it."""

    name: str
    wanted: GpuLayout
    seconds: float
    """With all readings in between, and the one in a new session at the end."""
    steps: tuple[TriedStep, ...]
    kept: int
    """GPU instances of the layout before that were to stay, and did."""
    failure: str = ""
    """Why it was not reached; empty where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNow:
    """The profiles that the driver reports with MIG on."""

    profiles: tuple[MigProfile, ...]


SelftestEvent = TriedLayout | OfferedNow


@dataclass(frozen=True, slots=True)
class SelftestEdge:
    """What a self-test has of its surroundings."""

    report: Callable[[SelftestEvent], None]
    is_over: Callable[[], bool]
    """No further layout is to be tried."""
    clock: Callable[[], float]
    """Monotonic, seconds."""


def selftest(world: MigWorld, journal: Journal, uuid: str, edge: SelftestEdge) -> ChangeResult:
    """Try all layouts on a GPU; what they did is reported one by one.

    The result's outcome is PREVIOUS with an empty reason where all layouts were tried, and with the
    reason where the test ended early; HELD where the way back failed; None where it was refused:
    a holder of the GPU or of a part of it, a mode that takes a reset. Raises JournalUnusable where
    a change is open or none can be kept, and StepFailed where the GPU cannot be read: nothing was
    done then.
    """
    journal.need_no_change([uuid])
    before = _found(world, uuid)
    refusal = _refusal(before, world.holders())
    if refusal is not None:
        return ChangeResult(outcome=None, reason=refusal.obstacles[0].detail, refusal=refusal)
    image = VerifiedLayout.of(before, world.driver_load())
    record = begin(
        world,
        journal,
        [before],
        {uuid: found_layout(before, exact=True)},
        asked=ASKED,
        direction=Direction.BACK,
        reason=_STOPPED,
    )
    why_early = _tried(world, uuid, edge)
    _put_back(world, before, image)
    result = drive(world, journal, msgspec.structs.replace(record, reason=why_early))
    if result.outcome is not ChangeOutcome.PREVIOUS:
        return result
    return replace(result, problems=_gone(world, uuid, image))


def _tried(world: MigWorld, uuid: str, edge: SelftestEdge) -> str:
    """Try layout after layout; why it ended before the last one, empty where it did not."""
    timed = _TimedWorld(world, edge.clock)
    try:
        _try(timed, uuid, EMPTY, edge)
        gpu = _found(world, uuid)
        edge.report(OfferedNow(profiles=gpu.profiles))
        for trial in trial_layouts(gpu):
            if edge.is_over():
                return "no further layout was to be tried"
            held = _holders(uuid, world.holders())
            if held:
                return f"somebody took the GPU: {', '.join(map(str, held))}"
            _try(timed, uuid, trial, edge)
    except StepFailed as error:
        return str(error)
    return "" if gpu.profiles else "the driver reports no profiles, also with MIG on"


def _try(timed: _TimedWorld, uuid: str, trial: TrialLayout, edge: SelftestEdge) -> None:
    """Raises StepFailed where the GPU cannot be read."""
    log.info("MIG self-test layout", extra={"layout": trial.name})
    wanted = {uuid: trial.layout}
    timed.steps.clear()
    began = edge.clock()
    seen = [_found(timed, uuid)]
    found = plan(seen, wanted, timed.holders(), spare_busy=True)
    kept: Sequence[FoundInstance] = ()
    if isinstance(found, MigRefusal):
        failure = found.obstacles[0].detail
    else:
        kept = [one for _, one in found.kept]
        failure = reach(timed, wanted) or _wrong(_found(timed, uuid), kept)
    if failure:
        log.warning("MIG self-test layout failed", extra={"layout": trial.name, "why": failure})
    edge.report(
        TriedLayout(
            name=trial.name,
            wanted=trial.layout,
            seconds=edge.clock() - began,
            steps=tuple(timed.steps),
            kept=0 if failure else len(kept),
            failure=failure,
        )
    )


def _wrong(gpu: MigGpu, kept: Sequence[FoundInstance]) -> str:
    """What is not as it should be on a GPU that has its layout."""
    others = [one for one in kept if one not in gpu.instances]
    if others:
        names = ", ".join(f"{one.profile} at unit {one.start}" for one in others)
        return f"these were to stay, and are others now: {names}"
    unnamed = sum(compute.uuid is None for _, compute in gpu.devices())
    return f"{unnamed} compute instances have no MIG device" if unnamed else ""


def _put_back(world: MigWorld, before: MigGpu, image: VerifiedLayout) -> None:
    """Make the instances from before in the order of their ids, so that they have their UUIDs.

    What does not work here is left to the planner, which does not look at ids.
    """
    if not before.instances:
        return
    try:
        if reach(world, {before.uuid: EMPTY.layout}) is None:
            seen = {before.uuid: _found(world, before.uuid)}
            take_in_order(world, [before.uuid], seen, {before.uuid: image})
    except StepFailed as error:
        log.warning("MIG step failed", extra={"step": "in the old order", "why": str(error)})


def _gone(world: MigWorld, uuid: str, image: VerifiedLayout) -> tuple[str, ...]:
    """MIG devices that did not come back, as a sentence."""
    try:
        gone = image.gone(_found(world, uuid))
    except StepFailed as error:
        return (f"whether all MIG devices are there again is not known: {error}",)
    if not gone:
        return ()
    log.warning("MIG devices gone", extra={"gpu": uuid, "devices": ", ".join(gone)})
    return (
        f"the layout is there again, and these MIG devices are not: {', '.join(gone)};"
        " delete the pods that hold one",
    )


def _refusal(gpu: MigGpu, holders: MigHolders) -> MigRefusal | None:
    """What keeps a GPU from being tested; None where nothing does."""
    held = _holders(gpu.uuid, holders)
    if held:
        names = ", ".join(map(str, held))
        busy = Obstacle(
            kind=ObstacleKind.BUSY,
            gpu=gpu.uuid,
            detail=f"the GPU is in use: {names}",
            holders=frozenset(held),
        )
        return MigRefusal(obstacles=(busy,))
    found = plan([gpu], {gpu.uuid: EMPTY.layout}, holders, spare_busy=True)
    return found if isinstance(found, MigRefusal) else None


def _holders(uuid: str, holders: MigHolders) -> list[MigHolder]:
    """Who holds the GPU, or a part of it."""
    return sorted({one for part, of in holders.items() if part.gpu == uuid for one in of})


def _found(world: MigWorld, uuid: str) -> MigGpu:
    """The GPU, read now. Raises StepFailed."""
    found = next((one for one in world.observe([uuid]) if one.uuid == uuid), None)
    if found is None:
        raise StepFailed(f"GPU {uuid}: the driver does not list it, or it cannot be read")
    return found


class _TimedWorld:
    """A world that keeps the steps taken, and how long each took."""

    def __init__(self, world: MigWorld, clock: Callable[[], float]) -> None:
        self._world = world
        self._clock = clock
        self.steps: list[TriedStep] = []
        self.observe = world.observe
        self.holders = world.holders
        self.reopen = world.reopen
        self.pause = world.pause
        self.boot = world.boot
        self.driver_load = world.driver_load
        self.now = world.now

    def perform(self, step: MigStep) -> None:
        """Do it, and keep how it went."""
        began, failure = self._clock(), ""
        try:
            self._world.perform(step)
        except StepFailed as error:
            failure = str(error)
            raise
        finally:
            self.steps.append(
                TriedStep(
                    kind=type(step).__name__,
                    profile=step.profile if isinstance(step, _PLACED) else "",
                    seconds=self._clock() - began,
                    failure=failure,
                )
            )
