# SPDX-License-Identifier: Apache-2.0
"""Carries out a change of MIG layouts so that it ends in one of three ways, whatever happens.

Safety: nothing is destroyed before the previous layouts are on the disk, and nothing that has a
device user is destroyed at all: they are read anew before every step. The journal has the desired
layouts, the driver the current ones; each step is planned from the current layout, so wherever a
process dies, the next one goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec

from actuator.change_record import VERSION, ChangeRecord, Direction, GpuName
from actuator.journal import Journal, JournalUnusable
from actuator.layout_steps import empty, reach, reach_each
from actuator.mig_world import MigWorld, StepFailed
from actuator.verified_layouts import RestoredGpu, VerifiedLayout
from api.mig_outcome import Outcome
from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from kubelet.devices_checkpoint import SETTLED_SECONDS
from mig.gpu_layout import GpuLayout, current_layout, has_layout
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.users.device_users import UserKind

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0
"""Time between two readings of the pods that are in the way, before a change begins."""
_ENDING_SECONDS: Final = 5.0
"""Time in which a pod that has ended disappears from the node: a kubelet removes folders of pods
every two seconds. Source: Kubernetes 1.37.1, pkg/kubelet/kubelet.go, housekeepingPeriod."""
_COMING_SECONDS: Final = SETTLED_SECONDS + 2.0
"""Time after which a pod without a known name has a folder, because it starts, or is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """How a change ended, or why it did not begin."""

    outcome: Outcome
    reason: str = ""
    refusal: MigRefusal | None = None
    """The planner's refusal, if there is no plan."""
    restored: tuple[RestoredGpu, ...] = ()
    """GPUs that lost their instances to a new load of the driver; only without a request."""
    problems: tuple[str, ...] = ()
    """Reasons why programs cannot open the current instances, each in one sentence."""

    @property
    def has_begun(self) -> bool:
        """Whether a GPU may have been touched."""
        return self.outcome not in (Outcome.UNCHANGED, Outcome.REFUSED)


def apply(
    world: MigWorld,
    journal: Journal,
    desired: Mapping[str, GpuLayout],
    *,
    origin: str,
    change: str = "",
    strategy: MigStrategy | None = None,
    as_is: bool = False,
) -> ChangeResult:
    """Bring GPUs, by UUID, to their desired layouts.

    ``origin``: where the layouts come from, for people. ``change`` identifies the change in journal
    and history; a new id unless given. Refuses what would disturb a device user, and what the
    planner refuses; then nothing is written. If only pods are in the way, they are read again for
    some seconds: they may have ended just now. A GPU that has its desired layout is remembered,
    once a fresh session has shown it; with ``as_is`` all must have it. Raises JournalUnusable if
    the journal cannot be kept, and StepFailed if the GPUs cannot be read or have changed since the
    plan: nothing was done then.
    """
    journal.need_no_change(desired.keys())
    seen, planned = _planned(world, desired, strategy)
    if isinstance(planned, MigRefusal):
        reason = planned.obstacles[0].detail
        return ChangeResult(outcome=Outcome.REFUSED, reason=reason, refusal=planned)
    affected = {step.gpu for step in planned.steps}
    # the plan that was shown had no steps, so nobody was made to leave the GPUs
    if affected and as_is:
        raise StepFailed("the GPUs are not as they were when the plan was made; try again")
    kept = {uuid: planned.after[uuid] for uuid in desired.keys() - affected}
    # before the change begins, since it raises where another program changes MIG just now
    _remember_kept(world, journal, {gpu.uuid: gpu for gpu in seen}, kept)
    if not affected:
        return ChangeResult(outcome=Outcome.UNCHANGED, reason="every GPU has the desired layout")
    gpus = [gpu for gpu in seen if gpu.uuid in affected]
    record = begin(world, journal, gpus, planned.after, origin=origin, change=change)
    return drive(world, journal, record)


def _planned(
    world: MigWorld, desired: Mapping[str, GpuLayout], strategy: MigStrategy | None
) -> tuple[Sequence[MigGpu], MigPlan | MigRefusal]:
    """The GPUs as last read, and the plan from there."""
    waited = 0.0
    while True:
        seen = world.observe()
        planned = plan(seen, desired, world.device_users(), strategy=strategy, spare_busy=True)
        if isinstance(planned, MigPlan) or waited >= _may_pass_within(planned):
            return seen, planned
        world.pause(_POLL_SECONDS)
        waited += _POLL_SECONDS


