# SPDX-License-Identifier: Apache-2.0
"""Decides which node gets a slot next, and why each of the others waits. Pure.

A rollout is all nodes whose admin asks for the same. Its first node goes alone; the others follow
some time after it has succeeded. Rollouts do not wait for each other, and no rollout rests on what
one agent reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Final

from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import MigPhase
from fleet.drain.gpu_usage import is_idle, usage_of
from fleet.gpu_pod import GpuPod
from fleet.mig_change import ChangeView
from fleet.mig_node import DrainMode, MigNode, UnavailableReason
from fleet.new_rollback_records import record_from_permit
from fleet.rollout_memory import (
    EMPTY,
    RolloutCounts,
    RolloutMemory,
    has_failed,
    is_counted,
    is_full,
    rollout_id,
)
from fleet.rollout_settings import RolloutSettings
from fleet.slot_lease import PARKING, SlotLease
from fleet.turns.change_progress import is_asking
from fleet.turns.node_turns import NodeTurn, NodeTurns

_MOST_DOUBLINGS: Final = 10


class WaitReason(StrEnum):
    """Why a node whose request is open has no slot."""

    NOT_IDLE = "not-idle"
    NOT_READY = UnavailableReason.NOT_READY
    CORDONED = UnavailableReason.CORDONED
    DRIVER_UPGRADE = UnavailableReason.DRIVER_UPGRADE
    REBOOT = UnavailableReason.REBOOT
    REMOVAL = UnavailableReason.REMOVAL
    PROGRAM = "program"
    """A program that is no pod's uses what would go, so nobody can have it leave."""
    DRIFT = "drift"
    """Not idle, and pods are evicted there only for a layout that somebody asks for anew."""
    RETRY = "retry"
    """The node has had a slot for this layout already; the next one comes later."""
    NOT_ASKED = "not-asked"
    """Nobody but its agent asks for a layout."""
    NOT_JUDGED = "not-judged"
    """Its agent's request is for a layout from before, by its own status."""
    DRAIN = "drain"
    """The annotation ``gpuscape.io/drain`` has a value that nobody knows."""
    PAUSED = "paused"
    CORDONED_NODES = "cordoned-nodes"
    """The number of nodes that may wait behind a cordon is reached."""
    WINDOW = "window"
    BREAKER = "breaker"
    CANARY = "canary"
    AWAY_LIMIT = "unavailable-nodes"
    SLOT = "slot"


