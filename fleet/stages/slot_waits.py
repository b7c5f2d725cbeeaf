# SPDX-License-Identifier: Apache-2.0
"""Why a Node whose request is open has no slot, by the coordinator's own decision. Pure.

What the coordinator alone remembers, the wait after an attempt that was undone, stands in the
Event about that attempt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from base.text import rfc3339
from fleet.mig_node import REBOOT, DrainMode
from fleet.rollout_memory import rollout_id
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import WaitReason, decide, drain_of, waits_cordoned
from fleet.stages.in_the_way import drain_command, users_in_the_way
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageBlocker, StageBlockerKind, StageName, standing_at
from fleet.turns.node_turns import NodeTurns

_MINUTE: Final = 60.0
_WEEK_MINUTES: Final = 8 * 24 * 60
LEASES: Final = "leases.coordination.k8s.io"
UNDONE: Final = "MigChangeUndone"
"""Reason of the coordinator's Event about an attempt that was undone."""

_AWAY_TEXTS: Final[Mapping[WaitReason, str]] = {
    WaitReason.NOT_READY: "the Node is not ready",
    WaitReason.DRIVER_UPGRADE: "its driver is being upgraded",
    WaitReason.REBOOT: "it is being rebooted",
    WaitReason.REMOVAL: "the Node is being removed",
}


def slot_wait(facts: NodeChangeFacts, now: float) -> Stage:
    """The standing of a Node that waits for a slot."""
    if not facts.coordinator.acts(now):
        return _no_coordinator(facts)
    reason = decide(facts.fleet, facts.settings, NodeTurns(0.0), now).waiting.get(facts.node.name)
    if reason is None or reason is WaitReason.RETRY:
        return _next_slot(facts, now)
    return _by_node(facts, reason) or _by_fleet(facts, reason, now)


def _by_node(facts: NodeChangeFacts, reason: WaitReason) -> Stage | None:
    """The wait for a reason of the Node itself; None for another reason."""
    name = facts.node.name
    match reason:
        case WaitReason.NOT_IDLE | WaitReason.DRIFT:
            return _not_idle(facts)
        case WaitReason.CORDONED:
            text = "somebody else cordoned the node: it gets no slot meanwhile"
            return _wait_for(StageBlockerKind.CORDON, name, text, f"kubectl uncordon {name}")
        case WaitReason.PROGRAM:
            text = "a program that belongs to no pod uses what would be destroyed: it has to end"
            return _wait(text, *users_in_the_way(facts))
        case WaitReason.NOT_ASKED:
            text = f"nobody but the agent of {name} asks for a layout, so it gets no slot"
            return _wait(f"{text}; the agent ends its request")
        case WaitReason.NOT_JUDGED:
            text = "the request is for an earlier layout: its agent evaluates the present one"
            return _wait(text)
        case WaitReason.DRAIN:
            text = f"the annotation gpuscape.io/drain has none of the values {', '.join(DrainMode)}"
            command = f"kubectl annotate --overwrite node {name} gpuscape.io/drain=wait"
            return _wait_for(StageBlockerKind.SETTING, facts.node.drain[:64], text, command)
        case WaitReason.REBOOT if math.isfinite(facts.node.boot_announced):
            at = rfc3339.whole_seconds(facts.node.boot_announced)
            text = f"kured announced at {at} that it boots the node, and has not begun"
            blocker = StageBlocker(StageBlockerKind.NODE, name, text)
            command = f"kubectl annotate node {name} {REBOOT}-"
            text += ". The command ends this wait if no boot comes"
            return _wait(text, blocker, command=command)
    if reason not in _AWAY_TEXTS:
        return None
    text, command = _AWAY_TEXTS[reason], f"kubectl describe node {name}"
    blocker = StageBlocker(StageBlockerKind.NODE, name, text)
    return _wait(f"{text}: it gets no slot meanwhile", blocker, command=command)


def _by_fleet(facts: NodeChangeFacts, reason: WaitReason, now: float) -> Stage:
    """The wait for a reason of the rollout, or of the whole fleet."""
    namespace, rollout = facts.namespace, facts.node.rollout
    match reason:
        case WaitReason.PAUSED:
            text = "an admin paused all rollouts: no node begins"
            command = f"gpuscape mig rollout resume -n {namespace}"
            return _wait_for(StageBlockerKind.PAUSE, "", text, command)
        case WaitReason.WINDOW:
            text = "it is outside the maintenance windows of the coordinator (window)"
            opening = _next_opening(facts.settings, now)
            return _wait_for(StageBlockerKind.WINDOW, "", text, retry_at=opening)
        case WaitReason.BREAKER:
            counts = facts.fleet.memory.rollouts.get(rollout_id(rollout))
            failed = 0 if counts is None else counts.failed
            text = f"failures stopped the rollout of this layout: {failed} nodes failed"
            command = f"gpuscape mig rollout resume --after-failures -n {namespace}"
            return _wait_for(StageBlockerKind.ROLLOUT, rollout, text, command)
        case WaitReason.CORDONED_NODES:
            return _cordoned_nodes(facts)
        case WaitReason.CANARY:
            return _canary(facts)
        case WaitReason.AWAY_LIMIT:
            return _away_limit(facts)
        case _:
            return _slot(facts)


def _wait(
    text: str, *blockers: StageBlocker, command: str = "", retry_at: float | None = None
) -> Stage:
    return standing_at(StageName.SLOT, text, *blockers, command=command, retry_at=retry_at)


def _wait_for(
    kind: StageBlockerKind, name: str, text: str, command: str = "", retry_at: float | None = None
) -> Stage:
    """The wait for one thing, of which the stage's text says all."""
    return _wait(text, StageBlocker(kind, name, text), command=command, retry_at=retry_at)


