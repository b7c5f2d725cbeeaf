# SPDX-License-Identifier: Apache-2.0
"""The life of a node's change, from its slot to the undoing: decides the next effect. Pure.

Everything follows from what stands in the cluster: the Node, its pods, and the record on the
slot's Lease. So it does not matter which coordinator asks, nor after how many effects the last
one ended. Safety:

- nothing is done to a Node before the record of what has to be undone stands on a Lease;
- a permit becomes ``proceed`` only while it is ``cordoned`` for the request, the Node is cordoned,
  and a reading of its pods after the cordon found it idle; it is never taken back before the
  request has ended;
- what was written into the record before ``proceed`` counts as begun, also where people remove the
  permit;
- a cordon is taken off only where the record says that it is ours and our mark of it stands;
- a value is restored only where it is still the one that we wrote.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from api import names
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigPhase
from fleet import node_patches
from fleet.change_effects import (
    ChangeEffect,
    EvaluateDrain,
    EvictDeviceUsers,
    EvictPods,
    FreeSlot,
    NodeWrite,
    ParkRecord,
    PatchNode,
    ReadGpuUsage,
    WriteRecord,
)
from fleet.drain.drain_plan import DrainPlan
from fleet.drain.gpu_usage import GpuUsage, is_idle, usage_of
from fleet.gpu_pod import GpuPod
from fleet.mig_node import DrainMode, MigNode, UnavailableReason
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import CountedOutcome, NodeEnd, UnreportedEnd
from fleet.rollout_settings import USAGE_SECONDS, RolloutSettings
from fleet.slot_lease import SlotLease
from fleet.turns.change_progress import (
    TOUCHED,
    allocatable_after,
    awaits_boot,
    clients_of,
    end_of,
    has_to_pause,
    is_changing,
    is_marked,
    is_paused,
    may_have_begun,
    passed,
    phase_of,
    with_values,
    without_times_to_come,
)

CALLED_OFF: Final = "called off: a person removed the permit"
NOT_DESIRED: Final = "no layout is desired any more"
UNCORDONED: Final = "uncordoned by somebody else"
STILL_PAUSING: Final = "a part of the GPU operator that was paused has not gone"
_UNTOUCHED: Final = (Outcome.REFUSED, Outcome.CANCELLED, Outcome.EXPIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """A change, and what is known of its node."""

    record: RollbackRecord
    slot: SlotLease | None
    """The Lease on which the record stands; None: there is none, and the record was made from the
    Node's permit."""
    may_park: bool = True
    """No other change of the rollout waits so without a failure that was counted."""
    node: MigNode | None
    """The Node; None where there is none of this name."""
    pods: Collection[GpuPod] = ()
    """Pods of the node, as watched."""
    usage: GpuUsage | None = None
    drain_plan: DrainPlan | None = None
    """Pods that leave, evaluated by the API server's answers."""
    is_counted: bool = False
    """The end of the request is in the memory of rollouts."""

    @property
    def has_lease(self) -> bool:
        """Whether the record stands on a Lease."""
        return self.slot is not None

    @property
    def parked(self) -> bool:
        """Whether the slot is free again; the record waits for the request's end."""
        return self.slot is not None and self.slot.is_parked


def next_effect(view: ChangeView, terms: RolloutSettings, now: float) -> ChangeEffect:
    """The next effect of one change; None while it waits. ``now``: seconds since 1970."""
    record, node = view.record, view.node
    if node is None or node.uid != record.uid:
        return FreeSlot(outcome=UnreportedEnd.GONE) if view.has_lease else None
    if view.has_lease and (past := without_times_to_come(record, now)) != record:
        return WriteRecord(record=past, why="times to come")
    end = end_of(node, record)
    effect = _open(view, node, terms, now) if end is None else _ended(view, node, end, terms, now)
    match effect:
        case PatchNode(purpose=NodeWrite.ROLL_BACK, patch={"spec": _}) if node.is_to_boot(
            now, terms.boot_seconds
        ):
            return None
    return effect


# while the request is open