_AWAY: Final = frozenset(WaitReason(reason.value) for reason in UnavailableReason)
_TAKES_PART: Final = (MigPhase.FAILED, MigPhase.STUCK, MigPhase.CHANGING, MigPhase.REBOOTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """The fleet as it is known at one moment."""

    nodes: Mapping[str, MigNode]
    """Nodes that MIG changes concern, by name."""
    pods: Mapping[str, Collection[GpuPod]]
    """Pods with GPUs, and device plugins, by node."""
    slots: Collection[SlotLease]
    """Slots and parked records."""
    memory: RolloutMemory = EMPTY
    is_paused: bool = False
    drains: Mapping[str, DrainMode] = field(default_factory=dict)
    """How pods leave by the fleet policy, by node, where it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSlot:
    """Give a node a slot: write the record on this Lease."""

    number: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """Nodes that get a slot, and why the others wait."""

    take: tuple[TakeSlot, ...]
    waiting: Mapping[str, WaitReason]
    """Nodes with an open request and no slot, to the reason; all slots full is the last one."""


def decide(view: FleetView, terms: RolloutSettings, turns: NodeTurns, now: float) -> GateDecision:
    """Give the free slots to nodes; ``turns`` that nodes have had, ``now``: seconds since 1970."""
    recorded = {slot.record.node for slot in view.slots if slot.record is not None}
    damaged = {slot.holder for slot in view.slots if slot.damaged}
    asking = [
        node
        for name, node in sorted(view.nodes.items())
        if name not in recorded and name not in damaged
        if node.permit_text is None and is_asking(node)
    ]
    waiting = {node.name: _node_reason(view, node, terms, turns, now) for node in asking}
    away = Counter(node.rollout for node in asking if waiting[node.name] in _AWAY)
    running = Counter(
        slot.record.rollout for slot in view.slots if slot.record is not None and not slot.is_parked
    )
    cordoned = sum(map(waits_cordoned, view.slots))
    take: list[TakeSlot] = []
    used = {slot.number for slot in view.slots if not slot.is_free}
    # a parked record has no slot: a node that cannot be undone must not hold up the others
    free = terms.slots - sum(number < PARKING for number in used)
    # granted without a record, as after a Lease was deleted: that change is under way all the same
    permits = (node.permit for name, node in view.nodes.items() if name not in recorded)
    free -= sum(permit is not None and permit.phase is PermitPhase.PROCEED for permit in permits)
    numbers = [number for number in range(terms.slots) if number not in used][: max(0, free)]
    for node in sorted(asking, key=lambda node: _precedence(view, node, turns)):
        reason = waiting[node.name]
        if reason is None:
            reason = _rollout_reason(view, node, terms, away, running, now)
        may_cordon = drain_of(view, node, terms) == DrainMode.CORDON and not _is_idle(view, node)
        is_cordoned = reason is None and may_cordon
        if is_cordoned and cordoned >= terms.most_cordoned:
            reason = WaitReason.CORDONED_NODES
        if reason is None and numbers:
            take.append(TakeSlot(number=numbers.pop(0), node=node.name))
            # counted at once, or one round would give more than the limits allow
            running[node.rollout] += 1
            cordoned += is_cordoned
            del waiting[node.name]
        else:
            waiting[node.name] = reason or WaitReason.SLOT
    reasons = {name: reason for name, reason in waiting.items() if reason is not None}
    return GateDecision(take=tuple(take), waiting=reasons)


def drain_of(view: FleetView, node: MigNode, terms: RolloutSettings) -> str:
    """How pods leave this node; a word that is no mode where somebody wrote one.

    Its annotation says so, else the fleet policy, else the setting. Layouts that somebody else
    has changed are brought back without an eviction, whatever these say.
    """
    mode = node.drain or view.drains.get(node.name, terms.drain).value
    is_repair = node.request is not None and node.request.drift
    return DrainMode.WAIT if is_repair and mode in tuple(DrainMode) else mode


def parking_number(slots: Collection[SlotLease]) -> int:
    """Number of a Lease for a record whose slot is to be free."""
    used = {slot.number for slot in slots if not slot.is_free}
    return next(number for number in count(PARKING) if number not in used)


def parked_rollouts(view: FleetView) -> frozenset[str]:
    """Rollouts with a change that goes on without a slot, and has not been counted."""
    records = [slot.record for slot in view.slots if slot.is_parked and slot.record is not None]
    return frozenset(record.rollout for record in records if not record.counted)


def open_changes(view: FleetView) -> Iterator[ChangeView]:
    """All changes that have begun, and records that are to be undone.

    A change without a record on any Lease has one that is made from its Node's permit.
    """
    recorded, parked = set(), parked_rollouts(view)
    for slot in view.slots:
        if (record := slot.record) is not None:
            recorded.add(record.node)
            yield ChangeView(
                record=record,
                slot=slot,
                may_park=record.rollout not in parked,
                node=view.nodes.get(record.node),
                pods=view.pods.get(record.node, ()),
                is_counted=is_counted(view.memory, record.rollout, record.uid, record.request),
            )
    for name, node in view.nodes.items():
        if node.is_in_change and name not in recorded:
            record, pods = record_from_permit(node), view.pods.get(name, ())
            yield ChangeView(record=record, slot=None, node=node, pods=pods)


def taking_part(view: FleetView) -> frozenset[str]:
    """Digests of the rollouts that have a node whose change is open, failed or to be undone."""
    names = {slot.record.rollout for slot in view.slots if slot.record is not None}
    for node in view.nodes.values():
        failed = node.status is not None and node.status.phase in _TAKES_PART
        if is_asking(node) or failed:
            names.add(node.rollout)
    return frozenset(rollout_id(name) for name in names)


def is_stopped(counts: RolloutCounts, terms: RolloutSettings) -> bool:
    """Whether the circuit breaker holds a rollout, for a while or until a person resumes it."""
    return counts.in_row >= terms.failures_in_row or counts.failed >= terms.failures_in_all


def _is_tried(counts: RolloutCounts, terms: RolloutSettings, now: float) -> bool:
    """Whether one node of a rollout that is stopped may go, alone.

    Two nodes that fail one after the other may be a broken one and one whose agent lies. So a row
    stops a rollout for a while, which doubles with each further node in it; failures in all stop
    it for good.
    """
    if counts.failed >= terms.failures_in_all:
        return False
    # bounded: with 1,024 failed nodes in a row the power would not fit a float
    more = min(counts.in_row - terms.failures_in_row, _MOST_DOUBLINGS)
    return now - counts.failed_at >= terms.row_seconds * float(2**more)


def _node_reason(
    view: FleetView, node: MigNode, terms: RolloutSettings, turns: NodeTurns, now: float
) -> WaitReason | None:
    """The node's own reason to wait; None where it has none."""
    if not node.rollout:
        return WaitReason.NOT_ASKED
    if not node.is_judged:
        return WaitReason.NOT_JUDGED
    if node.away is not None:
        return WaitReason(node.away.value)
    if node.unschedulable and not node.keeps_cordon:
        return WaitReason.CORDONED
    drain = drain_of(view, node, terms)
    if drain not in tuple(DrainMode):
        return WaitReason.DRAIN
    if node.request is not None and node.request.programs:
        return WaitReason.PROGRAM
    if node.request is None or (drain == DrainMode.WAIT and not _is_idle(view, node)):
        is_repair = node.request is not None and node.request.drift
        return WaitReason.DRIFT if is_repair else WaitReason.NOT_IDLE
    return WaitReason.RETRY if now < _turn(node, turns).not_before else None


def _turn(node: MigNode, turns: NodeTurns) -> NodeTurn:
    return turns.turn_of(node.name, node.uid, node.rollout)


def _is_idle(view: FleetView, node: MigNode) -> bool:
    usage = usage_of(view.pods.get(node.name, ()))
    return node.request is not None and is_idle(node.request, usage)


def waits_cordoned(slot: SlotLease) -> bool:
    """Whether its node waits behind a cordon for pods, or will."""
    record = slot.record
    return record is not None and record.drain == DrainMode.CORDON and not record.proceed_at


def _rollout_reason(
    view: FleetView,
    node: MigNode,
    terms: RolloutSettings,
    away: Mapping[str, int],
    running: Mapping[str, int],
    now: float,
) -> WaitReason | None:
    """The reason of its rollout or of the fleet to wait; None where there is none."""
    if view.is_paused:
        return WaitReason.PAUSED
    if not terms.is_open(now):
        return WaitReason.WINDOW
    counts = view.memory.rollouts.get(rollout_id(node.rollout))
    if counts is None and is_full(view.memory):
        return WaitReason.BREAKER
    # one at a time, or a bad layout would reach several nodes before the first has failed
    is_tried = counts is None or (
        _is_tried(counts, terms, now) and not running.get(node.rollout, 0)
    )
    if counts is not None and is_stopped(counts, terms) and not is_tried:
        return WaitReason.BREAKER
    if away.get(node.rollout, 0) > terms.most_away:
        return WaitReason.AWAY_LIMIT
    proven_at = 0 if counts is None else counts.proven_at
    if not proven_at:
        return WaitReason.CANARY if running.get(node.rollout, 0) else None
    return WaitReason.CANARY if 0 <= now - proven_at < terms.canary_seconds else None


def _precedence(view: FleetView, node: MigNode, turns: NodeTurns) -> tuple[int, int, str]:
    """Nodes with the fewest turns first, of those the ones with the fewest pods that hold a GPU.

    Nothing that an agent writes brings its node forward.
    """
    pods = sum(pod.holds for pod in view.pods.get(node.name, ()))
    counts = view.memory.rollouts.get(rollout_id(node.rollout))
    is_bad = counts is not None and has_failed(counts, node.uid)
    return max(_turn(node, turns).turns, int(is_bad)), pods, node.name
