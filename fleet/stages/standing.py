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
from base.text.number_ranges import number_ranges
from fleet.policy.assigned_layouts import Assignment
from fleet.stages.change_standing import standing_in_change
from fleet.stages.in_the_way import failed_gpus_in_the_way
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.slot_waits import slot_wait
from fleet.stages.stage import ChangeStanding, StageBlocker, StageBlockerKind, StageName
from fleet.status.node_layout import NodeLayout
from fleet.turns.change_progress import reported_end

_NOTHING: Final = (
    f"no layout is desired: neither the annotation {keys.MIG_LAYOUT} nor the label"
    f" {keys.MIG_CONFIG} states one"
)
_BY_ACTUATOR: Final = (Outcome.REFUSED, Outcome.EXPIRED)


def standing(facts: NodeChangeFacts, now: float) -> ChangeStanding:
    """The stage at which the Node's change stands, and why; ``now``: seconds since 1970."""
    record, layout = facts.record, facts.layout
    if record is not None:
        current = standing_in_change(facts, record, now)
    elif layout is None or (layout.desired is None and not layout.damaged):
        current = _nothing(facts)
    else:
        current = _without_record(facts, layout, now)
    return _with_agent(facts, current, now)


def _with_agent(facts: NodeChangeFacts, current: ChangeStanding, now: float) -> ChangeStanding:
    """Name an agent that does not run, where the change needs it."""
    is_over = current.stage in (None, StageName.DESIRED)
    if is_over or not facts.agent.is_silent(now) or facts.node.status is None:
        return current
    renewed = facts.agent.renewed_at
    text = "its agent has no Lease"
    if renewed is not None:
        text = f"its agent has not renewed its Lease for {now - renewed:.0f} s"
    blocker = StageBlocker(kind=StageBlockerKind.AGENT, name=facts.agent.pod, text=text)
    return replace(current, blockers=(*current.blockers, blocker))


def _nothing(facts: NodeChangeFacts) -> ChangeStanding:
    status = facts.node.status
    if status is not None and status.outcome == Outcome.STUCK:
        return _stuck(facts, status)
    blockers = tuple(_policy_blockers(facts))
    command = f"gpuscape mig rollout plan all-balanced --node {facts.node.name}"
    if blockers:
        command = policy_command(facts)
    return _at(StageName.DESIRED, _NOTHING, *blockers, command=command)


def policy_command(facts: NodeChangeFacts) -> str:
    """Command that opens the fleet policy, where it is paused, resumed and mended."""
    return f"kubectl -n {facts.namespace} edit configmap {names.MIG_POLICY}"


