# SPDX-License-Identifier: Apache-2.0
"""When a Node may lose the taint with which it waits for its first MIG layout. Pure.

The Node's registration puts the taint on, where an admin wants that; pods that do not tolerate it
stay away. It goes once the node's agent has said that the layout which is asked for now is there,
or that none is asked for; and only while the fleet policy has nothing else to say about the Node.
What is not known counts as not yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from api import keys, mig_status_annotation
from api.mig_status_annotation import MigPhase, RequestSource, wish_digest
from kube.api import Object

_COUNTING: Final = (
    keys.MIG_LAYOUT,
    keys.MIG_POLICY,
    keys.MIG_STATUS,
    keys.MIG_REQUEST,
    keys.MIG_GRANT,
)


class PolicyWord(StrEnum):
    """What the fleet policy says about one Node."""

    NOTHING = "nothing"
    """It writes nothing more to it as it is now."""
    DUE = "due"
    """It is to get another layout, or entries disagree about it."""
    UNKNOWN = "unknown"
    """The policy is not read yet, or has a mistake."""


def is_tainted(node: Object) -> bool:
    """Whether a Node has the taint, whatever its value and effect."""
    return any(_is_ours(taint) for taint in _taints(node))


def other_taints(node: Object) -> list[Mapping[str, Any]]:
    """All its taints but this one, as they are."""
    return [taint for taint in _taints(node) if not _is_ours(taint)]


def counting_metadata(node: Object) -> dict[str, Any]:
    """What counts here of a Node's metadata."""
    meta = node["metadata"]
    notes = meta.get("annotations") or {}
    return {
        "name": meta["name"],
        "labels": meta.get("labels") or {},
        "annotations": {key: notes[key] for key in _COUNTING if key in notes},
    }


def obstacle(metadata: Mapping[str, Any], policy: PolicyWord) -> str:
    """Why the taint stays; empty where it may go."""
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if policy is not PolicyWord.NOTHING:
        unknown = policy is PolicyWord.UNKNOWN
        return "the fleet policy is not known" if unknown else "the fleet policy is not written yet"
    if keys.MIG_GRANT in notes or keys.MIG_REQUEST in notes:
        return "a MIG change has not ended"
    wish = _wish(labels, notes)
    status = mig_status_annotation.FORMAT.readable(notes.get(keys.MIG_STATUS))
    if status is None:
        has_no_mig = labels.get(keys.MIG_CAPABLE) == "false" and keys.MIG_STATUS not in notes
        return "" if has_no_mig and not wish else "the agent has not said what became of it"
    if not wish:
        return "" if status.phase == MigPhase.IDLE else f"phase {status.phase}"
    if status.phase != MigPhase.UNCHANGED:
        return f"phase {status.phase}"
    return "" if status.wish == wish else "the agent has not judged what is asked for now"


def _wish(labels: Mapping[str, str], notes: Mapping[str, str]) -> str:
    """Digest of what the Node asks for; empty where it asks for nothing."""
    if keys.MIG_LAYOUT in notes:
        return wish_digest(RequestSource.ANNOTATION, notes[keys.MIG_LAYOUT])
    label = labels.get(keys.MIG_CONFIG, "")
    return wish_digest(RequestSource.LABEL, label) if label else ""


def _taints(node: Object) -> list[Mapping[str, Any]]:
    taints: list[Mapping[str, Any]] = (node.get("spec") or {}).get("taints") or []
    return taints


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == keys.MIG_LAYOUT_PENDING