def _no_coordinator(facts: NodeChangeFacts) -> Stage:
    coordinator, namespace = facts.coordinator, facts.namespace
    if coordinator.problem and not coordinator.holder:
        return _wait(f"why it waits is not known: {coordinator.problem}")
    text = f"no coordinator acts in namespace {namespace}"
    if coordinator.holder:
        text = f"the coordinator {coordinator.holder} does not renew its Lease"
    kind, command = StageBlockerKind.COORDINATOR, facts.coordinator_command
    return _wait_for(kind, coordinator.holder, text, command)


def _next_slot(facts: NodeChangeFacts, now: float) -> Stage:
    """Nothing that the cluster shows keeps it from a slot."""
    users = users_in_the_way(facts)
    if users:
        text = "pods have to leave first, and not all of them may: none is evicted"
        return _wait(text, *users, command=drain_command(users))
    if facts.is_unread(LEASES):
        return _wait("whether a slot is free is not known")
    undone = _last_undone(facts)
    if undone is None:
        return _wait("it gets the next free slot, within seconds")
    at, why = undone
    first = facts.settings.retry_seconds
    return _wait(
        f"the last attempt was undone at {rfc3339.whole_seconds(at)}: {why}; the next one comes"
        f" {first:.0f} s later, or after twice as long each time, up to an hour",
        retry_at=at + first if at + first > now else None,
    )


def _last_undone(facts: NodeChangeFacts) -> tuple[float, str] | None:
    """When the open request's last attempt was undone, and why; None where no Event says so."""
    request = facts.node.request
    since = 0.0 if request is None else rfc3339.unix_seconds(request.since) or 0.0
    undone = [event for event in facts.events if event.reason == UNDONE and event.at >= since]
    if not undone:
        return None
    newest = max(undone, key=lambda event: event.at)
    return newest.at, newest.note.removeprefix("All is as it was: ").removesuffix(".")


def _not_idle(facts: NodeChangeFacts) -> Stage:
    node = facts.node
    is_drift = node.request is not None and node.request.drift
    text = "it waits until the pods that use what would be destroyed have ended"
    if is_drift:
        text += "; no pod is evicted, since another program changed the layout back"
    users = users_in_the_way(facts)
    command = drain_command(users)
    if not is_drift and drain_of(facts.fleet, node, facts.settings) == DrainMode.WAIT:
        command = f"kubectl annotate --overwrite node {node.name} gpuscape.io/drain=evict"
        text += ". The command has them evicted, if all of them may go"
    return _wait(text, *users, command=command)


def _cordoned_nodes(facts: NodeChangeFacts) -> Stage:
    records = (slot.record for slot in facts.fleet.slots if waits_cordoned(slot))
    waiting = [record.node for record in records if record is not None]
    limit = facts.settings.most_cordoned
    text = f"at most {limit} nodes may wait for their pods behind a cordon (cordoned-nodes)"
    blockers = (*_nodes(waiting, "It waits behind a cordon."), *users_in_the_way(facts))
    return _wait(text, *blockers, command=_why(waiting) or drain_command(blockers))


def _next_opening(settings: RolloutSettings, now: float) -> float | None:
    """When a window opens next: at a whole minute, within a week and a day."""
    start = now - now % _MINUTE
    for count in range(1, _WEEK_MINUTES):
        moment = start + _MINUTE * count
        if settings.windows and settings.is_open(moment):
            return moment
    return None


def _canary(facts: NodeChangeFacts) -> Stage:
    rollout = facts.node.rollout
    counts = facts.fleet.memory.rollouts.get(rollout_id(rollout))
    if counts is not None and counts.proven_at:
        proven = counts.proven_at + facts.settings.canary_seconds
        text = "the first node of the rollout has the layout; the others follow after the canary"
        return _wait_for(StageBlockerKind.ROLLOUT, rollout, text, retry_at=proven)
    text = "the first node of the rollout goes alone, until it has the layout"
    first = _in_change(facts, rollout)
    blockers = _nodes(first, "It is the first node of the rollout.")
    return _wait(text, *blockers, command=_why(first))


def _away_limit(facts: NodeChangeFacts) -> Stage:
    nodes = sorted(facts.fleet.nodes.items())
    others = [(name, node) for name, node in nodes if node.rollout == facts.node.rollout]
    away = [name for name, node in others if node.away is not None or node.unschedulable]
    limit = facts.settings.most_away
    text = f"more than {limit} nodes of the rollout are not available (unavailable-limit)"
    command = f"kubectl describe node {away[0]}" if away else "kubectl get nodes"
    blockers = _nodes(away, "It is not ready, cordoned or in an upgrade.")
    return _wait(text, *blockers, command=command)


def _slot(facts: NodeChangeFacts) -> Stage:
    if not facts.settings.slots:
        text = "the coordinator has no slots: no change begins (slots)"
        return _wait_for(StageBlockerKind.SETTING, "slots", text)
    holders = _in_change(facts)
    return _wait("all slots are taken", *_nodes(holders, "It has a slot."), command=_why(holders))


def _in_change(facts: NodeChangeFacts, rollout: str = "") -> list[str]:
    """Other nodes that have a slot, of this rollout or of all."""
    records = (slot.record for slot in facts.fleet.slots if slot.record and not slot.is_parked)
    return [record.node for record in records if rollout in ("", record.rollout)]


def _nodes(names: list[str], text: str) -> tuple[StageBlocker, ...]:
    return tuple(StageBlocker(StageBlockerKind.NODE, name, text) for name in names)


def _why(nodes: list[str]) -> str:
    return f"gpuscape mig why {nodes[0]}" if nodes else ""