def _policy_blockers(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    """Why the fleet policy has not written a layout for the Node."""
    policy, of_node = facts.policy, facts.policy.assigned
    if policy.problem:
        text = f"the fleet policy has a mistake, so it writes nothing: {policy.problem}"
        yield StageBlocker(kind=StageBlockerKind.LAYOUT, name="", text=text)
    if of_node is None:
        return
    entries = ", ".join(of_node.entries)
    if of_node.assignment is Assignment.DISPUTED:
        text = "these entries of the fleet policy have different layouts: none is written"
        yield StageBlocker(kind=StageBlockerKind.LAYOUT, name=entries, text=text)
    elif of_node.assignment is Assignment.DUE and policy.paused:
        text = "this entry of the fleet policy has a layout, and the policy is paused"
        yield StageBlocker(kind=StageBlockerKind.PAUSE, name=entries, text=text)


def _without_record(facts: NodeChangeFacts, layout: NodeLayout, now: float) -> ChangeStanding:
    status, name = layout.status, facts.node.name
    if layout.damaged:
        damaged = (keys.MIG_STATUS, keys.MIG_REQUEST, keys.MIG_PERMIT)
        notes = [f"{key}-" for key in damaged if f"{key} is damaged" in layout.damaged]
        command = f"kubectl annotate node {name} {' '.join(notes)}" if notes else ""
        return _at(StageName.EVALUATED, layout.damaged, command=command)
    if status is None or layout.is_stale:
        return _unevaluated(facts, layout)
    match status.phase:
        case MigPhase.IDLE:
            return _nothing(facts)
        case MigPhase.UNADOPTED:
            command = f"kubectl label --overwrite node {name} {keys.MIG_ADOPT}=matching"
            return _at(StageName.DESIRED, status.reason, command=command)
        case MigPhase.UNCHANGED:
            return _unchanged(facts, layout)
        case MigPhase.UNREAD:
            blocker = StageBlocker(kind=StageBlockerKind.GPU, name="", text=status.reason)
            command = f"gpuscape doctor node {name}"
            return _at(StageName.EVALUATED, "GPUs cannot be read", blocker, command=command)
        case MigPhase.REFUSED if status.gpus and status.outcome in _BY_ACTUATOR:
            return _tried_later(facts, status)
        case MigPhase.REFUSED:
            return _refused(facts, layout, status)
        case MigPhase.PLANNED:
            return _planned(facts, status)
        case MigPhase.FAILED:
            return _tried_later(facts, status)
        case MigPhase.STUCK:
            return _stuck(facts, status)
        case MigPhase.WAITING if _is_asking(facts):
            return slot_wait(facts, now)
        case MigPhase.WAITING:
            return _at(StageName.REQUESTED, status.reason or "its agent makes a request")
        case MigPhase.CHANGING:
            return _changing(facts, status)
        case _:
            text = ": ".join(part for part in (f"phase {status.phase}", status.reason) if part)
            return _at(StageName.EVALUATED, text)


def _is_asking(facts: NodeChangeFacts) -> bool:
    request = facts.node.request
    return request is not None and reported_end(facts.node, request.request) is None


def _at(stage: StageName, text: str, *blockers: StageBlocker, command: str = "") -> ChangeStanding:
    return ChangeStanding(stage=stage, text=text, blockers=blockers, command=command)


def _unevaluated(facts: NodeChangeFacts, layout: NodeLayout) -> ChangeStanding:
    text = "its agent evaluates a desired layout 10 s after its last change"
    if layout.status is None:
        text = "no agent that manages MIG has evaluated it"
    command = facts.agent_command("logs", "-c agent --tail=50")
    blocker = StageBlocker(kind=StageBlockerKind.AGENT, name=facts.agent.pod, text="")
    return _at(StageName.EVALUATED, text, blocker, command=command)


def _unchanged(facts: NodeChangeFacts, layout: NodeLayout) -> ChangeStanding:
    if layout.unlisted:
        text = f"the device plugin does not list all of {', '.join(layout.unlisted)}"
        plugins = [pod for pod in facts.pods if pod.is_plugin]
        command = f"kubectl -n {plugins[0].namespace} logs {plugins[0].name}" if plugins else ""
        blockers = (
            StageBlocker(kind=StageBlockerKind.POD, name=f"{pod.namespace}/{pod.name}", text=text)
            for pod in plugins
        )
        return _at(StageName.ALLOCATABLE, text, *blockers, command=command)
    kept = "; pods are kept away by the startup taint" if layout.has_startup_taint else ""
    failed = f"; {layout.failed}" if layout.failed else ""
    return ChangeStanding(stage=None, text=f"the GPUs have the desired layout{failed}{kept}")


def _refused(
    facts: NodeChangeFacts, layout: NodeLayout, status: MigStatusAnnotation
) -> ChangeStanding:
    desired = shlex.quote(layout.desired or "")
    command = f"gpuscape mig rollout plan {desired} --node {facts.node.name}"
    if facts.agent.pod:
        command = facts.agent_command("exec", f"-c agent -- gpuscape mig plan {desired}")
    blocker = StageBlocker(kind=StageBlockerKind.LAYOUT, name="", text=status.reason)
    return _at(StageName.EVALUATED, "the layout is refused", blocker, command=command)


def _planned(facts: NodeChangeFacts, status: MigStatusAnnotation) -> ChangeStanding:
    if status.outcome == Outcome.CANCELLED and not status.reason:
        return _at(StageName.REQUESTED, "the last request was cancelled; the next one follows")
    blocker = StageBlocker(kind=StageBlockerKind.ACTUATOR, name=facts.agent.pod, text=status.reason)
    command = facts.agent_command("logs", "--all-containers --tail=50")
    return _at(StageName.REQUESTED, "there is a plan, and no request", blocker, command=command)


def _tried_later(facts: NodeChangeFacts, status: MigStatusAnnotation) -> ChangeStanding:
    text = f"the last request ended: {status.outcome or status.phase}; the GPUs are as before it"
    blocker = StageBlocker(kind=StageBlockerKind.ACTUATOR, name=facts.agent.pod, text=status.reason)
    command = facts.agent_command("logs", "-c actuator --tail=50")
    gpus = failed_gpus_in_the_way(status) if failed_gpus(status) else ()
    current = _at(StageName.REQUESTED, text, blocker, *gpus, command=command)
    return replace(current, retry_at=retry_time(status.reason))


def _stuck(facts: NodeChangeFacts, status: MigStatusAnnotation) -> ChangeStanding:
    command = facts.agent_command("exec", "-c actuator -- gpuscape mig restore")
    text = "stuck: some GPUs could reach neither the desired nor the previous layouts"
    return _at(StageName.CHANGED, text, *failed_gpus_in_the_way(status), command=command)


def _changing(facts: NodeChangeFacts, status: MigStatusAnnotation) -> ChangeStanding:
    gpus = number_ranges(gpu.gpu for gpu in status.gpus)
    text = status.reason or f"the actuator changes GPU {gpus}"
    command = facts.agent_command("logs", "-c actuator --tail=50")
    return _at(StageName.CHANGED, text, command=command)
