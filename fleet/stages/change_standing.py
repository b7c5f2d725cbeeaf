# SPDX-License-Identifier: Apache-2.0
"""The stage of a change that the coordinator has open, by its record and next effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import MigPhase
from base.text.number_ranges import number_ranges
from fleet.change_effects import ChangeEffect, FreeSlot, NodeWrite, PatchNode
from fleet.drain.gpu_usage import is_idle, usage_of
from fleet.mig_change import ChangeView, longest_change, next_effect
from fleet.mig_node import DrainMode, UnavailableReason
from fleet.rollback_record import RollbackRecord
from fleet.stages.in_the_way import (
    drain_command,
    users_in_the_way,
    waits_for_a_person,
    waits_for_pods,
)
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageBlocker, StageBlockerKind, StageName, standing_at
from fleet.turns.change_progress import (
    TOUCHED,
    allocatable_after,
    awaits_boot,
    clients_of,
    end_of,
    is_paused,
    may_have_begun,
    passed,
    phase_of,
)

_BOOT: Final = "It has to boot: kured boots it if its --reboot-sentinel is that file."


def standing_in_change(facts: NodeChangeFacts, change: ChangeView, now: float) -> Stage:
    """The stage at which this change of the Node stands, and why, with all reads made now."""
    node, record, plan = facts.node, change.record, facts.drain_plan
    plan = None if plan is None else replace(plan, evaluated_at=now)
    change = replace(change, usage=usage_of(facts.pods, now), drain_plan=plan)
    effect = next_effect(change, facts.settings, now)
    end = end_of(node, record)
    if end is not None:
        current = _ended(facts, record, end, effect)
    elif may_have_begun(node, record):
        current = changing(facts, record, now)
    else:
        current = _not_begun(facts, record, effect)
    return current if facts.coordinator.acts(now) else _without_coordinator(facts, current)


def _without_coordinator(facts: NodeChangeFacts, current: Stage) -> Stage:
    coordinator = facts.coordinator
    if coordinator.problem and not coordinator.holder:
        return current
    text = f"no coordinator acts in namespace {facts.namespace}: nothing goes on before one does"
    blocker = StageBlocker(StageBlockerKind.COORDINATOR, coordinator.holder, text)
    blockers = (blocker, *current.blockers)
    return replace(current, blockers=blockers, command=facts.coordinator_command)


def _not_begun(facts: NodeChangeFacts, record: RollbackRecord, effect: ChangeEffect) -> Stage:
    is_cordoned = phase_of(facts.node, record) is PermitPhase.CORDONED
    request = facts.node.request
    match effect:
        case PatchNode(purpose=NodeWrite.ROLL_BACK, why=why) | FreeSlot(outcome=why):
            stage = StageName.DRAINED if is_cordoned else StageName.CORDONED
            text, users = f"the attempt is undone: {why}", users_in_the_way(facts)
            return standing_at(stage, text, *users, command=drain_command(users))
        case _ if not is_cordoned:
            return standing_at(StageName.CORDONED, "the coordinator cordons the node next")
        case _ if request is not None and is_idle(request, usage_of(facts.pods)):
            return _idle(facts, record, effect)
        case _:
            return _draining(facts, record)


def _idle(facts: NodeChangeFacts, record: RollbackRecord, effect: ChangeEffect) -> Stage:
    match effect:
        case PatchNode(purpose=NodeWrite.PAUSE):
            text = "the GPU operator's parts that keep GPUs open pause next"
            return standing_at(StageName.PAUSED, text)
        case None if is_paused(facts.node, record) and (clients := clients_of(record, facts.pods)):
            text = "the GPU operator has not taken the pods of its paused parts away yet"
            why = "It keeps GPUs open."
            return waits_for_pods(StageName.PAUSED, text, clients, why, "describe pod")
        case None:
            text = "the node is idle: its pods are read once more, some seconds after the cordon"
            return standing_at(StageName.DRAINED, text)
    if record.drain == DrainMode.NODE and facts.drain_plan and not facts.drain_plan.is_done:
        return _draining(facts, record)
    stage = StageName.PAUSED if record.labels else StageName.DRAINED
    return standing_at(stage, "nobody is in the way: the permit to proceed comes next")


def _draining(facts: NodeChangeFacts, record: RollbackRecord) -> Stage:
    text = "pods came after the cordon was decided: they are waited for, and then all is undone"
    if record.drain_at:
        text = "pods were asked to leave; the deadline ends the attempt"
    elif record.drain == DrainMode.CORDON:
        text = "it waits behind the cordon until the pods in the way have ended"
    elif record.drain in (DrainMode.EVICT, DrainMode.NODE):
        text = "pods are to leave, all of them or none"
    users = users_in_the_way(facts)
    if not users and (plan := facts.drain_plan) is not None:
        pods, why = (*plan.evict, *plan.awaited), "It has to leave."
        users = tuple(StageBlocker(StageBlockerKind.POD, pod.meta.full_name, why) for pod in pods)
    return standing_at(StageName.DRAINED, text, *users, command=drain_command(users))


def changing(facts: NodeChangeFacts, record: RollbackRecord | None, now: float) -> Stage:
    """The standing of a change that the agent may have begun; without a record it has."""
    status, request = facts.node.status, facts.node.request
    if record is not None and status is not None and awaits_boot(facts.node, record):
        text = status.reason
        blockers = [StageBlocker(StageBlockerKind.NODE, facts.node.name, _BOOT)]
        command = f"kubectl describe node {facts.node.name}"
    elif status is None or status.phase != MigPhase.CHANGING:
        text = "the permit to proceed is there; the agent has not begun, as far as it says"
        blockers = [StageBlocker(StageBlockerKind.AGENT, facts.agent.pod)]
        command = facts.logs_command("agent")
    else:
        gpus = [gpu.gpu for gpu in status.gpus] if request is None else request.gpus
        text = f"the actuator changes GPU {number_ranges(gpus)}"
        actuator = StageBlocker(StageBlockerKind.ACTUATOR, facts.agent.pod, status.reason)
        blockers = [actuator] if status.reason else []
        command = facts.logs_command("actuator")
    if record is not None:
        text += _if_late(facts, record, now)
    return standing_at(StageName.CHANGED, text, *blockers, command=command)


def _if_late(facts: NodeChangeFacts, record: RollbackRecord, now: float) -> str:
    """The end of a sentence on a change that takes too long; empty for another one."""
    limit = longest_change(record, facts.settings)
    if not record.proceed_at or passed(record.proceed_at, now) <= limit:
        return ""
    return (
        f". It is late: it counts as failed after {limit / 60:.0f} min, and the node stays as it is"
        " until its agent reports an outcome"
    )


def _ended(facts: NodeChangeFacts, record: RollbackRecord, end: str, effect: ChangeEffect) -> Stage:
    if end == Outcome.STUCK:
        text = "the node stays cordoned until a person has ended the change"
        return waits_for_a_person(facts, text)
    is_registering = end in TOUCHED and facts.slot is not None
    if is_registering and not isinstance(effect, PatchNode | FreeSlot):
        return _registering(facts, record, end)
    text = f"the request ended: {end}; the coordinator gives the node back"
    if facts.node.away is UnavailableReason.REBOOT:
        text += " once kured has booted it"
    if facts.node.keeps_cordon:
        text += ", and leaves it cordoned (gpuscape.io/keep-cordoned)"
    return standing_at(StageName.UNCORDONED, text)


def _registering(facts: NodeChangeFacts, record: RollbackRecord, end: str) -> Stage:
    expected = allocatable_after(record, end)
    text = f"the device plugin restarts (attempt {record.restarts} of {facts.settings.restarts})"
    if expected:
        offered = _offers(dict(facts.node.allocatable))
        text += f": the node offers {offered}, and is to offer {_offers(expected)}"
    why = "It is the device plugin."
    return waits_for_pods(StageName.ALLOCATABLE, text, facts.plugins, why)


def _offers(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={count}" for name, count in sorted(amounts.items())) or "nothing"
