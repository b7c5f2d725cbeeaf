# SPDX-License-Identifier: Apache-2.0
"""State of the MIG layouts of a cluster, as rows of a table and as a document. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.mig_status_annotation import MigPhase, instance_counts
from cli.terminal import Cell, Styled, TextTable
from fleet.status.node_layout import UNJUDGED, NodeLayout

_NONE: Final = "-"
_MAX_LAYOUT_CHARACTERS: Final = 40
"""Characters of a desired layout in the table; -o wide prints all of it."""
_STYLES: Final[Mapping[str, str]] = {
    MigPhase.UNCHANGED: "green",
    MigPhase.PLANNED: "cyan",
    MigPhase.WAITING: "cyan",
    MigPhase.CHANGING: "bold cyan",
    MigPhase.REBOOTING: "bold cyan",
    MigPhase.UNREAD: "yellow",
    UNJUDGED: "yellow",
    MigPhase.REFUSED: "yellow",
    MigPhase.FAILED: "bold yellow",
    MigPhase.STUCK: "bold red",
}


def layout_table(layouts: Sequence[NodeLayout], *, wide: bool) -> TextTable:
    """Table of the layout states, one row for each Node."""
    more = ("GPUS", "KEPT", "GONE", "NEW", "CORDONED", "TAINT") if wide else ()
    header = ("NODE", "DESIRED", "PHASE", "SINCE", "SLOT", *more, "PODS", "WHY")
    rows = tuple(layout_row(layout, wide=wide) for layout in layouts)
    return TextTable(header=header, rows=rows)


def layout_row(layout: NodeLayout, *, wide: bool) -> tuple[Cell, ...]:
    """Cells of a Node's row in :func:`layout_table`."""
    desired = layout.desired_line or _NONE
    if not wide and len(desired) > _MAX_LAYOUT_CHARACTERS:
        desired = f"{desired[: _MAX_LAYOUT_CHARACTERS - 1]}…"
    since = (layout.status.since if layout.status else "") or _NONE
    more: tuple[str, ...] = ()
    if wide:
        gpus = layout.status.gpus if layout.status else ()
        more = (
            ",".join(str(gpu.gpu) for gpu in gpus) or _NONE,
            *(str(count) if gpus else _NONE for count in instance_counts(gpus)),
            "yes" if layout.cordoned else "no",
            "yes" if layout.has_startup_taint else "no",
        )
    drift = " (drift)" if layout.has_drifted else ""
    failed = f" ({layout.failed})" if layout.failed else ""
    phase = Styled(f"{layout.phase}{drift}{failed}", _STYLES.get(layout.phase, ""))
    node = Styled(layout.node, "bold")
    return node, desired, phase, since, layout.slot, *more, layout.pods, layout.why


def layout_summary(layouts: Sequence[NodeLayout]) -> str:
    """Number of nodes in each phase, in one line."""
    phases = Counter(layout.phase if layout.status else "no agent" for layout in layouts)
    counted = ", ".join(f"{count} {phase}" for phase, count in phases.most_common())
    slots = sum(1 for layout in layouts if layout.permit is not None)
    tainted = sum(layout.has_startup_taint for layout in layouts)
    more = f", {tainted} with the startup taint" if tainted else ""
    return f"{len(layouts)} nodes: {counted}; {slots} with a slot{more}"


def node_layout_document(layout: NodeLayout) -> dict[str, Any]:
    """A Node's layout state as plain values, for -o json and yaml."""
    return {
        "node": layout.node,
        "desired": layout.desired,
        "settled": layout.is_settled,
        "drift": layout.has_drifted,
        "cordoned": layout.cordoned,
        "startup_taint": layout.has_startup_taint,
        "unlisted": list(layout.unlisted),
        "status": layout.status,
        "request": layout.request,
        "permit": layout.permit,
        "problem": layout.damaged or None,
    }
