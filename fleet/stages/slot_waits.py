# SPDX-License-Identifier: Apache-2.0
"""Why a Node whose request is open has no slot, by the coordinator's own decision. Pure.

What the coordinator alone remembers, the wait after an attempt that was undone, stands in the
Event about that attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from base.text import rfc3339
from fleet.mig_node import DrainMode
from fleet.rollout_memory import rollout_id
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import WaitReason, decide, drain_of, waits_cordoned
from fleet.stages.in_the_way import drain_command, users_in_the_way
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import ChangeStanding, StageBlocker, StageBlockerKind, StageName
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


def slot_wait(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    """The standing of a Node that waits for a slot."""
    if not facts.coordinator.acts(now):
        return _no_coordinator(facts)
    reason = decide(facts.fleet, facts.settings, NodeTurns(0.0), now).waiting.get(facts.node.name)
    if reason is not None and reason in _AWAY_TEXTS:
        text, name = _AWAY_TEXTS[reason], facts.node.name
        return _wait(
            f"{text}: it gets no slot meanwhile",
            StageBlocker(kind=StageBlockerKind.NODE, name=name, text=text),
            command=f"kubectl describe node {name}",
        )
    return _EXPLAINED[reason](facts, now)


def _wait(
    text: str,
    *blockers: StageBlocker,
    command: str = "",
    retry_at: float | None = None,
) -> ChangeStanding:
    return ChangeStanding(
        stage=StageName.SLOT, text=text, blockers=blockers, command=command, retry_at=retry_at
    )


def rollout_command(facts: NodeChangeFacts, words: str) -> str:
    """A command of ``gpuscape mig rollout`` for this coordinator."""
    return f"gpuscape mig rollout {words} -n {facts.namespace}"


def _no_coordinator(facts: NodeChangeFacts) -> ChangeStanding:
    coordinator, namespace = facts.coordinator, facts.namespace
    if coordinator.problem and not coordinator.holder:
        return _wait(f"why it waits is not known: {coordinator.problem}")
    text = f"no coordinator acts in namespace {namespace}"
    if coordinator.holder:
        text = f"the coordinator {coordinator.holder} does not renew its Lease"
    blocker = StageBlocker(kind=StageBlockerKind.COORDINATOR, name=coordinator.holder, text=text)
    return _wait(text, blocker, command=facts.coordinator_command)


def _next_slot(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    """Nothing that the cluster shows keeps it from a slot."""
    users = users_in_the_way(facts)
    if users:
        text = "pods have to leave first, and not all of them may: none is evicted"
        return _wait(text, *users, command=drain_command(facts))
    if facts.is_unread(LEASES):
        return _wait("whether a slot is free is not known")
    undone = last_undone(facts)
    if undone is None:
        return _wait("it gets the next free slot, within seconds")
    at, why = undone
    first = facts.settings.retry_seconds
    return _wait(
        f"the last attempt was undone at {rfc3339.whole_seconds(at)}: {why}; the next one comes"
        f" {first:.0f} s later, or after twice as long each time, up to an hour",
        retry_at=at + first if at + first > now else None,
    )


def last_undone(facts: NodeChangeFacts) -> tuple[float, str] | None:
    """When the open request's last attempt was undone, and why; None where no Event says so."""
    request = facts.node.request
    since = 0.0 if request is None else rfc3339.unix_seconds(request.since) or 0.0
    undone = [event for event in facts.events if event.reason == UNDONE and event.at >= since]
    if not undone:
        return None
    newest = max(undone, key=lambda event: event.at)
    return newest.at, newest.note.removeprefix("All is as it was: ").removesuffix(".")


