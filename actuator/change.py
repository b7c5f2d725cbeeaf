# SPDX-License-Identifier: Apache-2.0
"""Carries out a change of MIG layouts so that it ends in one of three ways, whatever happens.

Safety: nothing is destroyed before the layouts from before are on the disk, and nothing that has a
holder is destroyed at all: holders are read anew before every step. The journal says where the
change is going, the driver says where it is; each step is planned from what is there now, so a
process that died anywhere is followed by one that goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import msgspec

from actuator.change_record import VERSION, ChangeOutcome, ChangeRecord, Direction
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import MigWorld, StepFailed
from actuator.verified_layouts import RestoredGpu, VerifiedLayout
from api.mig_resources import MigStrategy
from discovery.host.kubelet_devices import SETTLED_SECONDS
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, found_layout, has_layout
from mig.holders import HolderKind, MigHolders, MigPart
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.steps import MigStep

log = logging.getLogger(__name__)

_TRIES: Final = 4
"""Of a step that the driver refuses for a cause that may pass."""
_MOST_STEPS: Final = 1000
"""Sixteen GPUs with seven instances each need 448 at most."""
_FIRST_PAUSE_SECONDS: Final = 0.5
"""Doubled with each further try."""
_LOOK_SECONDS: Final = 1.0
"""Between two looks at pods that are in the way, before a change begins."""
_ENDING_SECONDS: Final = 5.0
"""A pod that has ended is on the node for some seconds more: a kubelet removes folders of pods
every two. Source: Kubernetes 1.37.1, pkg/kubelet/kubelet.go, housekeepingPeriod."""
_COMING_SECONDS: Final = SETTLED_SECONDS + 2.0
"""A pod whose name is not known has no folder: it comes, or is gone, which shows by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """How a change ended, or why it did not begin."""

    outcome: ChangeOutcome | None
    """None: nothing was done."""
    reason: str = ""
    refusal: MigRefusal | None = None
    """Where there is no plan."""
    restored: tuple[RestoredGpu, ...] = ()
    """GPUs whose instances a new load of the driver took, where no change was asked for."""
    problems: tuple[str, ...] = ()
    """What keeps programs from the instances that are there now, each in one sentence."""


def apply(
    world: MigWorld,
    journal: Journal,
    wanted: Mapping[str, GpuLayout],
    *,
    asked: str,
    change: str = "",
    strategy: MigStrategy | None = None,
    as_is: bool = False,
) -> ChangeResult:
    """Bring GPUs, by UUID, to the layouts that are wanted.

    ``change`` identifies the change in journal and history, a name of its own unless given.
    Refuses what would disturb a holder, and whatever the planner refuses; then nothing is written.
    Pods alone are looked for a little longer: they may have ended just now.
    A GPU that is as wanted is remembered, once a fresh session has shown it; with ``as_is`` all
    have to be. Raises JournalUnusable where the journal cannot be kept, and StepFailed where the
    GPUs cannot be read or are not what they were: nothing was done then.
    """
    journal.need_no_change()
    seen, found = _planned(world, wanted, strategy)
    if isinstance(found, MigRefusal):
        return ChangeResult(outcome=None, reason=found.obstacles[0].detail, refusal=found)
    affected = {step.gpu for step in found.steps}
    if affected and as_is:
        raise StepFailed("the GPUs are not as they were when the plan was made; try again")
    kept = {uuid: found.after[uuid] for uuid in wanted.keys() - affected}
    _remember_kept(world, journal, {gpu.uuid: gpu for gpu in seen}, kept)
    if not affected:
        return ChangeResult(outcome=None, reason="every GPU has the layout that is wanted")
    gpus = [gpu for gpu in seen if gpu.uuid in affected]
    record = begin(world, journal, gpus, found.after, asked=asked, change=change)
    return drive(world, journal, record)


