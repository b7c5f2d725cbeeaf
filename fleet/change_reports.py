# SPDX-License-Identifier: Apache-2.0
"""Reports of the coordinator's work: log lines, Events about Nodes, metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from api.mig_outcome import Outcome
from base.log_once import LogOnce
from fleet.change_effects import NodeWrite, PatchNode
from fleet.drain.drain_plan import DrainPlan
from fleet.drain.drain_pod import DrainPod
from fleet.figures.change_steps import change_facts
from fleet.figures.coordinator_metrics import CoordinatorMetrics
from fleet.figures.fleet_figures import figures
from fleet.gpu_pod import GpuPod
from fleet.mig_change import ChangeView
from fleet.mig_node import DrainMode, MigNode
from fleet.policy.fleet_policy_sync import PolicyState
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import FAILURES, CountedOutcome, UnreportedEnd
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import FleetView, GateDecision, WaitReason, is_stopped
from fleet.slot_lease import SlotLease, slot_name
from kube.events import EventBudget, EventSink, node_regarding

log = logging.getLogger(__name__)

BUDGET: Final = EventBudget(burst=100, refill_seconds=600.0, repeat_seconds=60.0)
_ACTION: Final = "ChangeMigLayout"
_UNTOUCHED: Final = (Outcome.REFUSED, Outcome.EXPIRED)


class ChangeReports:
    """Reports each effect once, and the state of the fleet when it changes. One thread."""

    def __init__(
        self,
        events: EventSink,
        metrics: CoordinatorMetrics,
        *,
        policy: Callable[[], PolicyState | None] = lambda: None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``policy``: what the fleet policy is now."""
        self._events = events
        self._policy = policy
        self._metrics = metrics
        self._wall = wall
        self._logged = LogOnce()
        self._waiting: frozenset[str] = frozenset()

    # effects

    def taken(self, record: RollbackRecord, number: int) -> None:
        """A node got a slot."""
        log.info("MIG slot taken", extra=_fields(record, slot=slot_name(number)))
        self._event(record, "MigSlotTaken", f"The node got {slot_name(number)}.")

    def patched(self, change: ChangeView, effect: PatchNode) -> None:
        """A Node was written."""
        record = change.record
        match effect.purpose:
            case NodeWrite.CORDON:
                log.info("node cordoned for MIG change", extra=_fields(record, owned=record.cordon))
            case NodeWrite.PAUSE:
                log.info("GPU clients paused", extra=_fields(record, labels=sorted(record.labels)))
            case NodeWrite.PROCEED:
                log.info("MIG change permitted", extra=_fields(record))
                self._event(record, "MigChangeAllowed", "The node is cordoned and idle: proceed.")
            case NodeWrite.RESUME:
                log.info("GPU clients resumed", extra=_fields(record, labels=sorted(record.labels)))
            case NodeWrite.ROLL_BACK:
                kept = change.node is not None and change.node.keeps_cordon
                facts = {"why": effect.why, "uncordoned": record.cordon and not kept}
                log.info("MIG change undone on node", extra=_fields(record, **facts))
                self._event(record, "MigChangeUndone", f"All is as it was: {effect.why}.")

    def recorded(self, before: RollbackRecord, after: RollbackRecord, why: str) -> None:
        """A record was written."""
        if before.cordon and not after.cordon:
            log.warning("cordon removed by somebody else", extra=_fields(after))
        if after.restarts > before.restarts:
            log.info("device plugin restarts", extra=_fields(after, attempt=after.restarts))
        elif why:
            log.debug("MIG record written", extra=_fields(after, why=why))

    def emptied(self, slot: SlotLease) -> None:
        """A Lease is emptied whose record nobody can read."""
        fields = {"slot": slot.name, "holder": slot.holder}
        if slot.has_former_record:
            log.info("former rollback record removed", extra=fields)
        else:
            log.warning("rollback record damaged", extra=fields)

    def former_permit_removed(self, node: MigNode) -> None:
        """A permit in the form before 0.1.0 was removed from a Node."""
        log.info("former MIG permit removed", extra={"node": node.name})

    def evicted(self, record: RollbackRecord, pods: Collection[GpuPod]) -> None:
        """Pods of the device plugin were asked to leave."""
        names = sorted(pod.full_name for pod in pods)
        log.info("device plugin evicted", extra=_fields(record, pods=names))

    def judged(self, record: RollbackRecord, plan: DrainPlan) -> None:
        """The pods of a node were judged, whether they may leave."""
        if plan.blockers and self._logged.is_new(plan.blockers, ("blocked", record.node)):
            owners = [f"{found.kind} {found.owner or found.name}" for found in plan.blockers]
            log.warning("MIG drain blocked", extra=_fields(record, blockers=owners))
            first = plan.blockers[0]
            note = f"None of the node's pods is evicted: {first.name}: {first.text}"
            self._event(record, "MigDrainBlocked", note, warning=True)
        elif plan.evict and not record.drain_at:
            losses = [f"{loss.owner}: {loss.text}" for loss in plan.losses]
            pods = [pod.meta.full_name for pod in plan.evict]
            log.info("MIG drain judged", extra=_fields(record, pods=pods, losses=losses))

    def user_evicted(self, record: RollbackRecord, pod: DrainPod) -> None:
        """A pod that is in the way was asked to leave."""
        log.info("pod evicted for MIG change", extra=_fields(record, pod=pod.meta.full_name))

    def counted(self, record: RollbackRecord, outcome: CountedOutcome) -> None:
        """An end is in the memory of rollouts."""
        self._metrics.ended(outcome)
        if outcome not in FAILURES:
            log.info("MIG change succeeded", extra=_fields(record))
            return
        log.error("MIG change of node failed", extra=_fields(record, outcome=outcome))
        self._event(record, "MigChangeFailed", _NOTES[outcome], warning=True)

    def parked(self, record: RollbackRecord) -> None:
        """The slot is free, and the node stays as it is."""
        log.warning("MIG change keeps its node without a slot", extra=_fields(record))

    def freed(self, record: RollbackRecord, slot: SlotLease, outcome: str) -> None:
        """A Lease was emptied."""
        if outcome == UnreportedEnd.GONE or outcome in _UNTOUCHED:
            self._metrics.ended(outcome)
        elif not record.counted:  # the attempt ended before its agent had a permit
            self._metrics.ended(Outcome.CANCELLED)
        now = self._wall().timestamp()
        self._metrics.freed(record, now)
        facts = change_facts(record, now)
        log.info("MIG slot freed", extra=_fields(record, slot=slot.name, outcome=outcome, **facts))

    # state

    def shows(self, view: FleetView, decision: GateDecision, terms: RolloutSettings) -> None:
        """Show the state of the fleet after a round."""
        now = self._wall().timestamp()
        self._metrics.shows(figures(view, decision, terms, policy=self._policy(), now=now))
        for name, counts in view.memory.rollouts.items():
            news = (counts.failed, counts.in_row)
            if is_stopped(counts, terms) and self._logged.is_new(news, ("stopped", name)):
                fields = {"desired": counts.desired, "failed": counts.failed}
                log.error("MIG rollout stopped", extra=fields)
        for name in self._waiting - decision.waiting.keys():
            self._logged.clear(("waits", name))
        self._waiting = frozenset(decision.waiting)
        for name, reason in decision.waiting.items():
            if self._logged.is_new(reason, ("waits", name)):
                log.info("MIG change waits", extra={"node": name, "reason": reason})
                self._waits(view.nodes[name], reason)

    def _waits(self, node: MigNode, reason: WaitReason) -> None:
        """Record an Event about a node that waits until a person does something."""
        if reason is WaitReason.DRAIN:
            modes = ", ".join(DrainMode)
            note = f"gpuscape.io/drain is {node.drain[:64]!r}, and none of {modes}."
            self._about(node.name, node.uid, "MigDrainUnknown", note, warning=True)
        elif reason is WaitReason.PROGRAM and node.request is not None:
            note = (
                "No slot while a program that belongs to no pod uses what would be destroyed:"
                f" {node.request.programs[0]}."
            )
            self._about(node.name, node.uid, "MigGpuInUse", note, warning=True)

    def stands_by(self) -> None:
        """Another coordinator acts, or not all has been read."""
        self._metrics.stands_by()

    def _event(
        self, record: RollbackRecord, reason: str, note: str, *, warning: bool = False
    ) -> None:
        self._about(record.node, record.uid, reason, note, warning=warning)

    def _about(self, node: str, uid: str, reason: str, note: str, *, warning: bool = False) -> None:
        about = node_regarding(node, uid)
        self._events.record(about, reason=reason, action=_ACTION, note=note, warning=warning)


_NOTES: Final[Mapping[CountedOutcome, str]] = {
    Outcome.ROLLED_BACK: "The MIG change failed; the GPUs have the previous layouts."
    " The annotation gpuscape.io/mig-status says why.",
    Outcome.STUCK: "The MIG change is stuck: neither the desired nor the previous layouts"
    " could be reached. The node stays cordoned; see docs/mig.md.",
    UnreportedEnd.LATE: "The MIG change has no outcome within its time. The node stays as it is"
    " until its agent reports one.",
    UnreportedEnd.PLUGIN: "The MIG layout is there, but the node does not offer it: check the"
    " device plugin.",
}


def _fields(record: RollbackRecord, **more: Any) -> dict[str, Any]:
    return {"node": record.node, "request": record.request, **more}