def _not_idle(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    node = facts.node
    is_drift = node.request is not None and node.request.drift
    text = "it waits until the pods that use what would be destroyed have ended"
    if is_drift:
        text += "; no pod is evicted, since another program changed the layout back"
    command = drain_command(facts)
    if not is_drift and drain_of(facts.fleet, node, facts.settings) == DrainMode.WAIT:
        command = f"kubectl annotate --overwrite node {node.name} gpuscape.io/drain=evict"
        text += ". The command has them evicted, if all of them may go"
    return _wait(text, *users_in_the_way(facts), command=command)


def _cordoned(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    text = "somebody else cordoned the node: it gets no slot meanwhile"
    blocker = StageBlocker(kind=StageBlockerKind.CORDON, name=facts.node.name, text=text)
    return _wait(text, blocker, command=f"kubectl uncordon {facts.node.name}")


def _program(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    text = "a program that belongs to no pod uses what would be destroyed: it has to end"
    return _wait(text, *users_in_the_way(facts))


def _not_asked(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    return _wait(
        f"nobody but the agent of {facts.node.name} asks for a layout, so it gets no slot; the"
        " agent ends its request"
    )


def _not_judged(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del facts, now
    return _wait("the request is for an earlier layout: its agent evaluates the present one")


def _drain(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    text = f"the annotation gpuscape.io/drain has none of the values {', '.join(DrainMode)}"
    blocker = StageBlocker(kind=StageBlockerKind.SETTING, name=facts.node.drain[:64], text=text)
    command = f"kubectl annotate --overwrite node {facts.node.name} gpuscape.io/drain=wait"
    return _wait(text, blocker, command=command)


def _paused(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    text = "an admin paused all rollouts: no node begins"
    blocker = StageBlocker(kind=StageBlockerKind.PAUSE, name="", text=text)
    return _wait(text, blocker, command=rollout_command(facts, "resume"))


def _cordoned_nodes(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    others = [
        slot.record.node
        for slot in facts.fleet.slots
        if slot.record is not None and waits_cordoned(slot)
    ]
    limit = facts.settings.most_cordoned
    text = f"at most {limit} nodes may wait for their pods behind a cordon (cordoned-nodes)"
    blockers = (*_nodes(others, "It waits behind a cordon."), *users_in_the_way(facts))
    return _wait(text, *blockers, command=_why(others) or drain_command(facts))


def _window(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    opens = _next_opening(facts.settings, now)
    text = "it is outside the maintenance windows of the coordinator (window)"
    blocker = StageBlocker(kind=StageBlockerKind.WINDOW, name="", text=text)
    return _wait(text, blocker, retry_at=opens)


def _next_opening(settings: RolloutSettings, now: float) -> float | None:
    """When a window opens next: at a whole minute, within a week and a day."""
    start = now - now % _MINUTE
    minutes = (start + _MINUTE * count for count in range(1, _WEEK_MINUTES))
    return next(
        (
            moment
            for moment in minutes
            if any(window.is_open(moment) for window in settings.windows)
        ),
        None,
    )


def _breaker(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    counts = facts.fleet.memory.rollouts.get(rollout_id(facts.node.rollout))
    failed = 0 if counts is None else counts.failed
    text = f"failures stopped the rollout of this layout: {failed} nodes failed"
    blocker = StageBlocker(kind=StageBlockerKind.ROLLOUT, name=facts.node.rollout, text=text)
    return _wait(text, blocker, command=rollout_command(facts, "resume --after-failures"))


def _canary(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    rollout = facts.node.rollout
    counts = facts.fleet.memory.rollouts.get(rollout_id(rollout))
    if counts is not None and counts.proven_at:
        proven = counts.proven_at + facts.settings.canary_seconds
        text = "the first node of the rollout has the layout; the others follow after the canary"
        blocker = StageBlocker(kind=StageBlockerKind.ROLLOUT, name=rollout, text=text)
        return _wait(text, blocker, retry_at=proven)
    others = _in_change(facts, rollout)
    text = "the first node of the rollout goes alone, until it has the layout"
    blockers = _nodes(others, "It is the first node of the rollout.")
    return _wait(text, *blockers, command=_why(others))


def _away_limit(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    node, limit = facts.node, facts.settings.most_away
    away = [
        name
        for name, other in sorted(facts.fleet.nodes.items())
        if other.rollout == node.rollout and (other.away is not None or other.unschedulable)
    ]
    text = f"more than {limit} nodes of the rollout are not available (unavailable-limit)"
    command = f"kubectl describe node {away[0]}" if away else "kubectl get nodes"
    return _wait(
        text, *_nodes(away, "It is not ready, cordoned or in an upgrade."), command=command
    )


def _slot(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    del now
    if not facts.settings.slots:
        text = "the coordinator has no slots: no change begins (slots)"
        return _wait(text, StageBlocker(kind=StageBlockerKind.SETTING, name="slots", text=text))
    others = _in_change(facts)
    blockers = _nodes(others, "It has a slot.")
    return _wait("all slots are taken", *blockers, command=_why(others))


def _in_change(facts: NodeChangeFacts, rollout: str = "") -> list[str]:
    """Other nodes that have a slot, of this rollout or of all."""
    return [
        slot.record.node
        for slot in facts.fleet.slots
        if slot.record is not None and not slot.is_parked
        if not rollout or slot.record.rollout == rollout
    ]


def _nodes(names: list[str], text: str) -> tuple[StageBlocker, ...]:
    return tuple(StageBlocker(kind=StageBlockerKind.NODE, name=name, text=text) for name in names)


def _why(others: list[str]) -> str:
    return f"gpuscape mig why {others[0]}" if others else ""


_EXPLAINED: Final[
    Mapping[WaitReason | None, Callable[[NodeChangeFacts, float], ChangeStanding]]
] = {
    None: _next_slot,
    WaitReason.RETRY: _next_slot,
    WaitReason.NOT_IDLE: _not_idle,
    WaitReason.DRIFT: _not_idle,
    WaitReason.CORDONED: _cordoned,
    WaitReason.PROGRAM: _program,
    WaitReason.NOT_ASKED: _not_asked,
    WaitReason.NOT_JUDGED: _not_judged,
    WaitReason.DRAIN: _drain,
    WaitReason.PAUSED: _paused,
    WaitReason.CORDONED_NODES: _cordoned_nodes,
    WaitReason.WINDOW: _window,
    WaitReason.BREAKER: _breaker,
    WaitReason.CANARY: _canary,
    WaitReason.AWAY_LIMIT: _away_limit,
    WaitReason.SLOT: _slot,
}