def _may_pass_within(refusal: MigRefusal) -> float:
    """Seconds in which the obstacles may disappear; 0: they will not.

    Only pods are waited for, not programs, nor other obstacles.
    """
    users = [user for obstacle in refusal.obstacles for user in obstacle.users]
    if any(obstacle.kind is not ObstacleKind.BUSY for obstacle in refusal.obstacles) or any(
        user.kind is not UserKind.POD for user in users
    ):
        return 0.0
    return _ENDING_SECONDS if any("/" in user.name for user in users) else _COMING_SECONDS


def begin(
    world: MigWorld,
    journal: Journal,
    gpus: Sequence[MigGpu],
    desired: Mapping[str, GpuLayout],
    *,
    origin: str,
    change: str = "",
    direction: Direction = Direction.FORWARD,
    reason: str = "",
) -> ChangeRecord:
    """Write a change to the journal, before its first step. Raises JournalUnusable."""
    record = ChangeRecord(
        v=VERSION,
        change=change or str(uuid4()),
        origin=origin,
        started=world.now(),
        boot=world.boot(),
        desired={gpu.uuid: desired[gpu.uuid] for gpu in gpus},
        previous={gpu.uuid: current_layout(gpu, exact=True) for gpu in gpus},
        direction=direction,
        reason=reason,
        gpus={gpu.uuid: GpuName(index=gpu.index, bus_id=gpu.bus_id) for gpu in gpus},
    )
    journal.write(record)
    log.info("MIG change begun", extra={"change": record.change, "origin": origin})
    return record


def resume(world: MigWorld, journal: Journal, *, retry_stuck: bool = True) -> ChangeResult | None:
    """End the changes that other processes left open; None if there are none.

    A change that was interrupted goes on; then, with ``retry_stuck``, the stuck changes are rolled
    back once more, only on their stuck GPUs. The result is that of the first change, or of one that
    is stuck now. Raises as :func:`apply`.
    """
    results = []
    # read first: a change that becomes stuck in this call must not be rolled back twice
    stuck_before = journal.stuck_changes() if retry_stuck else ()
    record = journal.load()
    if record is not None:
        log.warning("MIG change resumed", extra={"change": record.change, "way": record.direction})
        results.append(drive(world, journal, record))
    for stuck_record in stuck_before:
        log.warning(
            "MIG change resumed",
            extra={"change": stuck_record.change, "way": stuck_record.direction},
        )
        results.append(_go_back(world, journal, stuck_record))
    still = (result for result in results if result.outcome is Outcome.STUCK)
    return next(still, results[0] if results else None)


def give_up(journal: Journal, gpus: Collection[str]) -> tuple[str, ...]:
    """Take GPUs out of every change that has not ended, and out of the layouts to bring back.

    No GPU is changed, and the driver is not called. The previous layouts stay in the history; a
    change that has no other GPU ends. Returns the UUIDs of the GPUs that were taken out.
    Raises JournalUnusable.
    """
    given_up: set[str] = set()
    record = journal.load()
    for unended in (*(() if record is None else (record,)), *journal.stuck_changes()):
        gone = unended.previous.keys() & set(gpus)
        if not gone:
            continue
        given_up |= gone
        log.warning(
            "MIG GPUs given up", extra={"change": unended.change, "gpus": ", ".join(sorted(gone))}
        )
        remaining = unended.without(gone)
        if not remaining.desired or (
            unended.outcome is Outcome.STUCK and unended.stuck and not remaining.stuck
        ):
            journal.end(msgspec.structs.replace(remaining, outcome=Outcome.ROLLED_BACK))
        elif unended.outcome is Outcome.STUCK:
            journal.keep_stuck(remaining)
        else:
            journal.write(remaining)
    verified = journal.verified()
    kept = {uuid: layout for uuid, layout in verified.items() if uuid not in gpus}
    if len(kept) < len(verified):
        journal.verify(kept)
    return tuple(sorted(given_up | (verified.keys() - kept.keys())))


def drive(world: MigWorld, journal: Journal, record: ChangeRecord) -> ChangeResult:
    """Go on with a change of the journal, in its direction, until it has ended."""
    if record.direction is Direction.FORWARD:
        failure = reach(world, record.desired)
        if failure is None:
            # before the end: a process that dies in between resumes, and remembers them again
            remember(world, journal, record.desired)
            return _end(journal, record, Outcome.APPLIED)
        record = msgspec.structs.replace(record, direction=Direction.BACK, reason=failure)
        _note(journal, record)
        log.warning("MIG change rolling back", extra={"change": record.change, "why": failure})
    return _go_back(world, journal, record)


