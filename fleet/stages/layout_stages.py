# SPDX-License-Identifier: Apache-2.0
"""The story of a Node's MIG layout: one stage after the other, from what is desired. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from api import keys
from api.mig_outcome import Outcome
from api.mig_status_annotation import MigPhase, failed_text, instance_counts
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageName, StageState
from fleet.stages.stage_times import stage_ends
from fleet.stages.standing import standing
from fleet.turns.change_progress import TOUCHED, end_of

_ORDER: Final = tuple(StageName)
_OF_A_CHANGE: Final = _ORDER[_ORDER.index(StageName.REQUESTED) : _ORDER.index(StageName.VERIFIED)]


def layout_stages(facts: NodeChangeFacts, now: float) -> tuple[Stage, ...]:
    """All stages in their order, as they are at ``now`` in seconds since 1970.

    At most one stage is ``now``; without one nothing remains to be done.
    """
    current, ends = standing(facts, now), stage_ends(facts)
    states = _states(facts, None if current is None else current.name)
    stages: list[Stage] = []
    started_at: float | None = None
    for name, state in states.items():
        is_done = state is StageState.DONE
        ended_at = ends.get(name) if is_done else None
        until = now if state is StageState.NOW else ended_at
        seconds = None if until is None or started_at is None else max(0.0, until - started_at)
        stage = Stage(name=name, state=state, text=_text(facts, name, state))
        if current is not None and state is StageState.NOW:
            stage = current
        unread = tuple(fact.text for fact in facts.unread if fact.stage is name)
        stages.append(replace(stage, ended_at=ended_at, seconds=seconds, unread=unread))
        if is_done:
            started_at = ended_at
    return tuple(stages)


def _states(facts: NodeChangeFacts, current: StageName | None) -> Mapping[StageName, StageState]:
    place = len(_ORDER) if current is None else _ORDER.index(current)
    states = dict.fromkeys(_ORDER[:place], StageState.DONE)
    if current is not None:
        states |= {current: StageState.NOW}
    states |= dict.fromkeys(_ORDER[place + 1 :], StageState.AHEAD)
    for name in _not_needed(facts, place):
        if name is not current:
            states[name] = StageState.NOT_NEEDED
    # nothing is left of the record of a change that is over
    if place > _ORDER.index(StageName.CHANGED) and facts.slot is None and _was_changed(facts):
        states[StageName.PAUSED] = StageState.UNKNOWN
    return states


def _not_needed(facts: NodeChangeFacts, place: int) -> Collection[StageName]:
    """Stages that the change does without."""
    record, node = facts.record, facts.node
    if record is not None:
        ended = end_of(node, record)
        names = {StageName.PAUSED} if not record.labels else set()
        if facts.slot is None:  # the permit says nothing about labels
            names.discard(StageName.PAUSED)
        if ended is not None and ended != Outcome.APPLIED:
            names.add(StageName.VERIFIED)
        if not record.cordon and place <= _ORDER.index(StageName.CORDONED):
            names |= {StageName.CORDONED, StageName.UNCORDONED}
        if ended is not None and ended not in (*TOUCHED, Outcome.STUCK):
            names |= {StageName.CHANGED, StageName.VERIFIED, StageName.ALLOCATABLE}
        return names
    if place >= _ORDER.index(StageName.ALLOCATABLE) and not _was_changed(facts):
        return (*_OF_A_CHANGE, StageName.ALLOCATABLE, StageName.UNCORDONED)
    request = node.request
    return {StageName.PAUSED} if request is not None and not request.modes else set()


def _was_changed(facts: NodeChangeFacts) -> bool:
    """Whether the GPUs have the layout by the newest request."""
    status = facts.node.status
    return status is not None and bool(status.request) and status.outcome == Outcome.APPLIED


def _text(facts: NodeChangeFacts, name: StageName, state: StageState) -> str:
    """Text of a stage at which the change does not stand."""
    status, record = facts.node.status, facts.record
    if name is StageName.DESIRED and state is StageState.DONE:
        return _desired(facts)
    if name is StageName.EVALUATED and state is StageState.DONE and status is not None:
        return _evaluated(facts)
    if name is StageName.SLOT and state is StageState.DONE and facts.slot is not None:
        return facts.slot.name
    if name is StageName.CHANGED and state is StageState.DONE and status is not None:
        return "; ".join(filter(None, (status.outcome, failed_text(status))))
    if name is StageName.UNCORDONED and facts.node.keeps_cordon:
        return "an admin keeps it cordoned: gpuscape.io/keep-cordoned"
    if name is StageName.UNCORDONED and record is None and facts.node.unschedulable:
        return "it is cordoned by somebody else"
    if state is StageState.UNKNOWN:
        return "nothing in the cluster says any more whether it was needed"
    return ""


def _desired(facts: NodeChangeFacts) -> str:
    """Who states the desired layout, and where."""
    annotations, labels = facts.metadata.annotations, facts.metadata.labels
    is_annotation = keys.MIG_LAYOUT in annotations
    key = f"annotation {keys.MIG_LAYOUT}" if is_annotation else f"label {keys.MIG_CONFIG}"
    layout = annotations.get(keys.MIG_LAYOUT, labels.get(keys.MIG_CONFIG, ""))
    entry = annotations.get(keys.MIG_POLICY, "").rpartition("/")[0] if is_annotation else ""
    writer = f", from the fleet policy's entry {entry}" if entry else ""
    if not writer and facts.desired_by:
        writer = f", written by {facts.desired_by}"
    return f"{' '.join(layout.split())} ({key}{writer})"


def _evaluated(facts: NodeChangeFacts) -> str:
    """What the agent's plan does."""
    status = facts.node.status
    if status is None or not status.gpus:
        is_there = status is not None and status.phase == MigPhase.UNCHANGED
        return "the GPUs have it" if is_there and not _was_changed(facts) else ""
    modes = sum(gpu.mig is not None for gpu in status.gpus)
    kept, destroyed, created = instance_counts(status.gpus)
    instances = f"{kept} kept, {destroyed} destroyed, {created} created"
    mode = f", MIG mode set on {modes}" if modes else ""
    return f"GPUs that change: {len(status.gpus)}{mode}; instances: {instances}"
