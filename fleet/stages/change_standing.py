# SPDX-License-Identifier: Apache-2.0
"""The stage of a change that the coordinator has open, by its record and next effect. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import MigPhase
from base.text.number_ranges import number_ranges
from fleet.change_effects import ChangeEffect, FreeSlot, NodeWrite, PatchNode
from fleet.drain.gpu_usage import is_idle, usage_of
from fleet.mig_change import ChangeView, DrainEvaluation, next_effect
from fleet.mig_node import DrainMode
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import is_counted
from fleet.stages.in_the_way import drain_command, failed_gpus_in_the_way, users_in_the_way
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import ChangeStanding, StageBlocker, StageBlockerKind, StageName
from fleet.turns.change_progress import (
    is_paused,
    may_have_begun,
    passed,
    phase_of,
    reported_end,
)

_TOUCHED: Final = (Outcome.APPLIED, Outcome.ROLLED_BACK)


def change_view(facts: NodeChangeFacts, record: RollbackRecord, now: float) -> ChangeView:
    """The change as the coordinator would see it, with all reads made now."""
    slot, plan = facts.slot, facts.drain_plan
    evaluation = None if plan is None else DrainEvaluation(evaluated_at=now, plan=plan)
    return ChangeView(
        record=record,
        has_lease=slot is not None,
        parked=slot is not None and slot.is_parked,
        node=facts.node,
        pods=facts.pods,
        usage=usage_of(facts.pods, now),
        drain_evaluation=evaluation,
        is_counted=is_counted(facts.fleet.memory, record.rollout, record.uid, record.request),
    )


def standing_in_change(
    facts: NodeChangeFacts, record: RollbackRecord, now: float
) -> ChangeStanding:
    """The stage at which the change of this record stands, and why."""
    node = facts.node
    effect = next_effect(change_view(facts, record, now), facts.settings, now)
    end = record.outcome or reported_end(node, record.request)
    if end is not None:
        current = _ended(facts, record, end, effect)
    elif may_have_begun(node, record):
        current = _begun(facts, record, now)
    else:
        current = _not_begun(facts, record, effect)
    return current if facts.coordinator.acts(now) else _without_coordinator(facts, current)


def _without_coordinator(facts: NodeChangeFacts, current: ChangeStanding) -> ChangeStanding:
    coordinator = facts.coordinator
    if coordinator.problem and not coordinator.holder:
        return current
    text = f"no coordinator acts in namespace {facts.namespace}: nothing goes on before one does"
    blocker = StageBlocker(kind=StageBlockerKind.COORDINATOR, name=coordinator.holder, text=text)
    blockers = (blocker, *current.blockers)
    return replace(current, blockers=blockers, command=facts.coordinator_command)


def _not_begun(
    facts: NodeChangeFacts, record: RollbackRecord, effect: ChangeEffect
) -> ChangeStanding:
    is_cordoned = phase_of(facts.node, record) is PermitPhase.CORDONED
    undone = _undone_why(effect)
    if undone is not None:
        stage = StageName.DRAINED if is_cordoned else StageName.CORDONED
        text = f"the attempt is undone: {undone}"
        users = users_in_the_way(facts)
        return _at(stage, text, *users, command=drain_command(facts))
    if not is_cordoned:
        return _at(StageName.CORDONED, "the coordinator cordons the node next")
    request = facts.node.request
    if request is not None and is_idle(request, usage_of(facts.pods)):
        return _idle(facts, record, effect)
    return _draining(facts, record)


def _undone_why(effect: ChangeEffect) -> str | None:
    """Why the next effect puts everything back; None where it does not."""
    match effect:
        case PatchNode(purpose=NodeWrite.ROLL_BACK, why=why):
            return why
        case FreeSlot(outcome=outcome):
            return outcome
        case _:
            return None


def _idle(facts: NodeChangeFacts, record: RollbackRecord, effect: ChangeEffect) -> ChangeStanding:
    if isinstance(effect, PatchNode) and effect.purpose is NodeWrite.PAUSE:
        return _at(StageName.PAUSED, "the GPU operator's parts that keep GPUs open pause next")
    plugins = [pod for pod in facts.pods if pod.is_plugin]
    if effect is None and plugins and is_paused(facts.node, record):
        text = "the operator has not taken the device plugin's pod away yet"
        names = [f"{pod.namespace}/{pod.name}" for pod in plugins]
        command = f"kubectl -n {plugins[0].namespace} describe pod {plugins[0].name}"
        return _at(
            StageName.PAUSED, text, *_pods(names, "It keeps all GPUs open."), command=command
        )
    if effect is None:
        text = "the node is idle: its pods are read once more, some seconds after the cordon"
        return _at(StageName.DRAINED, text)
    if record.drain == DrainMode.NODE and facts.drain_plan and not facts.drain_plan.is_done:
        return _draining(facts, record)
    stage = StageName.PAUSED if record.labels else StageName.DRAINED
    return _at(stage, "nobody is in the way: the permit to proceed comes next")


def _pods(names: list[str], text: str) -> tuple[StageBlocker, ...]:
    return tuple(StageBlocker(kind=StageBlockerKind.POD, name=name, text=text) for name in names)


def _draining(facts: NodeChangeFacts, record: RollbackRecord) -> ChangeStanding:
    text = "pods came after the cordon was decided: they are waited for, and then all is undone"
    if record.drain_at:
        text = "pods were asked to leave; the deadline ends the attempt"
    elif record.drain == DrainMode.CORDON:
        text = "it waits behind the cordon until the pods in the way have ended"
    elif record.drain in (DrainMode.EVICT, DrainMode.NODE):
        text = "pods are to leave, all of them or none"
    users = users_in_the_way(facts)
    if not users and facts.drain_plan is not None:
        leaving = (*facts.drain_plan.evict, *facts.drain_plan.awaited)
        users = _pods([pod.meta.full_name for pod in leaving], "It has to leave.")
    return _at(StageName.DRAINED, text, *users, command=drain_command(facts))


def _begun(facts: NodeChangeFacts, record: RollbackRecord, now: float) -> ChangeStanding:
    status, request = facts.node.status, facts.node.request
    gpus = "" if request is None else f" GPU {number_ranges(request.gpus)}"
    command = facts.agent_command("logs", "-c actuator --tail=50")
    blockers: tuple[StageBlocker, ...] = ()
    if status is None or status.phase != MigPhase.CHANGING:
        text = "the permit to proceed is there; the agent has not begun, as far as it says"
        blockers = (StageBlocker(kind=StageBlockerKind.AGENT, name=facts.agent.pod, text=""),)
        command = facts.agent_command("logs", "-c agent --tail=50")
    else:
        text = f"the actuator changes{gpus}"
        if status.reason:
            blockers = (
                StageBlocker(
                    kind=StageBlockerKind.ACTUATOR, name=facts.agent.pod, text=status.reason
                ),
            )
    if record.proceed_at and passed(record.proceed_at, now) > facts.settings.end_seconds:
        minutes = facts.settings.end_seconds / 60
        text += (
            f". It is late: it counts as failed after {minutes:.0f} min, and the node stays as it"
            " is until its agent reports an outcome"
        )
    return _at(StageName.CHANGED, text, *blockers, command=command)


def _ended(
    facts: NodeChangeFacts, record: RollbackRecord, end: str, effect: ChangeEffect
) -> ChangeStanding:
    node = facts.node
    if end == Outcome.STUCK:
        blockers = failed_gpus_in_the_way(node.status)
        text = "stuck: the node stays cordoned until a person has ended the change"
        command = facts.agent_command("exec", "-c actuator -- gpuscape mig restore")
        return _at(StageName.CHANGED, text, *blockers, command=command)
    is_registering = end in _TOUCHED and facts.slot is not None
    if is_registering and not isinstance(effect, PatchNode | FreeSlot):
        return _registering(facts, record, end)
    text = f"the request ended: {end}; the coordinator gives the node back"
    if node.keeps_cordon:
        text += ", and leaves it cordoned (gpuscape.io/keep-cordoned)"
    return _at(StageName.UNCORDONED, text)


def _registering(facts: NodeChangeFacts, record: RollbackRecord, end: str) -> ChangeStanding:
    plugins = [pod for pod in facts.pods if pod.is_plugin]
    expected = record.allocatable if end == Outcome.APPLIED else record.allocatable_before
    text = f"the device plugin restarts (attempt {record.restarts} of {facts.settings.restarts})"
    if expected:
        text += f": the node offers {_offers(dict(facts.node.allocatable))}, {_expects(expected)}"
    names = [f"{pod.namespace}/{pod.name}" for pod in plugins]
    command = f"kubectl -n {plugins[0].namespace} logs {plugins[0].name}" if plugins else ""
    return _at(
        StageName.ALLOCATABLE, text, *_pods(names, "It is the device plugin."), command=command
    )


def _expects(expected: dict[str, int]) -> str:
    return f"and is to offer {_offers(expected)}"


def _offers(amounts: dict[str, int]) -> str:
    return ", ".join(f"{name}={count}" for name, count in sorted(amounts.items())) or "nothing"


def _at(stage: StageName, text: str, *blockers: StageBlocker, command: str = "") -> ChangeStanding:
    return ChangeStanding(stage=stage, text=text, blockers=blockers, command=command)
