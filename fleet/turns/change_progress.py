# SPDX-License-Identifier: Apache-2.0
"""Progress of one change, by its record and by its Node. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import MigPhase
from fleet.gpu_pod import GpuPod
from fleet.mig_node import MigNode
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import PAUSED

SUPERSEDED: Final = "superseded"
"""The outcome of a request that neither request nor status names any more."""
TOUCHED: Final = (Outcome.APPLIED, Outcome.ROLLED_BACK)
"""Outcomes after which the GPUs were changed."""
_TIMES: Final = ("taken_at", "drain_at", "cordoned_at", "proceed_at", "restarted_at")
_CLOCKS_DIFFER_SECONDS: Final = 60.0
"""Difference between the clocks of two coordinators' machines, at most."""


def reported_end(node: MigNode, request: str) -> str | None:
    """How a request ended; None while it is open, or while that cannot be read."""
    status = node.status
    if status is not None and status.request == request:
        return status.outcome or None
    if status is not None and status.request:
        return SUPERSEDED
    if node.status_damaged or (node.request is not None and node.request.request == request):
        return None
    return SUPERSEDED


def end_of(node: MigNode, record: RollbackRecord) -> str | None:
    """How the record's request ended; None while it is open, or while that cannot be read."""
    return record.outcome or reported_end(node, record.request)


def allocatable_after(record: RollbackRecord, end: str) -> Mapping[str, int]:
    """GPU resources that the node is to offer after this end; empty where that is not known."""
    if end not in TOUCHED:
        return {}
    return record.allocatable if end == Outcome.APPLIED else record.allocatable_before


def is_asking(node: MigNode) -> bool:
    """Whether the node's agent has a request that is open."""
    return node.request is not None and reported_end(node, node.request.request) is None


def phase_of(node: MigNode, record: RollbackRecord) -> PermitPhase | None:
    """The phase of the Node's permit, if it is for the record's request."""
    permit = node.permit
    return None if permit is None or permit.request != record.request else permit.phase


def may_have_begun(node: MigNode, record: RollbackRecord) -> bool:
    """Whether the agent may have begun, or may begin without another effect of ours."""
    phase = phase_of(node, record)
    return phase is PermitPhase.PROCEED or (
        record.proceed_at > 0 and phase is not PermitPhase.CORDONED
    )


def is_marked(node: MigNode, record: RollbackRecord) -> bool:
    """Whether our mark says that the cordon is of this change."""
    return node.cordoned_for == record.request


def is_changing(node: MigNode, record: RollbackRecord) -> bool:
    """Whether the agent says that it changes the GPUs for this request."""
    return awaits_boot(node, record) or _is_in(MigPhase.CHANGING, node, record)


def awaits_boot(node: MigNode, record: RollbackRecord) -> bool:
    """Whether the agent says that the change waits for a boot of the node."""
    return _is_in(MigPhase.REBOOTING, node, record)


def _is_in(phase: MigPhase, node: MigNode, record: RollbackRecord) -> bool:
    status = node.status
    return status is not None and (status.request, status.phase) == (record.request, phase)


def has_to_pause(node: MigNode, record: RollbackRecord) -> bool:
    """Whether a part of the GPU operator is still as the record has it, and is to be paused."""
    present = dict(node.deploy)
    return any(present.get(label) == was for label, was in record.labels.items())


def is_paused(node: MigNode, record: RollbackRecord) -> bool:
    """Whether a part of the GPU operator is still paused by us."""
    present = dict(node.deploy)
    return any(present.get(label) == PAUSED for label in record.labels)


def clients_of(record: RollbackRecord, pods: Collection[GpuPod]) -> list[GpuPod]:
    """Pods that keep GPUs open, and that the labels of the record take away."""
    labels = record.labels
    return [pod for pod in pods if labels and (pod.is_plugin or pod.paused_by in labels)]


def without_times_to_come(record: RollbackRecord, now: float) -> RollbackRecord:
    """The record with times to come as now: a clock was wrong, or somebody wrote them.

    Nothing would pass before they do.
    """
    latest = now + _CLOCKS_DIFFER_SECONDS
    wrong = {name: int(now) for name in _TIMES if getattr(record, name) > latest}
    return with_values(record, **wrong) if wrong else record


def passed(since: float, now: float) -> float:
    """Seconds since then; 0 where the wall clock was set back."""
    return max(0.0, now - since)


def with_values(record: RollbackRecord, **values: Any) -> RollbackRecord:
    """The record with other values."""
    return msgspec.structs.replace(record, **values)
