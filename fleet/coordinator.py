# SPDX-License-Identifier: Apache-2.0
"""Carries out what the pure parts decide, one effect at a time for each node.

Each round looks at the cluster, decides for each change its next effect, makes it, and lets the
answer be seen by the next round. A Node is read again just before each write of it, and the effect
decided again on what was read. What fails is decided anew later, whatever became of it.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from api import names
from base.backoff import Backoff
from base.defects import Defects
from base.errors import BadInput
from base.log_once import LogOnce
from fleet import node_patches, rollback_record, slot_gate, slot_lease
from fleet.change_effects import (
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
from fleet.change_reports import ChangeReports
from fleet.drain.drain_plan import DrainPlan
from fleet.drain.drain_view import evaluate_drain
from fleet.drain.gpu_usage import GpuUsage, usage_of
from fleet.fleet_cache import FleetCache
from fleet.former_annotations import former_permits, may_be_emptied
from fleet.gpu_pod import GpuPod, gpu_pod_of, is_gpu_or_client_pod
from fleet.leadership import Leadership
from fleet.mig_change import CALLED_OFF, ChangeView, next_effect
from fleet.mig_node import DrainMode, MigNode
from fleet.new_rollback_records import record_for_request
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import NodeEnd, with_end, without_ended
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import FleetView, TakeSlot
from fleet.slot_lease import SlotLease
from fleet.turns.node_turns import NodeTurns
from kube.api import LEASES, NODES, PODS, EvictingApi
from kube.api_errors import ApiError, Conflict, NotFound
from kube.objects.typed_object import Metadata
from kube.present_objects import present_objects

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.0
ROUND_SECONDS: Final = 1.0
"""Time between two rounds while nothing happens; watches trigger the next."""
_LONGEST_FAILURE_SECONDS: Final = 30.0
AFTER_A_DEFECT_SECONDS: Final = 10.0
_EVICT_AGAIN_SECONDS: Final = 5.0
"""A pod that was evicted shows as leaving by then; else it is asked for once more."""


_ChangeKey = tuple[str, str]
"""UID of the Node, and id of its request."""


class Coordinator:
    """Runs the rounds of a coordinator, which acts while it leads. One thread."""

    def __init__(
        self,
        api: EvictingApi,
        cache: FleetCache,
        leadership: Leadership,
        *,
        terms: RolloutSettings,
        reports: ChangeReports,
        drains: Callable[[], Mapping[str, DrainMode]] = dict,
        namespace: str = names.NAMESPACE,
        defects: Defects | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``drains``: how pods leave by the fleet policy, by node; ``namespace``: of the Leases."""
        self._api = api
        self._cache = cache
        self._leadership = leadership
        self._terms = terms
        self._reports = reports
        self._drains = drains
        self._defects = defects or Defects()
        self._namespace = namespace
        self._wall = wall
        self._uniform = uniform
        self._usages: dict[_ChangeKey, GpuUsage] = {}
        self._evaluations: dict[_ChangeKey, DrainPlan] = {}
        self._undone: dict[_ChangeKey, str] = {}
        """Changes that are undone on the Node and whose Lease is not free yet, to why."""
        self._turns = NodeTurns(terms.retry_seconds)
        self._failures: dict[str, Backoff] = {}
        self._not_before: dict[str, float] = {}
        self._evict_at: dict[str, float] = {}
        self._logged = LogOnce()

    def round(self) -> float:
        """Make at most one effect for each node; the seconds until the next round.

        Raises nothing for what the API answers.
        """
        if not self._leadership.leads or not self._cache.is_synced:
            self._reports.stands_by()
            return ROUND_SECONDS
        now = self._wall().timestamp()
        view = self._view()
        effects = 0
        for change in slot_gate.open_changes(view):
            act = partial(self._perform, self._with_reads(change), now)
            effects += self._attempt(change.record.node, now, act)
        for slot in view.slots:
            if slot.damaged and may_be_emptied(view, slot):
                effects += self._attempt(slot.name, now, partial(self._clear, slot))
        for node in former_permits(view):
            effects += self._attempt(node.name, now, partial(self._remove_former_permit, node))
        view = self._view()  # anew: slots that were freed just now can be given away
        decision = slot_gate.decide(view, self._terms, self._turns, now)
        for take in decision.take:
            effects += self._attempt(take.node, now, partial(self._take, view, take, now))
        self._forget(view, now)
        self._reports.shows(view, decision, self._terms)
        return AGAIN_SECONDS if effects else ROUND_SECONDS

    def _view(self) -> FleetView:
        leadership = self._leadership
        view = self._cache.view(leadership.memory, is_paused=leadership.is_paused)
        return replace(view, drains=self._drains())

    def _with_reads(self, change: ChangeView) -> ChangeView:
        """The change with what was read for it, as it is after the effects of changes before."""
        key = _key(change.record)
        return replace(change, usage=self._usages.get(key), drain_plan=self._evaluations.get(key))

    def _attempt(self, node: str, now: float, act: Callable[[], bool]) -> bool:
        """Act for a node, unless an attempt failed just before."""
        if now < self._not_before.get(node, 0.0) or not self._leadership.leads:
            return False
        try:
            done = act()
        except ApiError as error:
            backoff = self._failures.setdefault(
                node, Backoff(longest_seconds=_LONGEST_FAILURE_SECONDS, uniform=self._uniform)
            )
            self._not_before[node] = now + backoff.failed(error.retry_after_seconds)
            if self._logged.is_new(str(error), node):
                log.warning("MIG effect failed", extra={"node": node, "why": str(error)})
            return False
        except Exception as error:  # whatever it is, the other nodes' changes go on
            self._defects.report(f"MIG change of {node}", error)
            self._not_before[node] = now + AFTER_A_DEFECT_SECONDS
            return False
        self._failures.pop(node, None)
        self._not_before.pop(node, None)
        self._logged.clear(node)
        return done

    # effects

    def _perform(self, change: ChangeView, now: float) -> bool:
        record, slot = change.record, change.slot
        match next_effect(change, self._terms, now):
            case PatchNode():
                return self._patch_node(change, now)
            case ReadGpuUsage():
                self._usages[_key(record)] = usage_of(self._device_users(record.node), now)
            case EvaluateDrain():
                self._evaluate_drain(change, now)
            case EvictDeviceUsers(pods=users):
                self._evaluations.clear()  # budgets let others go no more: they are judged anew
                for user in users:
                    self._evict(user.meta)
                    self._reports.user_evicted(record, user)
            case EvictPods(pods=pods):
                due = [pod for pod in pods if now >= self._evict_at.get(pod.uid, 0.0)]
                for pod in due:
                    self._evict(pod)
                    self._evict_at[pod.uid] = now + _EVICT_AGAIN_SECONDS
                if not due:
                    return False  # no effect, or the rounds would follow without a pause
                self._reports.evicted(record, due)
            case NodeEnd() as end:
                self._leadership.remember(with_end(self._leadership.memory, end, int(now)))
                self._reports.counted(record, end.outcome)
            case WriteRecord(record=after, why=why) if slot is not None:
                self._write_slot(slot, after)
                self._reports.recorded(record, after, why)
            case ParkRecord() if slot is not None:
                self._park(slot)
            case FreeSlot(outcome=outcome, retry_later=retry_later) if slot is not None:
                self._write_slot(slot, None)
                outcome = self._undone.pop(_key(record), outcome)
                rest = self._terms.called_off_seconds if outcome == CALLED_OFF else 0.0
                if record.drain == DrainMode.CORDON and record.cordoned_at and retry_later:
                    held_seconds = min(now - record.cordoned_at, self._terms.cordoned_seconds)
                    rest = max(rest, held_seconds)
                self._turn_ended(record, now, rest)
                self._reports.freed(record, slot, outcome)
            case _:
                return False
        return True

    def _patch_node(self, change: ChangeView, now: float) -> bool:
        """Read the Node again, decide again, and write only what is still to be written."""
        name = change.record.node
        try:
            self._cache.node(self._api.get(NODES, name))
        except NotFound:
            return False  # the watch will show it
        view = self._view()
        fresh = replace(change, node=view.nodes.get(name), pods=view.pods.get(name, change.pods))
        effect = next_effect(fresh, self._terms, now)
        if not isinstance(effect, PatchNode):
            return False
        if effect.purpose is NodeWrite.CORDON:  # pods may have come before the cordon
            self._evaluations.pop(_key(change.record), None)
        self._cache.node(self._api.patch(NODES, name, effect.patch))
        if effect.purpose is NodeWrite.ROLL_BACK and change.slot is not None:
            self._undone[_key(change.record)] = effect.why
        elif effect.purpose is NodeWrite.ROLL_BACK and effect.why == CALLED_OFF:
            self._turn_ended(change.record, now, self._terms.called_off_seconds)
        self._reports.patched(fresh, effect)
        return True

    def _evict(self, pod: GpuPod | Metadata) -> None:
        """Have the pod leave; one that is gone has left."""
        with contextlib.suppress(Conflict, NotFound):
            self._api.evict(pod.name, namespace=pod.namespace, uid=pod.uid)

    def _evaluate_drain(self, view: ChangeView, now: float) -> None:
        """Evaluate which pods may leave, with dry runs of their evictions."""
        if view.node is None or view.node.request is None:
            return
        plan = evaluate_drain(
            self._api,
            [(pod.namespace, pod.name) for pod in self._device_users(view.record.node)],
            view.node.request,
            self._terms.evictions,
            whole_node=view.record.drain == DrainMode.NODE,
            now=now,
        )
        self._evaluations[_key(view.record)] = plan
        self._reports.judged(view.record, plan)

    def _device_users(self, node: str) -> list[GpuPod]:
        """All pods of the node that use GPUs, by a read that the API server makes now."""
        present = present_objects(self._api, PODS, fields={"spec.nodeName": node})
        terms = self._cache.terms
        pods = (gpu_pod_of(seen, terms) for seen in present if is_gpu_or_client_pod(seen, terms))
        return [pod for pod in pods if pod.holds]

    def _take(self, view: FleetView, take: TakeSlot, now: float) -> bool:
        node = view.nodes[take.node]
        if node.request is None:
            return False
        drain = slot_gate.drain_of(view, node, self._terms)
        record = record_for_request(node, node.request, drain, now)
        try:  # before the slot is taken: a record that cannot be read again undoes nothing
            rollback_record.decode(rollback_record.encode(record))
        except BadInput as error:  # somebody's values are too long to be kept
            self._turn_ended(record, now)
            if self._logged.is_new(str(error), ("record", node.name)):
                log.warning("MIG slot not taken", extra={"node": node.name, "why": str(error)})
            return False
        self._put(view, take.number, record)
        self._reports.taken(record, take.number)
        return True

    def _clear(self, slot: SlotLease) -> bool:
        """Empty a Lease whose record nobody can read; its node's permit is undone by itself."""
        self._reports.emptied(slot)
        self._write_slot(slot, None)
        return True

    def _remove_former_permit(self, node: MigNode) -> bool:
        self._cache.node(self._api.patch(NODES, node.name, node_patches.former_permit_patch(node)))
        self._reports.former_permit_removed(node)
        return True

    def _park(self, slot: SlotLease) -> None:
        """First the record's other place, then the slot: whatever happens it stands somewhere."""
        if slot.record is None:
            return
        view = self._view()
        parked = [other.record for other in view.slots if other.is_parked and other.record]
        if _key(slot.record) not in map(_key, parked):
            self._put(view, slot_gate.parking_number(view.slots), slot.record)
        self._write_slot(slot, None)
        self._reports.parked(slot.record)

    def _put(self, view: FleetView, number: int, record: RollbackRecord) -> None:
        """Write a record on a free Lease, which is made where there is none."""
        lease = next((slot for slot in view.slots if slot.number == number), None)
        if lease is not None:
            self._write_slot(lease, record)
            return
        body = slot_lease.new_lease(number, record, self._wall())
        try:
            answer = self._api.create(LEASES, body, namespace=self._namespace)
        except Conflict:  # the cache is behind: it must show the Lease before the next round
            self._read_slot(number)
            raise
        self._cache.slot(answer)

    def _write_slot(self, slot: SlotLease, record: RollbackRecord | None) -> None:
        """Write a record on a Lease in the place of the one that is there; None empties it."""
        patch = slot_lease.record_patch(slot, record, self._wall())
        try:
            answer = self._api.patch(LEASES, slot.name, patch, namespace=self._namespace)
        except (Conflict, NotFound):
            self._read_slot(slot.number)
            raise
        self._cache.slot(answer)

    def _read_slot(self, number: int) -> None:
        name = slot_lease.slot_name(number)
        try:
            self._cache.slot(self._api.get(LEASES, name, namespace=self._namespace))
        except NotFound:
            self._cache.slot_gone(number)

    # memory of this coordinator alone

    def _turn_ended(self, record: RollbackRecord, now: float, rest: float = 0.0) -> None:
        """The node has no slot any more, and gets none for ``rest`` seconds at least."""
        self._usages.pop(_key(record), None)
        self._evaluations.pop(_key(record), None)
        self._turns.ended(record.node, record.uid, record.rollout, now, rest)

    def _forget(self, view: FleetView, now: float) -> None:
        """Drop rollouts that are over, here and on the Lease."""
        memory = without_ended(self._leadership.memory, slot_gate.taking_part(view), int(now))
        if memory is not self._leadership.memory:
            try:
                self._leadership.remember(memory)
            except ApiError as error:
                log.info("rollouts not forgotten", extra={"why": str(error)})
        self._evict_at = {uid: due for uid, due in self._evict_at.items() if now < due}
        self._turns.forget_all_but(self._cache.has_node)


def _key(record: RollbackRecord) -> _ChangeKey:
    """Key of a change. The request's id alone is the agent's word: two nodes may have the same."""
    return record.uid, record.request