def _open(view: ChangeView, node: MigNode, terms: RolloutSettings, now: float) -> ChangeEffect:
    record, phase = view.record, phase_of(node, view.record)
    # first: the agent may have seen a permit that a person removed at once
    if may_have_begun(node, record):
        return _proceeding(view, node, terms, now)
    if not view.has_lease:
        why = "no record" if node.permit_text is not None else CALLED_OFF
        return None if is_changing(node, record) else _undo(view, node, why)
    if phase is PermitPhase.CORDONED:
        return _cordoned(view, node, terms, now)
    if is_marked(node, record) and not record.cordoned_at:
        return _noted(view, cordoned_at=int(now))
    if record.cordoned_at or node.permit_text is not None:
        return _undo(view, node, CALLED_OFF, retry_later=True)
    why = cordon_obstacle(view, node)
    if why or passed(record.taken_at, now) > terms.hold_seconds:
        return _undo(view, node, why or "not cordoned in time", retry_later=True)
    if _drain(view).evicts:  # no cordon for pods that would not leave
        plan = _fresh(view.drain_plan, record.taken_at, now)
        if plan is None:
            return EvaluateDrain()
        if plan.blockers:
            return _undo(view, node, plan.obstacle, retry_later=True)
    return PatchNode(purpose=NodeWrite.CORDON, patch=node_patches.cordon_patch(node, record))


def cordon_obstacle(view: ChangeView, node: MigNode) -> str:
    """Why the node may not be cordoned now for the request of its record; empty: it may."""
    if not node.rollout:
        return NOT_DESIRED
    if node.away is not None:
        return node.away
    if node.unschedulable and (view.record.cordon or not node.keeps_cordon):
        return UnavailableReason.CORDONED
    if not node.unschedulable and not view.record.cordon:
        return UNCORDONED
    request = node.request
    if request is None or request.request != view.record.request:
        return "request cannot be read"
    if dict(zip(names.SCALE_DOWN_GUARDS, node.guards, strict=True)) != view.record.guards:
        return "annotations changed meanwhile"  # what is recorded would be restored wrongly
    if request.programs:
        return "a program is in the way"
    is_awaited = _drain(view) is DrainMode.WAIT and not is_idle(request, usage_of(view.pods))
    return "not idle" if is_awaited else ""


def _proceeding(
    view: ChangeView, node: MigNode, terms: RolloutSettings, now: float
) -> ChangeEffect:
    """The agent may be changing GPUs: only time and other people's cordons count."""
    record = view.record
    if not view.has_lease:
        return None
    if not record.proceed_at:  # a permit without its time, which nothing of ours writes
        return _noted(view, proceed_at=int(now))
    is_ours = phase_of(node, record) is PermitPhase.PROCEED or is_marked(node, record)
    if record.cordon and not node.unschedulable and is_ours:
        return _noted(view, UNCORDONED, cordon=False)
    if awaits_boot(node, record) and not record.boots:
        return _noted(view, "waits for a boot", boots=True)
    if passed(record.proceed_at, now) <= longest_change(record, terms):
        # a slow change gives its slot to the next node, but keeps its own node and record; one
        # that waits for a boot keeps it, or many nodes would be booted at once
        is_long = passed(record.proceed_at, now) > terms.slot_seconds and not record.boots
        return ParkRecord() if is_long and not view.parked and view.may_park else None
    phase = "" if node.status is None else node.status.phase
    if phase_of(node, record) is not PermitPhase.PROCEED and phase == MigPhase.WAITING:
        # somebody removed the permit before its agent saw it, or wrote into the record that there
        # was one: nothing runs, and nothing can begin
        return _undo(view, node, CALLED_OFF, retry_later=True)
    return _count(view, UnreportedEnd.LATE) or (None if view.parked else ParkRecord())


