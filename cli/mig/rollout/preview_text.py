# SPDX-License-Identifier: Apache-2.0
"""A rollout's preview as tables, and as a document for -o json and yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from base.words import first_names
from cli import terminal
from cli.terminal import Cell, Styled, TextTable
from forecast.leaving_pods import LeavingPods
from forecast.node_gpus import Offers
from forecast.node_preview import NodeImpact, NodePreview
from forecast.places_for_pods import PodImpact, PodImpactKind
from forecast.rollout_preview import RolloutPreview

_NONE: Final = "-"
_PREFIX: Final = "nvidia.com/"
_NAMED: Final = 5
_STYLES: Final[Mapping[NodeImpact, str]] = {
    NodeImpact.CHANGES: "cyan",
    NodeImpact.SAME: "green",
    NodeImpact.OUT: "dim",
    NodeImpact.REFUSED: "bold yellow",
    NodeImpact.UNKNOWN: "yellow",
}
_IMPACTS: Final[Mapping[PodImpactKind, str]] = {
    PodImpactKind.FITS_THEN: "pending, and would fit a free node then",
    PodImpactKind.NEVER_THEN: "pending, and no node could take it any more",
    PodImpactKind.NO_WAY_BACK: "would have to leave, and no node could take it then",
}


def show_preview(preview: RolloutPreview, output: str) -> None:
    """Print a rollout's preview."""
    if output in ("json", "yaml"):
        terminal.print_data(preview_document(preview), output)
        return
    wide = output == "wide"
    terminal.show_table(_nodes(preview, wide=wide))
    terminal.note("", *_summary(preview))
    if preview.change.difference:
        terminal.note("")
        terminal.show_table(_resources(preview))
    for title, rows in _sections(preview, wide=wide):
        terminal.note("", title)
        for row in rows:
            terminal.note(f"  {row}")


def preview_document(preview: RolloutPreview) -> dict[str, Any]:
    """A rollout's preview for -o json and yaml; between versions, keys are only added."""
    leaving = {node_pods.node: node_pods for node_pods in preview.leaving}
    return {
        "layout": preview.layout,
        "needs_a_look": preview.needs_a_look,
        "nodes": [_node(node, leaving.get(node.node)) for node in preview.nodes],
        "resources": [
            {
                "resource": name,
                "now": preview.change.now.get(name, 0),
                "then": preview.change.then.get(name, 0),
                "change": count,
            }
            for name, count in preview.change.difference.items()
        ],
        "quotas": preview.quotas,
        "workloads": preview.workloads,
        "pods": preview.pods,
        "autoscalers": preview.autoscalers,
        "coordinator": preview.coordinator,
        "writes_refused": preview.writes_refused or None,
        "not_looked_at": preview.unread_parts,
    }


def _node(node: NodePreview, leaving: LeavingPods | None) -> dict[str, Any]:
    return {
        "node": node.node,
        "fate": node.fate,
        "why": node.why or None,
        "now": node.now,
        "then": node.then,
        "by_agent": node.by_agent,
        "drain": node.drain or None,
        "pods": None if leaving is None else _leaving(leaving),
    }


def _leaving(node_pods: LeavingPods) -> dict[str, Any]:
    return {
        "in_the_way": node_pods.pods,
        "exact": node_pods.exact,
        "eviction": {
            "evicted": [pod.meta.full_name for pod in node_pods.plan.evict],
            "leaving_already": [pod.meta.full_name for pod in node_pods.plan.awaited],
            "blockers": node_pods.plan.blockers,
            "losses": node_pods.plan.losses,
        },
    }


def _nodes(preview: RolloutPreview, *, wide: bool) -> TextTable:
    leaving = {node_pods.node: node_pods for node_pods in preview.leaving}
    more = ("DRAIN", "BY") if wide else ()
    header = ("NODE", "FATE", "NOW", "THEN", "PODS", "EVICTION", *more, "WHY")
    rows: list[tuple[Cell, ...]] = []
    for node in preview.nodes:
        node_pods = leaving.get(node.node)
        then = _NONE
        if node.fate is NodeImpact.CHANGES:
            then = "?" if node.then is None else _offers(node.then)
        wide_cells = (node.drain or _NONE, "agent" if node.by_agent else "tables") if wide else ()
        name, fate = Styled(node.node, "bold"), Styled(node.fate, _STYLES[node.fate])
        pods = eviction = _NONE
        if node_pods is not None:
            pods, eviction = _pods(node_pods), _eviction(node_pods)
        cells = (_offers(node.now), then, pods, eviction, *wide_cells, node.why)
        rows.append((name, fate, *cells))
    return TextTable(header=header, rows=tuple(rows))


