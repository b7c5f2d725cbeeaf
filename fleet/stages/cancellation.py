# SPDX-License-Identifier: Apache-2.0
"""How a Node's MIG change is cancelled: what is written, what is undone, what goes on. Pure.

Cancelling removes the desired layout. Then the agent ends its request, and the coordinator puts
back what it did to the Node. Safety:

- the cordon, guards and paused labels are put back here only where no coordinator acts and the
  change has not begun, by the coordinator's own patch: nothing that somebody else wrote is touched;
- where the fleet policy would write a layout again, nothing is written;
- what has begun goes on to its end: the permit to proceed is never removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from api import keys, names
from api.mig_outcome import Outcome
from api.mig_status_annotation import NEVER_ADOPTED, MigPhase
from fleet import node_patches
from fleet.policy.assigned_layouts import Assignment
from fleet.rollout_settings import PAUSED
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.standing import policy_command
from fleet.turns.change_progress import (
    TOUCHED,
    end_of,
    is_asking,
    is_changing,
    may_have_begun,
)

_CONFIG_MAPS: Final = "configmaps"


class CancelVerdict(StrEnum):
    """What cancelling means for a Node now."""

    NOTHING = "nothing"
    """There is nothing to cancel, and nothing is written."""
    CANCELS = "cancels"
    """Nothing has begun: all is undone."""
    BEGUN = "begun"
    """The GPUs are being changed, or were: only the next attempt is cancelled."""
    STUCK = "stuck"
    """The change is stuck: a person has to end it, and nothing is written."""
    REFUSED = "refused"
    """Nothing is written: the desired layout would come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """What cancelling writes and means, decided on one reading of the cluster."""

    verdict: CancelVerdict
    text: str
    """A sentence: why nothing is written, or what goes on."""
    undone: tuple[str, ...] = ()
    """What is undone, each in a few words."""
    patch: Mapping[str, Any] | None = None
    """Merge patch of the Node at the resourceVersion that was read; None: nothing is written."""
    notes: tuple[str, ...] = ()
    """What a person should know besides."""
    command: str = ""
    """Next command for a person."""


_KURED_NOTE: Final = (
    "kured is to boot the node and counts on the cordon: the coordinator removes the cordon after"
    " the boot"
)


def cancellation(facts: NodeChangeFacts, now: float) -> Cancellation:
    """What cancelling the Node's change means at ``now``, in seconds since 1970."""
    removed, record = dict(_desired_keys(facts)), facts.record
    unwritten = _nothing_or_stuck(facts, removed) or (_refused(facts) if removed else None)
    if unwritten is not None:
        return unwritten
    has_begun = _has_begun(facts)
    undo = {} if has_begun or record is None else node_patches.rollback_patch(facts.node, record)
    coordinator = facts.coordinator
    keeps_cordon = "spec" in undo and facts.node.is_to_boot(now, facts.settings.boot_seconds)
    # only where no coordinator is there to put it back
    is_left = coordinator.acts(now) or coordinator.problem or keeps_cordon
    own_undo = {} if is_left else undo
    return Cancellation(
        verdict=CancelVerdict.BEGUN if has_begun else CancelVerdict.CANCELS,
        text=_begun_text(facts) if has_begun else "nothing of the change has begun",
        undone=(*_removed(removed), *(() if has_begun else _undone(facts, undo))),
        patch=_patch(facts, removed, own_undo),
        notes=(*_notes(facts, own_undo), *([_KURED_NOTE] if keeps_cordon else [])),
        command=f"gpuscape mig why {facts.node.name}" if has_begun else "",
    )


def remaining(facts: NodeChangeFacts, now: float) -> tuple[str, ...]:
    """What is not over yet of a change that was cancelled, each in a few words; empty: all is."""
    node, record, acts = facts.node, facts.record, facts.coordinator.acts(now)
    parts = []
    if record is not None and _has_begun(facts):
        end = end_of(node, record)
        parts.append("the change goes on to its end" if end is None else f"the change ended: {end}")
    if is_asking(node) and not facts.agent.is_silent(now):
        parts.append("the agent ends its request")
    if node.is_in_change:
        parts.append("the coordinator gives the node back" if acts else "the node's permit stays")
    elif facts.slot is not None and acts:
        parts.append(f"the coordinator frees {facts.slot.name}")
    return tuple(parts)


def _nothing_or_stuck(facts: NodeChangeFacts, removed: Mapping[str, str]) -> Cancellation | None:
    """The answer where nothing is to be written; None where there is something to cancel."""
    status, layout, record = facts.node.status, facts.layout, facts.record
    if status is not None and status.outcome == Outcome.STUCK:
        return Cancellation(
            verdict=CancelVerdict.STUCK,
            text="the change is stuck: some GPUs could reach neither layout, so nothing is undone",
            command=facts.restore_command,
        )
    is_there = layout is not None and layout.phase == MigPhase.UNCHANGED
    if record is not None and is_there and _has_begun(facts):
        return Cancellation(
            verdict=CancelVerdict.BEGUN,
            text="the GPUs have the desired layout already; the coordinator gives the node back",
            command=f"gpuscape mig why {facts.node.name}",
        )
    if record is not None or (removed and not is_there):
        return None
    text = "the GPUs have the desired layout: there is no change" if is_there else ""
    if not text and facts.node.request is not None:
        text = "no layout is desired: the agent ends its request by itself"
    return Cancellation(verdict=CancelVerdict.NOTHING, text=text or "no layout is desired")