def _cordoned(view: ChangeView, node: MigNode, terms: RolloutSettings, now: float) -> ChangeEffect:
    record, request = view.record, node.request
    if not record.cordoned_at:
        return _noted(view, cordoned_at=int(now))
    if not node.unschedulable:
        if record.cordon:  # a cordon that comes after this is not ours
            return _noted(view, UNCORDONED, cordon=False)
        return _undo(view, node, UNCORDONED, retry_later=True)
    if not node.rollout:  # its agent ends the request too, if it runs
        return _undo(view, node, NOT_DESIRED, retry_later=True)
    if passed(record.cordoned_at, now) > _longest_cordon(view, terms):
        is_held = is_paused(node, record) and clients_of(record, view.pods)
        why = node.away or (STILL_PAUSING if is_held else "not idle")
        return _undo(view, node, why, retry_later=True)
    usage = view.usage
    if request is None or request.request != record.request or node.away is not None:
        return None
    if passed(record.cordoned_at, now) < terms.settle_seconds:
        return None
    drain = _drain(view)
    if drain is DrainMode.CORDON and not is_idle(request, usage_of(view.pods)):
        return None  # for hours: the pods are read anew once the watch shows no more of them
    # read after the cordon: until then the scheduler could still bind a pod to the node
    if usage is None or now - usage.read_at > USAGE_SECONDS or usage.read_at < record.cordoned_at:
        return ReadGpuUsage()
    if drain.evicts:
        return _draining(view, node, request, usage, terms, now)
    return _permit(view, node, now) if is_idle(request, usage) else None


def _draining(
    view: ChangeView,
    node: MigNode,
    request: MigRequestAnnotation,
    usage: GpuUsage,
    terms: RolloutSettings,
    now: float,
) -> ChangeEffect:
    """All pods that must leave are asked to, or none: then all is undone and tried again later."""
    record = view.record
    is_whole = record.drain == DrainMode.NODE
    if is_idle(request, usage) and not (is_whole and usage.held):
        return _permit(view, node, now)
    # one from before the cordon or the first eviction does not know the pods that are there now
    plan = _fresh(view.drain_plan, max(record.cordoned_at, record.drain_at), now)
    if plan is None:
        return EvaluateDrain()
    if is_idle(request, usage) and plan.is_done:
        return _permit(view, node, now)  # what is left stays, and is not in the way
    if not record.drain_at:
        if plan.blockers:
            return _undo(view, node, plan.obstacle, retry_later=True)
        return _noted(view, "pods are to leave", drain_at=int(now))
    if passed(record.drain_at, now) > terms.evictions.deadline_seconds:
        return _undo(view, node, plan.obstacle or "pods did not leave in time", retry_later=True)
    return EvictDeviceUsers(pods=plan.evict) if plan.evict else None


def _fresh(plan: DrainPlan | None, since: float, now: float) -> DrainPlan | None:
    """The plan, if it was made after ``since`` and is not old."""
    is_fresh = plan is not None and plan.evaluated_at >= max(since, now - USAGE_SECONDS)
    return plan if is_fresh else None


def _permit(view: ChangeView, node: MigNode, now: float) -> ChangeEffect:
    """Pause what keeps GPUs open, then permit the change: nobody is in the way."""
    record = view.record
    if has_to_pause(node, record):
        return PatchNode(purpose=NodeWrite.PAUSE, patch=node_patches.pause_patch(node, record))
    if clients_of(record, view.pods):
        return None  # the operator has not taken it away yet, and it keeps all GPUs open
    # recorded before it is written, so that a permit which is removed at once counts as begun
    if not record.proceed_at or passed(record.proceed_at, now) > USAGE_SECONDS:
        return _noted(view, "proceed comes next", proceed_at=int(now))
    return PatchNode(purpose=NodeWrite.PROCEED, patch=node_patches.proceed_patch(node, record))


# once it has ended


def _ended(
    view: ChangeView, node: MigNode, end: str, terms: RolloutSettings, now: float
) -> ChangeEffect:
    record = view.record
    # the node keeps its cordon: its GPUs may have no instances, and pods would fail there
    if end == Outcome.STUCK:
        # the record's own outcome stays empty: another one may be shown later
        is_parked = view.parked or not view.has_lease
        return _count(view, Outcome.STUCK) or (None if is_parked else ParkRecord())
    if end not in TOUCHED and (end in _UNTOUCHED or not may_have_begun(node, record)):
        return _undo(view, node, end)
    if view.has_lease and not record.outcome:
        return _noted(view, outcome=end)
    if end == Outcome.ROLLED_BACK and (effect := _count(view, Outcome.ROLLED_BACK)):
        return effect
    if is_paused(node, record):
        return PatchNode(purpose=NodeWrite.RESUME, patch=node_patches.resume_patch(node, record))
    if not view.has_lease:
        return _undo(view, node, end)
    return _registering(view, node, end, terms, now)


