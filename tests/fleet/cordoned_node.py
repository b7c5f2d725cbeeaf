# SPDX-License-Identifier: Apache-2.0
"""A node that the coordinator has cordoned for a request, and the record of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase, encode
from api.mig_request_annotation import MigRequestAnnotation
from fleet.mig_change import ChangeView
from fleet.mig_node import MigNode
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import GUARD
from fleet.slot_lease import SlotLease

REQUEST: Final = f"{1:016x}"
NOW: Final = 1_800_000_000
_PERMIT: Final = MigPermitAnnotation(
    v=2, request=REQUEST, phase=PermitPhase.CORDONED, owns_cordon=True
)
_ASKED: Final = MigRequestAnnotation(v=2, request=REQUEST, plan=REQUEST, gpus=(0,))


def cordoned_view(
    *,
    request: Mapping[str, Any],
    node: Mapping[str, Any],
    record: Mapping[str, Any],
    **view: Any,
) -> ChangeView:
    """The change of a node behind its cordon; ``request``, ``node`` and ``record``: what else is in
    them."""
    return ChangeView(
        node=MigNode(
            name="n",
            rollout="annotation:x",
            uid="u",
            version="7",
            unschedulable=True,
            request=replace_struct(_ASKED, **request),
            permit=_PERMIT,
            permit_text=encode(_PERMIT),
            guards=(GUARD, GUARD),
            **node,
        ),
        record=RollbackRecord(v=2, node="n", uid="u", request=REQUEST, cordon=True, **record),
        slot=SlotLease(number=0, version="1"),
        **view,
    )
