# SPDX-License-Identifier: Apache-2.0
"""Rollback records, made from a Node as it is. Pure."""

from __future__ import annotations

from typing import Final

from api import names
from api.mig_permit_annotation import MigPermitAnnotation
from api.mig_request_annotation import MigRequestAnnotation
from fleet.gpu_pod import PAUSABLE
from fleet.mig_node import DrainMode, MigNode
from fleet.rollback_record import VERSION, RollbackRecord
from fleet.rollout_settings import PAUSED

_NO_REQUEST: Final = "0" * 16


def record_for_request(
    node: MigNode, request: MigRequestAnnotation, drain: str, now: float
) -> RollbackRecord:
    """Record of what is undone if this node is cordoned for this request: its values now."""
    deploy = [label for label in node.deploy if request.modes and label[0] in PAUSABLE]
    labels = {label: value for label, value in deploy if value not in ("false", PAUSED)}
    return RollbackRecord(
        v=VERSION,
        node=node.name,
        uid=node.uid,
        request=request.request,
        rollout=node.rollout,
        taken_at=int(now),
        drain="" if drain == DrainMode.WAIT else drain,
        cordon=not node.unschedulable,
        guards=dict(zip(names.SCALE_DOWN_GUARDS, node.guards, strict=True)),
        labels=labels,
        allocatable={name: count for name, count in request.allocatable.items() if count},
        allocatable_before=dict(node.allocatable),
    )


def _added(permit: MigPermitAnnotation) -> dict[str, str | None]:
    guards = dict(enumerate(names.SCALE_DOWN_GUARDS))
    return {guards[number]: None for number in permit.guards if number in guards}


def record_from_permit(node: MigNode) -> RollbackRecord:
    """Record by the Node's permit alone: whose the cordon is, which guards there were not before.

    The guards are known by the permit alone. Where that is missing or cannot be read, the cordon's
    mark has the request; without a mark it is for no request, so that it goes.
    """
    request = node.permit.request if node.permit is not None else node.cordoned_for or _NO_REQUEST
    is_marked = node.cordoned_for == request
    return RollbackRecord(
        v=VERSION,
        node=node.name,
        uid=node.uid,
        request=request,
        rollout=node.rollout,
        cordon=is_marked or (node.permit is not None and node.permit.owns_cordon),
        guards={} if node.permit is None else _added(node.permit),
    )
