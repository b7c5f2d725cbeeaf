# SPDX-License-Identifier: Apache-2.0
"""Carries out a change of MIG layouts so that it ends in one of three ways, whatever happens.

A request is planned as a whole, and then carried out as one change for each GPU, in bus order: each
has its own entry in the journal, its own outcome, and goes back by itself.

Safety: nothing is destroyed before the previous layout is on the disk, and nothing that has a
device user is destroyed at all: they are read anew before every step. The journal has the desired
layout, the driver the current one; each step is planned from the current layout, so wherever a
process dies, the next one goes on from there, also with the GPUs that the request had not reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from actuator.boots.boot_wait import after_wait, is_for_boot, waiting_for_boot
from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change_record import ChangeRecord, Direction, gpu_outcomes
from actuator.journal import Journal, JournalUnusable
from actuator.layout_steps import empty, observed_gpu, reach
from actuator.mig_world import MigWorld, StepFailed
from actuator.mode_reset import is_reset, waiting_mode
from actuator.smi_reset import OneReset, reset_together
from actuator.verified_layouts import RestoredGpu, VerifiedLayout
from api.mig_mode_change import MigReset
from api.mig_outcome import GpuOutcome, Outcome, joint_outcome, joint_reason
from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from kubelet.devices_checkpoint import SETTLED_SECONDS
from mig.gpu_layout import GpuLayout, current_layout, has_layout
from mig.mode_permission import NO_RESETS, ModePermission
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.shared_reset import SharedReset
from mig.users.device_users import UserKind

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0
"""Time between two readings of the pods that are in the way, before a change begins."""
_ENDING_SECONDS: Final = 5.0
"""Time in which a pod that has ended disappears from the node: a kubelet removes folders of pods
every two seconds. Source: Kubernetes 1.37.1, pkg/kubelet/kubelet.go, housekeepingPeriod."""
_COMING_SECONDS: Final = SETTLED_SECONDS + 2.0
"""Time after which a pod without a known name has a folder, because it starts, or is gone."""


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How a change ended, or why it did not begin."""

    outcome: Outcome
    """The worst outcome of its GPUs."""
    reason: str = ""
    gpus: tuple[GpuOutcome, ...] = ()
    """Outcome of each GPU; empty where the change did not begin."""
    refusal: MigRefusal | None = None
    """The planner's refusal, if there is no plan."""
    restored: tuple[RestoredGpu, ...] = ()
    """GPUs that lost their instances to a new load of the driver; only without a request."""
    problems: tuple[str, ...] = ()
    """Reasons why programs cannot open the current instances, each in one sentence."""
    boot_seconds: float = 0.0
    """Time until a change of the journal that waits for a boot goes back; 0: none waits."""

    @property
    def has_begun(self) -> bool:
        """Whether a GPU may have been touched."""
        return self.outcome not in (Outcome.UNCHANGED, Outcome.REFUSED)


def result_of(records: Iterable[ChangeRecord], desired: Collection[str] = ()) -> ChangeResult:
    """Result of a request by its entries; ``desired``: UUIDs of all its GPUs."""
    gpus = gpu_outcomes(records, desired)
    return ChangeResult(outcome=joint_outcome(gpus), reason=joint_reason(gpus), gpus=gpus)


def refused(refusal: MigRefusal) -> ChangeResult:
    """Result of a request that the planner refuses: nothing was done."""
    why = refusal.obstacles[0].detail
    return ChangeResult(outcome=Outcome.REFUSED, reason=why, refusal=refusal)