def _go_back(world: MigWorld, journal: Journal, record: ChangeRecord) -> ChangeResult:
    """Roll each GPU back by itself, so that a lost GPU does not keep the others from it."""
    concerns = record.concerns
    previous = {uuid: layout for uuid, layout in record.previous.items() if uuid in concerns}
    failures = reach_each(world, previous)
    if not failures:
        record = msgspec.structs.replace(record, stuck=())
        return _end(journal, record, Outcome.ROLLED_BACK)
    return _keep_stuck(world, journal, record, failures)


def remember(world: MigWorld, journal: Journal, gpus: Collection[str]) -> None:
    """Store the current layouts of these GPUs, so that they come back after a reboot.

    If that is not possible, the change counts as applied all the same.
    """
    if not gpus:
        return
    try:
        # read first: after a reload in between the layouts count as lost, and are brought back
        load = world.driver_load()
        seen = {gpu.uuid: gpu for gpu in world.observe(gpus)}
        verified = dict(journal.verified())
        for uuid in gpus:
            verified.pop(uuid, None)
            if uuid in seen and current_layout(seen[uuid]).mig:
                verified[uuid] = VerifiedLayout.from_gpu(seen[uuid], load)
        journal.verify(verified)
    except (JournalUnusable, StepFailed) as error:
        log.warning("MIG layouts not remembered", extra={"why": str(error)})


def _remember_kept(
    world: MigWorld, journal: Journal, seen: Mapping[str, MigGpu], layouts: Mapping[str, GpuLayout]
) -> None:
    """Remember GPUs that need no step, once a fresh session has shown their layouts too.

    A layout that is remembered already is not read again. Raises StepFailed if the session shows
    another layout: another program is changing MIG.
    """
    load, known = world.driver_load(), journal.verified()
    unknown = {
        uuid: layout
        for uuid, layout in layouts.items()
        if known.get(uuid) != (VerifiedLayout.from_gpu(seen[uuid], load) if layout.mig else None)
    }
    if not unknown:
        return
    world.reopen()
    now = {gpu.uuid: gpu for gpu in world.observe(unknown.keys())}
    for uuid, layout in unknown.items():
        if uuid not in now or not has_layout(now[uuid], layout):
            raise StepFailed(f"GPU {uuid}: a new session with the driver shows another layout")
    remember(world, journal, unknown.keys())


def _end(journal: Journal, record: ChangeRecord, outcome: Outcome) -> ChangeResult:
    record = msgspec.structs.replace(record, outcome=outcome)
    log.info("MIG change ended", extra={"change": record.change, "outcome": outcome})
    try:
        journal.end(record)
    except JournalUnusable as error:  # the next start finds it open, verifies it, and ends it
        log.warning("MIG journal not written", extra={"why": str(error)})
    return ChangeResult(outcome=outcome, reason=record.reason)


def _note(journal: Journal, record: ChangeRecord) -> None:
    """Write the new direction; without it the next start goes forward, which is as good an end."""
    try:
        journal.write(record)
    except JournalUnusable as error:
        log.warning("MIG journal not written", extra={"why": str(error)})


_BACK_TOO: Final = "; the way back failed too: "


def _keep_stuck(
    world: MigWorld, journal: Journal, record: ChangeRecord, failures: Mapping[str, str]
) -> ChangeResult:
    """Record a change as stuck: its GPUs reach neither layout, their idle instances are destroyed.

    ``failures``: reason by GPU UUID. The other GPUs are free for other changes.
    """
    first = record.reason.partition(_BACK_TOO)[0]  # it may have been stuck before
    details = "; ".join(f"GPU {uuid}: {why}" for uuid, why in failures.items())
    reason = f"{first}{_BACK_TOO}{details}" if first else f"the way back failed: {details}"
    stuck = msgspec.structs.replace(
        record, outcome=Outcome.STUCK, reason=reason, stuck=tuple(failures)
    )
    # before the journal: a process that dies here finds the change open, and goes on with it
    empty(world, failures.keys())
    try:
        journal.keep_stuck(stuck)
    except JournalUnusable as error:
        log.warning("MIG journal not written", extra={"why": str(error)})
    log.warning("MIG change stuck; run gpuscape mig restore", extra={"why": reason})
    return ChangeResult(outcome=Outcome.STUCK, reason=reason)