def _planned(
    world: MigWorld, wanted: Mapping[str, GpuLayout], strategy: MigStrategy | None
) -> tuple[Sequence[MigGpu], MigPlan | MigRefusal]:
    """What was seen last, and the plan from there."""
    waited = 0.0
    while True:
        seen = world.observe()
        found = plan(seen, wanted, world.holders(), strategy=strategy, spare_busy=True)
        if isinstance(found, MigPlan) or waited >= _may_pass_within(found):
            return seen, found
        world.pause(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


def _may_pass_within(refusal: MigRefusal) -> float:
    """Seconds in which what is in the way may be seen to have ended; 0: that is not to be expected.

    Nobody waits for programs here, nor for what no waiting changes.
    """
    holders = [holder for one in refusal.obstacles for holder in one.holders]
    if any(one.kind is not ObstacleKind.BUSY for one in refusal.obstacles) or any(
        holder.kind is not HolderKind.POD for holder in holders
    ):
        return 0.0
    return _ENDING_SECONDS if any("/" in holder.name for holder in holders) else _COMING_SECONDS


def begin(
    world: MigWorld,
    journal: Journal,
    gpus: Sequence[MigGpu],
    wanted: Mapping[str, GpuLayout],
    *,
    asked: str,
    change: str = "",
    direction: Direction = Direction.FORWARD,
    reason: str = "",
) -> ChangeRecord:
    """Write down a change of these GPUs, before its first step. Raises JournalUnusable."""
    record = ChangeRecord(
        v=VERSION,
        change=change or str(uuid4()),
        asked=asked,
        started=world.now(),
        boot=world.boot(),
        wanted={gpu.uuid: wanted[gpu.uuid] for gpu in gpus},
        previous={gpu.uuid: found_layout(gpu, exact=True) for gpu in gpus},
        direction=direction,
        reason=reason,
    )
    journal.write(record)
    log.info("MIG change begun", extra={"change": record.change, "asked": asked})
    return record


def resume(world: MigWorld, journal: Journal) -> ChangeResult | None:
    """End a change that another process began; None where there is none.

    One that is held goes back once more. Raises as :func:`apply`.
    """
    record = journal.load()
    if record is None:
        return None
    log.warning("MIG change resumed", extra={"change": record.change, "way": record.direction})
    if record.outcome is ChangeOutcome.HELD:
        record = msgspec.structs.replace(record, outcome=None)  # its direction is back already
    return drive(world, journal, record)


def drive(world: MigWorld, journal: Journal, record: ChangeRecord) -> ChangeResult:
    """Go on with a change that is written down, in its direction, until it has ended."""
    if record.direction is Direction.FORWARD:
        failure = reach(world, record.wanted)
        if failure is None:
            remember(world, journal, record.wanted)
            return _end(journal, record, ChangeOutcome.APPLIED)
        record = msgspec.structs.replace(record, direction=Direction.BACK, reason=failure)
        _note(journal, record)
        log.warning("MIG change rolling back", extra={"change": record.change, "why": failure})
    failure = reach(world, record.previous)
    if failure is None:
        return _end(journal, record, ChangeOutcome.PREVIOUS)
    return _hold(world, journal, record, failure)


def remember(world: MigWorld, journal: Journal, gpus: Collection[str]) -> None:
    """Write down what these GPUs have, so that it comes back after a reboot.

    Where that is not possible the layouts hold all the same.
    """
    if not gpus:
        return
    try:
        load = world.driver_load()
        seen = {gpu.uuid: gpu for gpu in world.observe(gpus)}
        verified = dict(journal.verified())
        for uuid in gpus:
            verified.pop(uuid, None)
            if uuid in seen and found_layout(seen[uuid]).mig:
                verified[uuid] = VerifiedLayout.of(seen[uuid], load)
        journal.verify(verified)
    except (JournalUnusable, StepFailed) as error:
        log.warning("MIG layouts not remembered", extra={"why": str(error)})


def _remember_kept(
    world: MigWorld, journal: Journal, seen: Mapping[str, MigGpu], layouts: Mapping[str, GpuLayout]
) -> None:
    """Remember GPUs that need no step, once a fresh session has shown their layouts too.

    What is remembered already costs nothing. Raises StepFailed where the session shows another
    layout: somebody else is changing MIG.
    """
    load, known = world.driver_load(), journal.verified()
    unknown = {
        uuid: layout
        for uuid, layout in layouts.items()
        if known.get(uuid) != (VerifiedLayout.of(seen[uuid], load) if layout.mig else None)
    }
    if not unknown:
        return
    world.reopen()
    now = {gpu.uuid: gpu for gpu in world.observe(unknown.keys())}
    for uuid, layout in unknown.items():
        if uuid not in now or not has_layout(now[uuid], layout):
            raise StepFailed(f"GPU {uuid}: a new session with the driver shows another layout")
    remember(world, journal, unknown.keys())


def _end(journal: Journal, record: ChangeRecord, outcome: ChangeOutcome) -> ChangeResult:
    record = msgspec.structs.replace(record, outcome=outcome)
    log.info("MIG change ended", extra={"change": record.change, "outcome": outcome})
    try:
        journal.end(record)
    except JournalUnusable as error:  # the next start finds it open, verifies it, and ends it
        log.warning("MIG journal not written", extra={"why": str(error)})
    return ChangeResult(outcome=outcome, reason=record.reason)


def _note(journal: Journal, record: ChangeRecord) -> None:
    """Write where the change goes now; a start that does not know goes forward, as well an end."""
    try:
        journal.write(record)
    except JournalUnusable as error:
        log.warning("MIG journal not written", extra={"why": str(error)})


def _hold(world: MigWorld, journal: Journal, record: ChangeRecord, failure: str) -> ChangeResult:
    """Neither layout can be reached: empty what is idle on the affected GPUs, and say so."""
    why = f"{record.reason}; the way back failed too" if record.reason else "the way back failed"
    reason = f"{why}: {failure}"
    held = msgspec.structs.replace(record, outcome=ChangeOutcome.HELD, reason=reason)
    _empty(world, record.previous.keys())
    _note(journal, held)
    log.warning("MIG change held; run gpuscape mig restore", extra={"why": reason})
    return ChangeResult(outcome=ChangeOutcome.HELD, reason=reason)


def _empty(world: MigWorld, gpus: Iterable[str]) -> None:
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