def apply(
    world: MigWorld,
    journal: Journal,
    desired: Mapping[str, GpuLayout],
    *,
    origin: str,
    change: str = "",
    strategy: MigStrategy | None = None,
    as_is: bool = False,
    modes: ModePermission = NO_RESETS,
    sentinel: RebootSentinel | None = None,
) -> ChangeResult:
    """Bring GPUs, by UUID, to their desired layouts.

    ``origin``: where the layouts come from, for people. ``change`` identifies the request in the
    journal; a new id unless given. Refuses what would disturb a device user, and what the
    planner refuses on any GPU; then nothing is written. A GPU that fails later goes back alone: the
    others go on. If only pods are in the way, they are read again for some seconds: they may have
    ended just now. A GPU that has its desired layout is remembered, once a fresh session has shown
    it; with ``as_is`` all must have it. ``modes``: what may be done about modes that need a reset;
    ``sentinel``: the file that asks for a boot, None where no
    boot may be asked for. Raises JournalUnusable if the journal cannot be kept, and
    StepFailed if the GPUs cannot be read or have changed since the plan: nothing was done then.
    """
    journal.need_no_change(desired.keys())
    seen, planned = _planned(world, desired, strategy, modes)
    if isinstance(planned, MigRefusal):
        return refused(planned)
    affected = {step.gpu for step in planned.steps}
    # the plan that was shown had no steps, so nobody was made to leave the GPUs
    if affected and as_is:
        raise StepFailed("the GPUs are not as they were when the plan was made; try again")
    switched = {gpu.uuid for gpu in seen for step in planned.steps if is_reset(gpu, step)}
    if sentinel is not None and switched and (why := sentinel.why_not()):
        return ChangeResult(outcome=Outcome.REFUSED, reason=why)
    shared = SharedReset(
        why=world.why_together() if switched else "",
        is_allowed=modes.fallback.reset is MigReset.ALLOW,
    )
    if refusal := shared.refusal(seen, switched, world.unread):
        return refused(refusal)
    kept = {uuid: planned.after[uuid] for uuid in desired.keys() - affected}
    # before the change begins, since it raises where another program changes MIG just now
    _remember_kept(world, journal, {gpu.uuid: gpu for gpu in seen}, kept)
    if not affected:
        result = result_of((), desired.keys())
        return replace(result, reason="every GPU has the desired layout")
    gpus = [gpu for gpu in seen if gpu.uuid in affected]
    after = planned.after
    records = begin(world, journal, gpus, after, origin=origin, change=change, modes=modes)
    if shared.why:
        records = reset_together(world, journal, records)
    ended = [drive(world, journal, record, sentinel) for record in records]
    return result_of(ended, desired.keys())


def _planned(
    world: MigWorld,
    desired: Mapping[str, GpuLayout],
    strategy: MigStrategy | None,
    modes: ModePermission,
) -> tuple[Sequence[MigGpu], MigPlan | MigRefusal]:
    """The GPUs as last read, and the plan from there."""
    waited = 0.0
    while True:
        seen = world.observe()
        users = world.device_users()
        planned = plan(seen, desired, users, strategy=strategy, spare_busy=True, modes=modes)
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
    modes: ModePermission = NO_RESETS,
) -> tuple[ChangeRecord, ...]:
    """Write the changes of these GPUs to the journal, before the first step of any.

    Raises JournalUnusable.
    """
    change, started, boot = change or str(uuid4()), world.now(), world.boot()
    records = tuple(
        ChangeRecord(
            change=change,
            origin=origin,
            started=started,
            boot=boot,
            gpu=gpu.uuid,
            index=gpu.index,
            bus_id=gpu.bus_id,
            desired=desired[gpu.uuid],
            previous=current_layout(gpu, exact=True),
            direction=direction,
            reason=reason,
            mode_change=modes.by,
            fallback=modes.fallback,
        )
        for gpu in gpus
    )
    journal.write(*records)
    log.info("MIG change begun", extra={"change": change, "origin": origin, "gpus": len(gpus)})
    return records


def resume(
    world: MigWorld,
    journal: Journal,
    *,
    change: str = "",
    desired: Collection[str] = (),
    is_restore: bool = True,
    hung: Collection[str] = (),
    sentinel: RebootSentinel | None = None,
) -> ChangeResult | None:
    """End the changes that other processes left open; None if there are none.

    A change that was interrupted goes on; a restore rolls a stuck one back once more. One that
    waits for a boot goes on once its GPU has the mode, and back where that is not to be expected
    any more, or where a restore takes it back by its id, ``change``; ``sentinel`` as of
    :func:`apply`. ``hung``: bus ids of GPUs for which the driver is not called: a change there is
    stuck.
    The result is that of the request ``change`` on all its GPUs, ``desired``, if the journal has
    it, else that of all GPUs whose changes went on. Raises as :func:`apply`.
    """
    content = journal.content()
    ended: dict[tuple[str, str], ChangeRecord] = {}
    for record in content.unended:
        if record.bus_id in hung:
            why = f"{_HUNG}{_OR_SMI}" if record.reset else _HUNG
            ended[record.key] = _keep_stuck(journal, record, why, hung=True)
        elif is_for_boot(record):
            going_on = after_wait(world, record, sentinel, change if is_restore else "")
            if going_on is not None:
                ended[record.key] = drive(world, journal, going_on, sentinel)
        elif is_restore or record.outcome is None:
            log.warning("MIG change resumed", extra=_facts(record, way=record.direction))
            ended[record.key] = drive(world, journal, record, sentinel)
    of_request = content.of(change) if change else ()
    if of_request:
        return result_of((ended.get(record.key, record) for record in of_request), desired)
    return result_of(ended.values()) if ended else None


