# SPDX-License-Identifier: Apache-2.0
"""Annotations that a rollout writes to each chosen Node. Pure, but for the writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api import keys
from api.mig_status_annotation import MigPhase
from base.errors import Transient
from cli import terminal
from cli.failures import UNFINISHED, CommandFailure
from cli.terminal import Cell, Styled, TextTable
from fleet.status.node_layout import node_layout
from kube.api import NODES, Api
from kube.api_errors import ApiError, Conflict, NotFound
from kube.objects.node import Node

NOTHING: Final = ""
"""Value of ``gpuscape.io/mig-layout-before`` on a Node that had no layout annotation."""
_TRIES: Final = 5
_INCAPABLE: Final = "false"
_NONE: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutWrite:
    """Annotations that a rollout writes to a Node, with the layouts before and after."""

    node: str
    now: str | None
    """Layout annotation of now; None where there is none."""
    then: str | None
    annotations: Mapping[str, str | None] | None = None
    """Annotations to write, None to remove one; None for nothing to write."""
    note: str = ""
    """Remark for the person who confirms the rollout."""


PlanWrite = Callable[[Node], LayoutWrite]
"""Plans what to write to a Node."""


def to_layout(layout: str, drain: str | None) -> PlanWrite:
    """Plan to write a layout to each Node; ``drain``: its drain mode, None to leave it as it is."""

    def plan_write(node: Node) -> LayoutWrite:
        annotations = node.metadata.annotations
        now = annotations.get(keys.MIG_LAYOUT)
        changes: dict[str, str | None] = {}
        if node.metadata.labels.get(keys.MIG_CAPABLE) == _INCAPABLE:
            note = "left out: none of its GPUs has MIG"
            return LayoutWrite(node=node.name, now=now, then=now, note=note)
        if now != layout:
            before = NOTHING if now is None else now
            changes = {keys.MIG_LAYOUT: layout, keys.MIG_LAYOUT_BEFORE: before}
        if drain is not None and annotations.get(keys.DRAIN) != drain:
            changes[keys.DRAIN] = drain
        return LayoutWrite(
            node=node.name, now=now, then=layout, annotations=changes or None, note=_note(node)
        )

    return plan_write


def to_layout_before(node: Node) -> LayoutWrite:
    """Plan to write the layout that a Node had before the last start of a rollout."""
    annotations = node.metadata.annotations
    now, before = annotations.get(keys.MIG_LAYOUT), annotations.get(keys.MIG_LAYOUT_BEFORE)
    if before is None:
        note = "left out: no rollout has written its layout"
        return LayoutWrite(node=node.name, now=now, then=now, note=note)
    then = before or None
    changes = {keys.MIG_LAYOUT: then, keys.MIG_LAYOUT_BEFORE: None}
    note = "the GPUs stay as they are" if then is None else _note(node)
    return LayoutWrite(node=node.name, now=now, then=then, annotations=changes, note=note)


def show_layout_writes(writes: list[LayoutWrite], output: str) -> None:
    """Print the Nodes with their layout annotations of now and then."""
    if output in ("json", "yaml"):
        terminal.print_data({"nodes": [_document(node_write) for node_write in writes]}, output)
        return
    rows: list[tuple[Cell, ...]] = []
    for node_write in writes:
        then = Styled(node_write.then or _NONE, "cyan")
        if node_write.annotations is None:
            then = Styled("unchanged", "dim")
        node = Styled(node_write.node, "bold")
        rows.append((node, node_write.now or _NONE, then, node_write.note))
    terminal.show_table(TextTable(header=("NODE", "DESIRED NOW", "THEN", "NOTE"), rows=tuple(rows)))


def write_layouts(
    api: Api, writes: list[LayoutWrite], plan_write: PlanWrite, *, dry_run: bool
) -> int:
    """Write the annotations, and return the number of Nodes written.

    A Node that changed meanwhile is planned anew. Raises CommandFailure naming the Nodes that could
    not be written, after all others were.
    """
    failed: dict[str, str] = {}
    written = 0
    for node_write in writes:
        if node_write.annotations is None:
            continue
        try:
            written += _write(api, node_write.node, plan_write, dry_run=dry_run)
        except NotFound:
            failed[node_write.node] = "it is gone"
        except ApiError as error:
            failed[node_write.node] = str(error)
    if failed:
        raise CommandFailure(
            f"{written} of {written + len(failed)} Nodes written; run it again for the others:",
            UNFINISHED,
            details=[f"{node}: {why}" for node, why in failed.items()],
        )
    return written


def _write(api: Api, name: str, plan_write: PlanWrite, *, dry_run: bool) -> bool:
    for _ in range(_TRIES):
        node = Node.from_object(api.get(NODES, name))
        changes = plan_write(node).annotations
        if changes is None:
            return False
        version = node.metadata.resource_version
        patch = {"metadata": {"annotations": dict(changes), "resourceVersion": version}}
        try:
            api.patch(NODES, name, patch, dry_run=dry_run)
        except Conflict:
            continue  # kubelets write their Nodes all the time
        return True
    raise Transient(f"Node {name} changes too often: run it again")


def _note(node: Node) -> str:
    layout = node_layout(node)
    if layout is None or layout.status is None:
        return "no agent manages MIG there"
    if layout.status.phase == MigPhase.PLANNED:
        return "its agent only plans (mig-mode observe)"
    if node.spec.unschedulable and layout.permit is None:
        return "cordoned by somebody else: it waits until it is uncordoned"
    return ""


def _document(node_write: LayoutWrite) -> dict[str, Any]:
    return {
        "node": node_write.node,
        "desired": node_write.now,
        "then": node_write.then,
        "changes": node_write.annotations is not None,
        "note": node_write.note or None,
    }
