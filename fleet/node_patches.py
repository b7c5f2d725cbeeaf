# SPDX-License-Identifier: Apache-2.0
"""Patches that the coordinator writes on Nodes, and those that take them back. Pure.

Each patch is for the Node at the resourceVersion at which it was seen. A value is restored only
where it is still the one that we wrote, and the cordon goes only together with our mark of it:
a person who removes the permit leaves the mark, and gets back the node as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from api import keys, mig_permit_annotation, names
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from fleet.mig_node import MigNode
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import GUARD, PAUSED


def cordon_patch(node: MigNode, record: RollbackRecord) -> Mapping[str, Any]:
    """Patch with the cordon and its mark, the permit and the autoscalers' guards."""
    guards = dict.fromkeys(record.guards, GUARD)
    notes = {keys.MIG_PERMIT: _permit(record, PermitPhase.CORDONED), **guards}
    if record.cordon:
        notes[keys.MIG_CORDON] = record.request
    patch = _patch(node, annotations=notes)
    return patch | ({"spec": {"unschedulable": True}} if record.cordon else {})


def proceed_patch(node: MigNode, record: RollbackRecord) -> Mapping[str, Any]:
    """Patch that lets the agent change GPUs."""
    return _patch(node, annotations={keys.MIG_PERMIT: _permit(record, PermitPhase.PROCEED)})


def pause_patch(node: MigNode, record: RollbackRecord) -> Mapping[str, Any]:
    """Patch that pauses labels of the GPU operator which are still as the record has them."""
    paused = [label for label, value in node.deploy if record.labels.get(label) == value]
    return _patch(node, labels=dict.fromkeys(paused, PAUSED))


def resume_patch(node: MigNode, record: RollbackRecord) -> Mapping[str, Any]:
    """Patch that puts back labels of the GPU operator which are still paused."""
    return _patch(node, labels=_paused_labels(node, record))


def _paused_labels(node: MigNode, record: RollbackRecord) -> dict[str, str]:
    paused = [label for label, value in node.deploy if value == PAUSED]
    return {label: record.labels[label] for label in paused if label in record.labels}


def rollback_patch(node: MigNode, record: RollbackRecord) -> Mapping[str, Any]:
    """Patch that puts back all that is still as we left it; empty where nothing is."""
    permit = node.permit
    is_ours = node.permit_text is not None and (permit is None or permit.request == record.request)
    is_marked = bool(node.cordoned_for) and node.cordoned_for == record.request
    if not (is_ours or is_marked or record.cordoned_at or _has_our_guards(node, record)):
        return {}  # nothing was written, or somebody else's permit stands there now
    notes: dict[str, str | None] = {
        guard: record.guards[guard]
        for guard, value in zip(names.SCALE_DOWN_GUARDS, node.guards, strict=True)
        if guard in record.guards and value == GUARD and record.guards[guard] != GUARD
    }
    labels = _paused_labels(node, record)
    spec: dict[str, Any] = {}
    if is_ours:
        notes[keys.MIG_PERMIT] = None
    if is_marked:
        notes[keys.MIG_CORDON] = None
    # as the admission policies read it: only a Node that has one of the two is uncordoned
    says_so = re.search(mig_permit_annotation.OWN_CORDON_PATTERN, node.permit_text or "")
    is_cordon_ours = is_marked or (is_ours and says_so is not None)
    if is_cordon_ours and record.cordon and node.unschedulable and not node.keeps_cordon:
        spec = {"spec": {"unschedulable": None}}
    if not notes and not labels:
        return {}
    return _patch(node, annotations=notes, labels=labels) | spec


def former_permit_patch(node: MigNode) -> Mapping[str, Any]:
    """Patch that removes a permit in the form before 0.1.0."""
    return _patch(node, annotations={keys.FORMER_MIG_PERMIT: None})


def _has_our_guards(node: MigNode, record: RollbackRecord) -> bool:
    """Whether the cordon was written, by its annotations without the permit: people may delete it.

    The guards are written together; nobody else sets both between the record and the cordon.
    """
    former_values = [value for value in record.guards.values() if value != GUARD]
    return bool(former_values) and all(value == GUARD for value in node.guards)


def _permit(record: RollbackRecord, phase: PermitPhase) -> str:
    """Text of the permit, with what a coordinator needs that finds the Node without its record."""
    guards = enumerate(names.SCALE_DOWN_GUARDS)
    absent = (number for number, guard in guards if record.guards.get(guard, GUARD) is None)
    permit = MigPermitAnnotation(
        v=mig_permit_annotation.VERSION,
        request=record.request,
        phase=phase,
        owns_cordon=record.cordon,
        guards=tuple(absent),
    )
    return mig_permit_annotation.encode(permit)


def _patch(
    node: MigNode,
    *,
    annotations: Mapping[str, str | None] | None = None,
    labels: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {
            "resourceVersion": node.version,
            **({"annotations": dict(annotations)} if annotations else {}),
            **({"labels": dict(labels)} if labels else {}),
        }
    }