def give_up(journal: Journal, gpus: Collection[str]) -> tuple[str, ...]:
    """End the changes of GPUs as they are, and forget the layouts to bring back.

    No GPU is changed, and the driver is not called. The previous layouts stay in the history.
    Returns the UUIDs of the GPUs that had a change or a layout. Raises JournalUnusable.
    """
    unended = journal.content().on(gpus)
    for record in unended:
        log.warning("MIG GPU given up", extra=_facts(record))
        reason = "; ".join(filter(None, (record.reason, "given up")))
        journal.end(replace(record, outcome=Outcome.ROLLED_BACK, reason=reason, given_up=True))
    verified = journal.verified()
    kept = {uuid: layout for uuid, layout in verified.items() if uuid not in gpus}
    if len(kept) < len(verified):
        journal.verify(kept)
    return tuple(sorted({record.gpu for record in unended} | (verified.keys() - kept.keys())))


def drive(
    world: MigWorld,
    journal: Journal,
    record: ChangeRecord,
    sentinel: RebootSentinel | None = None,
) -> ChangeRecord:
    """Go on with the change of one GPU, in its direction, until it has ended, is stuck, or waits
    for a boot; ``sentinel`` as of :func:`apply`."""
    if record.direction is Direction.FORWARD:
        by_smi = OneReset(world, journal, record)
        failure = reach(world, record.gpu, record.desired, record.modes, by_smi.perform)
        (record,) = by_smi.records
        if failure is None:
            # before the end: a process that dies in between resumes, and remembers it again
            remember(world, journal, (record.gpu,))
            return _end(journal, record, Outcome.APPLIED)
        if by_smi.is_lacking and (waiting := waiting_for_boot(world, journal, record, sentinel)):
            return waiting
        record = replace(record, direction=Direction.BACK, reason=failure)
        # without it the next start goes forward, which is as good an end
        _write_if_possible(journal.write, record)
        log.warning("MIG change rolling back", extra=_facts(record, why=failure))
    failure = reach(world, record.gpu, record.previous, record.modes)
    if failure is None:
        return _end(journal, record, Outcome.ROLLED_BACK)
    # before the journal: a process that dies here finds the change open, and goes on with it
    empty(world, record.gpu, record.modes)
    first = record.reason.partition(_BACK_TOO)[0]  # it may have been stuck before
    why = f"{first}{_BACK_TOO}{failure}" if first else f"the way back failed: {failure}"
    return _keep_stuck(journal, record, f"{why}{_waiting_mode(world, record)}")


def _waiting_mode(world: MigWorld, record: ChangeRecord) -> str:
    """A mode that the change leaves to the next reset, whoever makes it; empty where none."""
    try:
        text = waiting_mode(observed_gpu(world, record.gpu))
    except StepFailed:
        return ""  # it cannot be read, and that is the reason already
    return text and f"; {text}"


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


def _end(journal: Journal, record: ChangeRecord, outcome: Outcome) -> ChangeRecord:
    record = replace(record, outcome=outcome, hung=False)
    log.info("MIG change ended", extra=_facts(record, outcome=outcome))
    # else the next start finds it open, verifies it, and ends it
    _write_if_possible(journal.end, record)
    return record


_BACK_TOO: Final = "; the way back failed too: "
_HUNG: Final = "a call of the driver for this GPU did not return"
_OR_SMI: Final = ", or nvidia-smi --gpu-reset for it, which is left alone, did not end"


def _keep_stuck(
    journal: Journal, record: ChangeRecord, reason: str, *, hung: bool = False
) -> ChangeRecord:
    """Keep the change of a GPU that reached neither layout; a person ends it."""
    record = replace(
        record, direction=Direction.BACK, outcome=Outcome.STUCK, reason=reason, hung=hung
    )
    _write_if_possible(journal.write, record)
    log.warning("MIG change stuck; run gpuscape mig restore", extra=_facts(record, why=reason))
    return record


def _write_if_possible(write: Callable[[ChangeRecord], None], record: ChangeRecord) -> None:
    try:
        write(record)
    except JournalUnusable as error:
        log.warning("MIG journal not written", extra={"why": str(error)})


def _facts(record: ChangeRecord, **more: str) -> dict[str, str]:
    """Fields of a log line on the change of a GPU."""
    return {"change": record.change, "gpu": record.gpu, **more}
