# SPDX-License-Identifier: Apache-2.0
"""Decides when a Node loses the taint with which it waits for its first MIG layout. Pure.

The Node's registration puts the taint on, where an admin wants that; pods that do not tolerate it
stay away. It goes once the node's agent has shown that the layout which is asked for now is there,
or that none is asked for; and only while the fleet policy has nothing else to say about the Node.
What is not known counts as not yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from api import keys, mig_status_annotation
from api.mig_status_annotation import MigPhase, admin_digest
from base.text import rfc3339
from kube.api import Object
from kube.objects.node import Node
from kube.objects.typed_object import Metadata

_COUNTING: Final = (
    keys.MIG_LAYOUT,
    keys.MIG_POLICY,
    keys.MIG_STATUS,
    keys.MIG_REQUEST,
    keys.MIG_PERMIT,
)


class StartupWait(StrEnum):
    """Why a Node has the taint still."""

    READY = "ready"
    """The taint may go: the coordinator takes it off within seconds."""
    POLICY_UNKNOWN = "policy-unknown"
    """The fleet policy is not read yet, or has a mistake."""
    POLICY_DUE = "policy-due"
    """The fleet policy has a layout for it that is not written: paused, or entries disagree."""
    NO_AGENT = "no-agent"
    """No status of an agent that can be read."""
    NOT_JUDGED = "not-judged"
    """The agent has not judged yet what is asked for now."""
    CHANGE = "change"
    """A change is planned, waits or is under way."""
    UNREAD = "unread"
    """The GPUs cannot be read."""
    UNADOPTED = "unadopted"
    """A label from before the agent asks for a layout, and is not obeyed."""
    REFUSED = "refused"
    FAILED = "failed"
    STUCK = "stuck"
    OTHER = "other"
    """A phase that this coordinator does not know."""


_WAIT_BY_PHASE: Final[Mapping[str, StartupWait]] = {
    MigPhase.PLANNED: StartupWait.CHANGE,
    MigPhase.WAITING: StartupWait.CHANGE,
    MigPhase.CHANGING: StartupWait.CHANGE,
    MigPhase.REBOOTING: StartupWait.CHANGE,
    MigPhase.UNREAD: StartupWait.UNREAD,
    MigPhase.UNADOPTED: StartupWait.UNADOPTED,
    MigPhase.REFUSED: StartupWait.REFUSED,
    MigPhase.FAILED: StartupWait.FAILED,
    MigPhase.STUCK: StartupWait.STUCK,
}
"""Phases in which the layout is not there, to the reason why the taint stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupNode:
    """A Node with the taint."""

    node: str
    wait: StartupWait
    seconds: float
    """How long it has had the taint."""


def is_tainted(node: Node) -> bool:
    """Whether a Node has the taint, whatever its value and effect."""
    return any(taint.key == keys.MIG_LAYOUT_PENDING for taint in node.spec.taints)


def other_taints(node: Object) -> list[Mapping[str, Any]]:
    """All its taints but this one, as they are written: fields that we do not know stay too."""
    taints: list[Mapping[str, Any]] = (node.get("spec") or {}).get("taints") or []
    return [taint for taint in taints if taint.get("key") != keys.MIG_LAYOUT_PENDING]


def counting_metadata(node: Node) -> Metadata:
    """The part of a Node's metadata that decides about the taint; it is kept for each Node."""
    notes = node.metadata.annotations
    counting = {key: notes[key] for key in _COUNTING if key in notes}
    return Metadata(name=node.name, labels=node.metadata.labels, annotations=counting)


def tainted_since(node: Node) -> float | None:
    """Time since when a Node that is seen for the first time has the taint, seconds since 1970.

    That is the taint's own time, which hardly anybody writes; else the Node's creation, as Nodes
    register with it. None where neither can be read.
    """
    ours = [taint.time_added for taint in node.spec.taints if taint.key == keys.MIG_LAYOUT_PENDING]
    texts = [text for text in ours if text] or [node.metadata.creation_timestamp]
    times = [rfc3339.unix_seconds(text) for text in texts]
    return min((time for time in times if time is not None), default=None)


def startup_wait(metadata: Metadata, policy: StartupWait | None) -> StartupWait:
    """Why the taint stays, or that it may go; ``policy``: why the fleet policy keeps it."""
    labels, notes = metadata.labels, metadata.annotations
    if policy is not None:
        return policy
    is_in_change = keys.MIG_PERMIT in notes or keys.MIG_REQUEST in notes
    digest = admin_digest(labels, notes)
    status = mig_status_annotation.FORMAT.readable(notes.get(keys.MIG_STATUS))
    if status is None:
        if is_in_change:
            return StartupWait.CHANGE
        has_no_mig = labels.get(keys.MIG_CAPABLE) == "false" and keys.MIG_STATUS not in notes
        return StartupWait.READY if has_no_mig and not digest else StartupWait.NO_AGENT
    if status.phase not in (MigPhase.IDLE, MigPhase.UNCHANGED):
        return _WAIT_BY_PHASE.get(status.phase, StartupWait.OTHER)
    if is_in_change:
        return StartupWait.CHANGE
    is_there = status.desired_digest == digest if digest else True
    is_judged = is_there and status.phase == (MigPhase.UNCHANGED if digest else MigPhase.IDLE)
    return StartupWait.READY if is_judged else StartupWait.NOT_JUDGED
