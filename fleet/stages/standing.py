# SPDX-License-Identifier: Apache-2.0
"""The stage at which a Node's MIG change stands, and who is in the way. Pure.

While no change is open, the agent's status decides; afterwards the coordinator's record and its
own next effect (:func:`fleet.mig_change.next_effect`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from api import keys, names
from api.mig_outcome import Outcome
from api.mig_status_annotation import MigPhase, MigStatusAnnotation, failed_gpus, retry_time
from fleet.policy.assigned_layouts import Assignment
from fleet.stages.change_standing import changing, standing_in_change
from fleet.stages.in_the_way import failed_gpus_in_the_way, waits_for_a_person, waits_for_pods
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.slot_waits import slot_wait
from fleet.stages.stage import Stage, StageBlocker, StageBlockerKind, StageName, standing_at
from fleet.status.node_layout import NodeLayout
from fleet.turns.change_progress import is_asking

_NOTHING: Final = (
    f"no layout is desired: neither the annotation {keys.MIG_LAYOUT} nor the label"
    f" {keys.MIG_CONFIG} states one"
)
_STUCK: Final = "some GPUs could reach neither the desired nor the previous layouts"
_BY_ACTUATOR: Final = (Outcome.REFUSED, Outcome.EXPIRED)


def standing(facts: NodeChangeFacts, now: float) -> Stage | None:
    """The stage at which the Node's change stands, and why; None: nothing remains to be done.

    ``now``: seconds since 1970.
    """
    change, layout = facts.change, facts.layout
    current: Stage | None
    if change is not None:
        current = standing_in_change(facts, change, now)
    elif layout is None or (layout.desired is None and not layout.damaged):
        current = _nothing(facts)
    else:
        current = _without_record(facts, layout, now)
    return None if current is None else _with_agent(facts, current, now)


def _with_agent(facts: NodeChangeFacts, current: Stage, now: float) -> Stage:
    """Name an agent that does not run, where the change needs it."""
    is_needed = current.name is not StageName.DESIRED and facts.node.status is not None
    if not is_needed or not facts.agent.is_silent(now):
        return current
    lease = facts.agent.lease
    renewed = None if lease is None else lease.renewed_at
    text = "its agent has no Lease"
    if renewed is not None:
        text = f"its agent has not renewed its Lease for {now - renewed:.0f} s"
    blocker = StageBlocker(StageBlockerKind.AGENT, facts.agent.pod, text)
    return replace(current, blockers=(*current.blockers, blocker))


def _nothing(facts: NodeChangeFacts) -> Stage:
    status = facts.node.status
    if status is not None and status.outcome == Outcome.STUCK:
        return waits_for_a_person(facts, _STUCK)
    blockers = tuple(_policy_blockers(facts))
    plan_command = f"gpuscape mig rollout plan all-balanced --node {facts.node.name}"
    command = policy_command(facts) if blockers else plan_command
    return standing_at(StageName.DESIRED, _NOTHING, *blockers, command=command)


def policy_command(facts: NodeChangeFacts) -> str:
    """Command that opens the fleet policy, where it is paused, resumed and mended."""
    return f"kubectl -n {facts.namespace} edit configmap {names.MIG_POLICY}"


def _policy_blockers(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    """Why the fleet policy has not written a layout for the Node."""
    policy, of_node = facts.policy, facts.policy.assigned
    if policy.problem:
        text = f"the fleet policy has a mistake, so it writes nothing: {policy.problem}"
        yield StageBlocker(StageBlockerKind.LAYOUT, text=text)
    if of_node is None:
        return
    entries = ", ".join(of_node.entries)
    if of_node.assignment is Assignment.DISPUTED:
        text = "these entries of the fleet policy have different layouts: none is written"
        yield StageBlocker(StageBlockerKind.LAYOUT, entries, text)
    elif of_node.assignment is Assignment.DUE and policy.paused:
        text = "this entry of the fleet policy has a layout, and the policy is paused"
        yield StageBlocker(StageBlockerKind.PAUSE, entries, text)


def _without_record(facts: NodeChangeFacts, layout: NodeLayout, now: float) -> Stage | None:
    status, name = layout.status, facts.node.name
    if layout.damaged:
        damaged = (keys.MIG_STATUS, keys.MIG_REQUEST, keys.MIG_PERMIT)
        notes = [f"{key}-" for key in damaged if f"{key} is damaged" in layout.damaged]
        command = f"kubectl annotate node {name} {' '.join(notes)}" if notes else ""
        return standing_at(StageName.EVALUATED, layout.damaged, command=command)
    if status is None or layout.is_stale:
        return _unevaluated(facts, layout)
    match status.phase:
        case MigPhase.IDLE:
            return _nothing(facts)
        case MigPhase.UNADOPTED:
            command = f"kubectl label --overwrite node {name} {keys.MIG_ADOPT}=matching"
            return standing_at(StageName.DESIRED, status.reason, command=command)
        case MigPhase.UNCHANGED:
            return _unchanged(facts, layout)
        case MigPhase.UNREAD:
            blocker = StageBlocker(StageBlockerKind.GPU, text=status.reason)
            command = f"gpuscape doctor node {name}"
            return standing_at(StageName.EVALUATED, "GPUs cannot be read", blocker, command=command)
        case MigPhase.REFUSED if not status.gpus or status.outcome not in _BY_ACTUATOR:
            return _refused(facts, layout, status)
        case MigPhase.REFUSED | MigPhase.FAILED:
            return _tried_later(facts, status)
        case MigPhase.PLANNED:
            return _planned(facts, status)
        case MigPhase.STUCK:
            return waits_for_a_person(facts, _STUCK)
        case MigPhase.WAITING if is_asking(facts.node):
            return slot_wait(facts, now)
        case MigPhase.WAITING:
            return standing_at(StageName.REQUESTED, status.reason or "its agent makes a request")
        case MigPhase.CHANGING | MigPhase.REBOOTING:
            return changing(facts, None, now)
        case _:
            text = ": ".join(part for part in (f"phase {status.phase}", status.reason) if part)
            return standing_at(StageName.EVALUATED, text)


def _unevaluated(facts: NodeChangeFacts, layout: NodeLayout) -> Stage:
    text = "its agent evaluates a desired layout 10 s after its last change"
    if layout.status is None:
        text = "no agent that manages MIG has evaluated it"
    blocker = StageBlocker(StageBlockerKind.AGENT, facts.agent.pod)
    return standing_at(StageName.EVALUATED, text, blocker, command=facts.logs_command("agent"))


def _unchanged(facts: NodeChangeFacts, layout: NodeLayout) -> Stage | None:
    if not layout.unlisted:
        return None
    text = f"the device plugin does not list all of {', '.join(layout.unlisted)}"
    return waits_for_pods(StageName.ALLOCATABLE, text, facts.plugins, text)


def _refused(facts: NodeChangeFacts, layout: NodeLayout, status: MigStatusAnnotation) -> Stage:
    desired = shlex.quote(layout.desired or "")
    command = f"gpuscape mig rollout plan {desired} --node {facts.node.name}"
    if facts.agent.pod:
        command = facts.agent_command("exec", f"-c agent -- gpuscape mig plan {desired}")
    blocker = StageBlocker(StageBlockerKind.LAYOUT, text=status.reason)
    return standing_at(StageName.EVALUATED, "the layout is refused", blocker, command=command)


def _planned(facts: NodeChangeFacts, status: MigStatusAnnotation) -> Stage:
    if status.outcome == Outcome.CANCELLED and not status.reason:
        text = "the last request was cancelled; the next one follows"
        return standing_at(StageName.REQUESTED, text)
    blocker = StageBlocker(StageBlockerKind.ACTUATOR, facts.agent.pod, status.reason)
    command = facts.agent_command("logs", "--all-containers --tail=50")
    text = "there is a plan, and no request"
    return standing_at(StageName.REQUESTED, text, blocker, command=command)


def _tried_later(facts: NodeChangeFacts, status: MigStatusAnnotation) -> Stage:
    blocker = StageBlocker(StageBlockerKind.ACTUATOR, facts.agent.pod, status.reason)
    gpus = failed_gpus_in_the_way(status) if failed_gpus(status) else ()
    return standing_at(
        StageName.REQUESTED,
        f"the last request ended: {status.outcome or status.phase}; the GPUs are as before it",
        blocker,
        *gpus,
        command=facts.logs_command("actuator"),
        retry_at=retry_time(status.reason),
    )