def _desired_keys(facts: NodeChangeFacts) -> Iterator[tuple[str, str]]:
    """Annotation and label that state the desired layout, or would state it next; to values."""
    annotations, labels = facts.metadata.annotations, facts.metadata.labels
    if keys.MIG_LAYOUT in annotations:
        yield keys.MIG_LAYOUT, annotations[keys.MIG_LAYOUT]
    label, status = labels.get(keys.MIG_CONFIG, ""), facts.node.status
    is_anothers = labels.get(keys.MIG_ADOPT) == NEVER_ADOPTED
    is_unadopted = status is not None and status.unadopted == label
    if label and not is_anothers and not is_unadopted:
        yield keys.MIG_CONFIG, label


def _refused(facts: NodeChangeFacts) -> Cancellation | None:
    """A refusal if a layout would be desired again at once, or if that is not known."""
    unread = next((fact for fact in facts.unread if fact.resource == _CONFIG_MAPS), None)
    if unread is not None:
        text = f"whether the fleet policy would write a layout again is not known: {unread.text}"
        return Cancellation(verdict=CancelVerdict.REFUSED, text=text)
    policy = facts.policy
    then = policy.if_removed
    if then is None or then.assignment is not Assignment.DUE or policy.paused:
        return None
    entries = ", ".join(then.entries)
    return Cancellation(
        verdict=CancelVerdict.REFUSED,
        text=f"the fleet policy's entry {entries} would write its layout again: pause the policy"
        " (paused: true), or have the entry select other nodes",
        command=policy_command(facts),
    )


def _has_begun(facts: NodeChangeFacts) -> bool:
    """Whether GPUs may have been touched for the present request."""
    node, record = facts.node, facts.record
    if record is None:
        status = node.status
        return status is not None and status.phase in (MigPhase.CHANGING, MigPhase.REBOOTING)
    end = end_of(node, record)
    if end is not None:
        return end in TOUCHED
    return may_have_begun(node, record) or is_changing(node, record)


def _begun_text(facts: NodeChangeFacts) -> str:
    desired = "" if facts.layout is None else facts.layout.desired_line
    layout = f" ({desired})" if desired else ""
    if facts.node.status is not None and facts.node.status.phase == MigPhase.REBOOTING:
        return (
            "the change waits for a boot of the node: unless the node boots first, the actuator"
            " takes the MIG mode back. Then the coordinator gives the node back"
        )
    return (
        "the change has begun and goes on to its end: then the GPUs have the desired layout"
        f"{layout}, or the previous one if it fails. Then the coordinator gives the node back"
    )


def _patch(
    facts: NodeChangeFacts, removed: Mapping[str, str], undo: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The patch of the Node for all that is undone: it is written whole, or not at all."""
    if not removed and not undo:
        return None
    metadata = {"resourceVersion": facts.node.version, **undo.get("metadata", {})}
    for key in removed:
        part = "annotations" if key == keys.MIG_LAYOUT else "labels"
        metadata[part] = {**metadata.get(part, {}), key: None}
    return {**undo, "metadata": metadata}


def _removed(removed: Mapping[str, str]) -> Iterator[str]:
    """The desired layout that is removed."""
    for key, value in removed.items():
        kind = "annotation" if key == keys.MIG_LAYOUT else "label"
        yield f"desired layout ({kind} {key}): {' '.join(value.split())}"


def _undone(facts: NodeChangeFacts, undo: Mapping[str, Any]) -> Iterator[str]:
    """What is undone, by whomever; ``undo``: the coordinator's own patch."""
    node, metadata = facts.node, undo.get("metadata", {})
    if node.request is not None and is_asking(node):
        yield f"request {node.request.request}"
    if facts.slot is not None:
        yield f"slot {facts.slot.name}"
    if "spec" in undo:
        yield "cordon"
    restored = metadata.get("annotations", {})
    yield from (f"guard {guard}" for guard in names.SCALE_DOWN_GUARDS if guard in restored)
    yield from (f"paused label {label}" for label in metadata.get("labels", {}))


def _notes(facts: NodeChangeFacts, undo: Mapping[str, Any]) -> Iterator[str]:
    node = facts.node
    if keys.MIG_LAYOUT_BEFORE in facts.metadata.annotations:
        yield (
            "to desire the layout from before the last rollout again: gpuscape mig rollout undo"
            f" --node {node.name}"
        )
    if facts.policy.if_removed is not None and facts.policy.paused:
        entries = ", ".join(facts.policy.if_removed.entries)
        yield f"the fleet policy is paused; once it is resumed, it writes a layout again: {entries}"
    if node.keeps_cordon:
        yield "the node stays cordoned: gpuscape.io/keep-cordoned stands there"
    if undo and facts.slot is None and any(value == PAUSED for _, value in node.deploy):
        yield "labels nvidia.com/gpu.deploy.* stay paused: no record has their former values"
    if undo and facts.slot is not None:
        yield f"the next coordinator frees {facts.slot.name}"
