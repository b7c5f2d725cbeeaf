# SPDX-License-Identifier: Apache-2.0
"""What a rollout writes to each of the Nodes that somebody chose. Pure, but for the writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api import keys
from api.mig_status_annotation import MigPhase
from base.errors import Transient
from cli import terminal
from cli.failures import UNFINISHED, CommandFailure
from cli.mig.cluster.cluster_layouts import node_layout
from cli.terminal import Cell, Styled, TextTable
from kube.api import NODES, Api, Object
from kube.api_errors import ApiError, Conflict, NotFound

NOTHING: Final = ""
"""In ``gpuscape.io/mig-layout-before``: nothing was asked for."""
_TRIES: Final = 5
_INCAPABLE: Final = "false"
_NONE: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedNode:
    """One Node of a rollout."""

    node: str
    now: str | None
    """The annotation of now; None: none."""
    then: str | None
    annotations: Mapping[str, str | None] | None
    """What is to be written; None: nothing."""
    note: str = ""
    """What a person should know before he says yes."""


Asks = Callable[[Object], AskedNode]
"""What becomes of a Node."""


def to_layout(layout: str, drain: str | None) -> Asks:
    """Ask each Node for a layout; ``drain``: how pods leave, None: as it is."""

    def asks(node: Object) -> AskedNode:
        meta = node["metadata"]
        annotations = meta.get("annotations") or {}
        now = annotations.get(keys.MIG_LAYOUT)
        wanted: dict[str, str | None] = {}
        if (meta.get("labels") or {}).get(keys.MIG_CAPABLE) == _INCAPABLE:
            return _asked(node, now, now, None, "left out: none of its GPUs has MIG")
        if now != layout:
            wanted = {
                keys.MIG_LAYOUT: layout,
                keys.MIG_LAYOUT_BEFORE: NOTHING if now is None else now,
            }
        if drain is not None and annotations.get(keys.DRAIN) != drain:
            wanted[keys.DRAIN] = drain
        return _asked(node, now, layout, wanted or None, _note(node))

    return asks


def to_layout_before(node: Object) -> AskedNode:
    """Ask a Node for what was asked for before the last start of a rollout."""
    annotations = node["metadata"].get("annotations") or {}
    now, before = annotations.get(keys.MIG_LAYOUT), annotations.get(keys.MIG_LAYOUT_BEFORE)
    if before is None:
        return _asked(node, now, now, None, "left out: no rollout has asked it for anything")
    then = before or None
    wanted = {keys.MIG_LAYOUT: then, keys.MIG_LAYOUT_BEFORE: None}
    note = "the GPUs stay as they are" if then is None else ""
    return _asked(node, now, then, wanted, note or _note(node))


def show(asked: list[AskedNode], output: str) -> None:
    """The Nodes with what is asked of them now and then."""
    if output in ("json", "yaml"):
        terminal.data({"nodes": [_document(one) for one in asked]}, output)
        return
    rows: list[tuple[Cell, ...]] = []
    for one in asked:
        then = "unchanged" if one.annotations is None else one.then or _NONE
        style = "dim" if one.annotations is None else "cyan"
        rows.append((Styled(one.node, "bold"), one.now or _NONE, Styled(then, style), one.note))
    terminal.show(TextTable(header=("NODE", "ASKED NOW", "THEN", "NOTE"), rows=tuple(rows)))


def write(api: Api, asked: list[AskedNode], asks: Asks, *, dry_run: bool) -> int:
    """Write what is to be written; how many Nodes that were.

    A Node that changed meanwhile is judged anew. Raises CommandFailure naming the Nodes that could
    not be written, after all others were.
    """
    failed: dict[str, str] = {}
    written = 0
    for one in asked:
        if one.annotations is None:
            continue
        try:
            written += _write(api, one.node, asks, dry_run=dry_run)
        except NotFound:
            failed[one.node] = "it is gone"
        except ApiError as error:
            failed[one.node] = str(error)
    if failed:
        raise CommandFailure(
            f"{written} of {written + len(failed)} Nodes written; run it again for the others:",
            UNFINISHED,
            details=[f"{node}: {why}" for node, why in failed.items()],
        )
    return written


def _write(api: Api, name: str, asks: Asks, *, dry_run: bool) -> bool:
    for _ in range(_TRIES):
        node = api.get(NODES, name)
        wanted = asks(node).annotations
        if wanted is None:
            return False
        version = node["metadata"]["resourceVersion"]
        patch = {"metadata": {"annotations": dict(wanted), "resourceVersion": version}}
        try:
            api.patch(NODES, name, patch, dry_run=dry_run)
        except Conflict:
            continue  # kubelets write their Nodes all the time
        return True
    raise Transient(f"Node {name} changes too often: run it again")


def _asked(
    node: Object,
    now: str | None,
    then: str | None,
    annotations: Mapping[str, str | None] | None,
    note: str,
) -> AskedNode:
    return AskedNode(
        node=node["metadata"]["name"], now=now, then=then, annotations=annotations, note=note
    )


def _note(node: Object) -> str:
    found = node_layout(node)
    if found is None or found.status is None:
        return "no agent looks after MIG there"
    if found.status.phase == MigPhase.PLANNED:
        return "its agent only plans (mig-mode observe)"
    if (node.get("spec") or {}).get("unschedulable") and found.grant is None:
        return "cordoned by somebody: it waits for the end of that"
    return ""


def _document(one: AskedNode) -> dict[str, Any]:
    return {
        "node": one.node,
        "asked": one.now,
        "then": one.then,
        "changes": one.annotations is not None,
        "note": one.note or None,
    }
