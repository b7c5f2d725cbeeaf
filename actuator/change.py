# SPDX-License-Identifier: Apache-2.0
"""Carries out a change of MIG layouts so that it ends in one of three ways, whatever happens.

Safety: nothing is destroyed before the layouts from before are on the disk, and nothing that has a
holder is destroyed at all: holders are read anew before every step. The journal says where the
change is going, the driver says where it is; each step is planned from what is there now, so a
process that died anywhere is followed by one that goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec

from actuator.change_record import VERSION, ChangeOutcome, ChangeRecord, Direction, GpuName
from actuator.journal import Journal, JournalUnusable
from actuator.layout_steps import empty, reach, reach_each
from actuator.mig_world import MigWorld, StepFailed
from actuator.verified_layouts import RestoredGpu, VerifiedLayout
from api.mig_resources import MigStrategy
from discovery.host.kubelet_devices import SETTLED_SECONDS
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, found_layout, has_layout
from mig.holders import HolderKind
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan

log = logging.getLogger(__name__)

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
    journal.need_no_change(wanted.keys())
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
        gpus={gpu.uuid: GpuName(index=gpu.index, bus_id=gpu.bus_id) for gpu in gpus},
    )
    journal.write(record)
    log.info("MIG change begun", extra={"change": record.change, "asked": asked})
    return record


def resume(world: MigWorld, journal: Journal, *, held: bool = True) -> ChangeResult | None:
    """End what other processes left open; None where there is nothing.

    A change that was stopped goes on; then, with ``held``, those that are held go back once more,
    on the GPUs that hold them alone. The result is that of the first, or of one that is held now.
    Raises as :func:`apply`.
    """
    results = []
    held_before = journal.held() if held else ()
    record = journal.load()
    if record is not None:
        log.warning("MIG change resumed", extra={"change": record.change, "way": record.direction})
        results.append(drive(world, journal, record))
    for one in held_before:
        log.warning("MIG change resumed", extra={"change": one.change, "way": one.direction})
        results.append(_go_back(world, journal, one))
    still = (one for one in results if one.outcome is ChangeOutcome.HELD)
    return next(still, results[0] if results else None)


def give_up(journal: Journal, gpus: Collection[str]) -> tuple[str, ...]:
    """Take GPUs out of every change that has not ended, and out of the layouts to bring back.

    Nothing is done to a GPU, and the driver is not asked. The layouts from before stay in the
    history; a change that has no other GPU ends. Those that were in one of both are given back.
    Raises JournalUnusable.
    """
    found: set[str] = set()
    record = journal.load()
    for one in (*(() if record is None else (record,)), *journal.held()):
        gone = one.previous.keys() & set(gpus)
        if not gone:
            continue
        found |= gone
        log.warning(
            "MIG GPUs given up", extra={"change": one.change, "gpus": ", ".join(sorted(gone))}
        )
        left = one.without(gone)
        if not left.wanted or (one.outcome is ChangeOutcome.HELD and one.stuck and not left.stuck):
            journal.end(msgspec.structs.replace(left, outcome=ChangeOutcome.PREVIOUS))
        elif one.outcome is ChangeOutcome.HELD:
            journal.hold(left)
        else:
            journal.write(left)
    verified = journal.verified()
    kept = {uuid: layout for uuid, layout in verified.items() if uuid not in gpus}
    if len(kept) < len(verified):
        journal.verify(kept)
    return tuple(sorted(found | (verified.keys() - kept.keys())))


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
    return _go_back(world, journal, record)


def _go_back(world: MigWorld, journal: Journal, record: ChangeRecord) -> ChangeResult:
    """Each GPU by itself: one that is lost is no reason to leave the others where they are."""
    concerns = record.concerns
    previous = {uuid: one for uuid, one in record.previous.items() if uuid in concerns}
    failures = reach_each(world, previous)
    if not failures:
        record = msgspec.structs.replace(record, stuck=())
        return _end(journal, record, ChangeOutcome.PREVIOUS)
    return _hold(world, journal, record, failures)


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


_BACK_TOO: Final = "; the way back failed too: "


def _hold(
    world: MigWorld, journal: Journal, record: ChangeRecord, failures: Mapping[str, str]
) -> ChangeResult:
    """GPUs can reach neither layout: empty what is idle on those, and say so.

    ``failures``: by UUID. The other GPUs are free for other changes.
    """
    first = record.reason.partition(_BACK_TOO)[0]  # it may have been held before
    each = "; ".join(f"GPU {uuid}: {why}" for uuid, why in failures.items())
    reason = f"{first}{_BACK_TOO}{each}" if first else f"the way back failed: {each}"
    held = msgspec.structs.replace(
        record, outcome=ChangeOutcome.HELD, reason=reason, stuck=tuple(failures)
    )
    empty(world, failures.keys())
    try:
        journal.hold(held)
    except JournalUnusable as error:
        log.warning("MIG journal not written", extra={"why": str(error)})
    log.warning("MIG change held; run gpuscape mig restore", extra={"why": reason})
    return ChangeResult(outcome=ChangeOutcome.HELD, reason=reason)