def _registering(
    view: ChangeView, node: MigNode, end: str, terms: RolloutSettings, now: float
) -> ChangeEffect:
    """Restart the device plugin, and wait until the node offers what it is to offer."""
    record = view.record
    plugins = [pod for pod in view.pods if pod.is_plugin]
    leaving = [pod for pod in plugins if pod.uid in record.replaced]
    # the pods to replace are recorded first, so that a new coordinator evicts no newer one
    if not record.restarts:
        return _restart(view, plugins, now)
    if going := tuple(pod for pod in leaving if not pod.is_leaving):
        return EvictPods(pods=going)
    expected = allocatable_after(record, end)
    waited = passed(record.restarted_at, now)
    is_ready = waited >= min(terms.settle_seconds, terms.register_seconds)
    if record.replaced:
        is_ready = any(pod.is_ready for pod in plugins)
    is_back = is_ready and not leaving
    if is_back and (not expected or dict(node.allocatable) == expected):
        is_shown = bool(expected) and expected != record.allocatable_before
        outcome = Outcome.APPLIED if end == Outcome.APPLIED else None
        return (outcome and _count(view, outcome, is_shown=is_shown)) or _undo(view, node, end)
    if waited <= terms.register_seconds:
        return None
    # GPUs that did not fail have the desired layouts: what the node is to offer is not known here
    if end == Outcome.ROLLED_BACK and is_back:
        return _undo(view, node, end)
    if record.restarts < terms.restarts:
        return _restart(view, plugins, now)
    return _count(view, UnreportedEnd.PLUGIN) or _undo(view, node, UnreportedEnd.PLUGIN)


def _restart(view: ChangeView, plugins: Collection[GpuPod], now: float) -> ChangeEffect:
    replaced, restarts = tuple(sorted(pod.uid for pod in plugins)), view.record.restarts + 1
    return _noted(view, restarts=restarts, restarted_at=int(now), replaced=replaced)


def _count(view: ChangeView, outcome: CountedOutcome, *, is_shown: bool = False) -> ChangeEffect:
    """Count the end once: first in the memory, then in the record; None where that is done."""
    if view.record.counted or not view.has_lease:
        return None
    if not view.is_counted:  # the memory first: it has the request, so none counts twice
        return NodeEnd(
            rollout=view.record.rollout,
            uid=view.record.uid,
            request=view.record.request,
            outcome=outcome,
            is_shown=is_shown,
        )
    return _noted(view, outcome, counted=True)


def _undo(view: ChangeView, node: MigNode, why: str, *, retry_later: bool = False) -> ChangeEffect:
    record = view.record
    patch = node_patches.rollback_patch(node, record)
    is_cordoned = phase_of(node, record) is PermitPhase.CORDONED
    if patch and record.proceed_at and view.has_lease and is_cordoned:
        return _noted(view, "proceed does not come", proceed_at=0)
    if patch:
        return PatchNode(purpose=NodeWrite.ROLL_BACK, patch=patch, why=why)
    return FreeSlot(outcome=why, retry_later=retry_later) if view.has_lease else None


# small questions


def _noted(view: ChangeView, why: str = "", **values: Any) -> ChangeEffect:
    """These values are written into the record."""
    return WriteRecord(record=with_values(view.record, **values), why=why)


def _drain(view: ChangeView) -> DrainMode:
    """How pods leave: where a layout is brought back, they are waited for in any case."""
    request = None if view.node is None else view.node.request
    mode = view.record.drain
    if not mode or mode not in tuple(DrainMode) or (request is not None and request.drift):
        return DrainMode.WAIT
    return DrainMode(mode)


def longest_change(record: RollbackRecord, terms: RolloutSettings) -> float:
    """How long a change may take from the permit to proceed to its end."""
    return terms.end_seconds + (terms.boot_seconds if record.boots else 0.0)


def _longest_cordon(view: ChangeView, terms: RolloutSettings) -> float:
    """How long the node may be cordoned before the permit to proceed."""
    if _drain(view) is DrainMode.CORDON:
        return max(terms.cordoned_seconds, terms.hold_seconds)
    return terms.hold_seconds + (terms.evictions.deadline_seconds if view.record.drain_at else 0)
