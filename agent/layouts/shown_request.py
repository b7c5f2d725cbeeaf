# SPDX-License-Identifier: Apache-2.0
"""The newest request for a MIG change and its permit, as a Node shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api import keys, mig_permit_annotation, mig_request_annotation
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import VERSION, GpuOutcomeStatus, MigPhase, MigStatusAnnotation

_NO_STATUS: Final = MigStatusAnnotation(v=VERSION, phase=MigPhase.IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRequest:
    """The newest request for a MIG change, as the Node shows it."""

    request: str = ""
    """The request's id; empty where there was none."""
    plan: str = ""
    """Digest of the request's layouts, where that is known."""
    outcome: str = ""
    """Outcome of the request; empty while it is open."""
    drift: bool = False
    """Whether the request is open, and repairs what somebody else has changed."""
    since: str = ""
    """RFC 3339: when the change was first requested, where that is known."""
    reached: str = ""
    """Layouts that the GPUs have had since these are desired; empty where none are known."""
    outcomes: tuple[GpuOutcomeStatus, ...] = ()
    """Outcomes of single GPUs, also of GPUs that are stuck since an earlier request."""


def shown_request(metadata: Mapping[str, Any], status: MigStatusAnnotation | None) -> ShownRequest:
    """The newest request that a Node shows; an annotation that cannot be read counts as none."""
    request = mig_request_annotation.FORMAT.readable(_note(metadata, keys.MIG_REQUEST))
    status = status or _NO_STATUS
    # while the layouts are there, they are those of the status
    reached = status.plan if status.phase == MigPhase.UNCHANGED else status.reached
    if request is None:
        return ShownRequest(
            request=status.request,
            plan=status.plan,
            outcome=status.outcome,
            drift=bool(reached) and reached == status.plan,
            reached=reached,
            outcomes=status.outcomes,
        )
    return ShownRequest(
        request=request.request,
        plan=request.plan,
        outcome=status.outcome if status.request == request.request else "",
        drift=request.drift,
        since=request.since,
        reached=reached,
        outcomes=status.outcomes,
    )


def permit_phase(metadata: Mapping[str, Any], request: str) -> PermitPhase | None:
    """Phase of the Node's permit, if it is for this request."""
    permit = mig_permit_annotation.FORMAT.readable(_note(metadata, keys.MIG_PERMIT))
    return None if permit is None or permit.request != request else permit.phase


def _note(metadata: Mapping[str, Any], key: str) -> str | None:
    text = (metadata.get("annotations") or {}).get(key)
    return None if text is None else str(text)
