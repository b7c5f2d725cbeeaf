# SPDX-License-Identifier: Apache-2.0
"""Permits and rollback records in their forms before 0.1.0. Pure.

Nothing reads them. The coordinator removes them, and keeps its hands off them while a change is
open: then a program of the release before may still act on them.
"""

from __future__ import annotations

from fleet.mig_node import MigNode
from fleet.slot_gate import FleetView
from fleet.slot_lease import SlotLease


def former_permits(view: FleetView) -> list[MigNode]:
    """Nodes with a former permit and without an open change."""
    nodes = view.nodes.values()
    return [node for node in nodes if node.has_former_permit and not node.is_in_change]


def may_be_emptied(view: FleetView, slot: SlotLease) -> bool:
    """Whether nothing is open on the node of a Lease whose record cannot be read.

    A former record may name no node: then it waits for all of them.
    """
    if not slot.has_former_record:
        return slot.holder not in view.nodes or view.nodes[slot.holder].permit_text is None
    nodes = (node for name, node in view.nodes.items() if slot.holder in ("", name))
    return not any(node.is_in_change for node in nodes)