def _offers(offers: Offers | None) -> str:
    if not offers:
        return "nothing"
    return " ".join(f"{name.removeprefix(_PREFIX)}={count}" for name, count in offers.items())


def _pods(node_pods: LeavingPods) -> str:
    if not node_pods.pods:
        return "none"
    return f"{'' if node_pods.exact else 'at most '}{len(node_pods.pods)}"


def _eviction(node_pods: LeavingPods) -> str:
    if node_pods.is_blocked:
        return f"takes none: {len(node_pods.plan.blockers)} in the way"
    return f"takes {node_pods.may_go}" if node_pods.pods or node_pods.may_go else _NONE


def _summary(preview: RolloutPreview) -> Iterator[str]:
    words = {
        NodeImpact.CHANGES: "would change",
        NodeImpact.SAME: "have it already",
        NodeImpact.OUT: "left out",
        NodeImpact.REFUSED: "would refuse",
        NodeImpact.UNKNOWN: "unknown",
    }
    counts = [f"{n} {text}" for fate, text in words.items() if (n := preview.count(fate))]
    pods = sum(len(node_pods.pods) for node_pods in preview.leaving)
    qualifier = "" if all(node_pods.exact for node_pods in preview.leaving) else "at most "
    evicted = sum(node_pods.may_go for node_pods in preview.leaving)
    blocked = sum(1 for node_pods in preview.leaving if node_pods.is_blocked)
    yield f"{len(preview.nodes)} nodes: {', '.join(counts)}."
    if not preview.leaving:
        return
    blocked_note = f", and none on {blocked} of the nodes" if blocked else ""
    yield (
        f"Pods in the way: {qualifier}{pods}. They end by themselves; eviction would take"
        f" {evicted}{blocked_note}."
    )


def _resources(preview: RolloutPreview) -> TextTable:
    change = preview.change
    rows = tuple(
        (
            name,
            str(change.now.get(name, 0)),
            str(change.then.get(name, 0)),
            Styled(f"{count:+}", "green" if count > 0 else "yellow"),
        )
        for name, count in change.difference.items()
    )
    header = ("RESOURCE", "NOW", "THEN", "CHANGE")
    return TextTable(header=header, rows=rows, right=frozenset({1, 2, 3}))


def _sections(preview: RolloutPreview, *, wide: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Sections of the preview below the tables: title and lines, without empty sections."""
    sections = (
        ("The coordinator:", preview.coordinator),
        ("The API server refuses writes:", preview.writes_refused.splitlines()),
        ("Eviction would take none, because:", list(_blockers(preview))),
        ("Eviction would cost:", list(_losses(preview))),
        ("Quotas:", [f"{finding.quota}: {finding.text}" for finding in preview.quotas]),
        (
            "Workloads that would find fewer places than they want:",
            [
                f"{workload.owner}{' (not running now)' if workload.rests else ''}: {workload.pods}"
                f" x {_offers(workload.asks)}; places on empty nodes: {workload.places_now} now,"
                f" {workload.places_then} then"
                for workload in preview.workloads
            ],
        ),
        ("Pods:", list(_pod_impacts(preview.pods))),
        (
            "Autoscalers:",
            [
                f"{warning.autoscaler} ({_named(warning.nodes, wide=wide)}): {warning.text}"
                for warning in preview.autoscalers
            ],
        ),
        (
            "Not looked at:",
            [
                f"{unread.what}: {unread.why}"
                for unread in preview.unread_parts
                if unread.matters or wide
            ],
        ),
    )
    return ((title, lines) for title, lines in sections if lines)


def _blockers(preview: RolloutPreview) -> Iterator[str]:
    for node_pods in preview.leaving:
        for blocker in node_pods.plan.blockers:
            owner = f" ({blocker.owner})" if blocker.owner else ""
            yield f"{node_pods.node}: {blocker.name}{owner}: {blocker.text}"


def _losses(preview: RolloutPreview) -> Iterator[str]:
    for node_pods in preview.leaving:
        for loss in node_pods.plan.losses:
            yield f"{node_pods.node}: {loss.owner}: {loss.text}"


def _pod_impacts(pods: Sequence[PodImpact]) -> Iterator[str]:
    for impact in pods:
        yield f"{impact.pod}: {_IMPACTS[impact.chance]} ({_offers(impact.asks)})"


def _named(names: Sequence[str], *, wide: bool) -> str:
    return first_names(names, len(names) if wide else _NAMED)
