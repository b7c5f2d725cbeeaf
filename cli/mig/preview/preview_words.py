# SPDX-License-Identifier: Apache-2.0
"""A rollout's preview as tables, and as a document for -o json and yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cli import terminal
from cli.mig.preview.leaving_pods import LeavingPods
from cli.mig.preview.node_gpus import Offers
from cli.mig.preview.node_preview import NodeFate, NodePreview
from cli.mig.preview.places_for_pods import PodChance, PodOutlook
from cli.mig.preview.rollout_preview import RolloutPreview
from cli.terminal import Cell, Styled, TextTable

_NONE: Final = "-"
_PREFIX: Final = "nvidia.com/"
_NAMED: Final = 5
_STYLES: Final[Mapping[NodeFate, str]] = {
    NodeFate.CHANGES: "cyan",
    NodeFate.SAME: "green",
    NodeFate.OUT: "dim",
    NodeFate.REFUSED: "bold yellow",
    NodeFate.UNKNOWN: "yellow",
}
_CHANCES: Final[Mapping[PodChance, str]] = {
    PodChance.FITS_THEN: "pending, and would fit a free node then",
    PodChance.NEVER_THEN: "pending, and no node could take it any more",
    PodChance.NO_WAY_BACK: "would have to leave, and no node could take it then",
}


def show(preview: RolloutPreview, output: str) -> None:
    """Print it."""
    if output in ("json", "yaml"):
        terminal.data(document(preview), output)
        return
    wide = output == "wide"
    terminal.show(_nodes(preview, wide=wide))
    terminal.note("", *_summary(preview))
    if preview.change.difference:
        terminal.note("")
        terminal.show(_resources(preview))
    for title, rows in _sections(preview, wide=wide):
        terminal.note("", title)
        for row in rows:
            terminal.note(f"  {row}")


def document(preview: RolloutPreview) -> dict[str, Any]:
    """For -o json and yaml; keys are only added between versions."""
    leaving = {one.node: one for one in preview.leaving}
    return {
        "layout": preview.layout,
        "needs_a_look": preview.needs_a_look,
        "nodes": [_node(one, leaving.get(one.node)) for one in preview.nodes],
        "resources": [
            {
                "resource": name,
                "now": preview.change.now.get(name, 0),
                "then": preview.change.then.get(name, 0),
                "change": by,
            }
            for name, by in preview.change.difference.items()
        ],
        "quotas": preview.quotas,
        "workloads": preview.workloads,
        "pods": preview.pods,
        "autoscalers": preview.autoscalers,
        "coordinator": preview.coordinator,
        "writes_refused": preview.writes_refused or None,
        "not_looked_at": preview.not_looked,
    }


def _node(one: NodePreview, leaving: LeavingPods | None) -> dict[str, Any]:
    return {
        "node": one.node,
        "fate": one.fate,
        "why": one.why or None,
        "now": one.now,
        "then": one.then,
        "by_agent": one.by_agent,
        "drain": one.drain or None,
        "pods": None if leaving is None else _leaving(leaving),
    }


def _leaving(one: LeavingPods) -> dict[str, Any]:
    return {
        "in_the_way": one.pods,
        "exact": one.exact,
        "eviction": {
            "evicted": [pod.full_name for pod in one.plan.evict],
            "leaving_already": [pod.full_name for pod in one.plan.awaited],
            "blockers": one.plan.blockers,
            "losses": one.plan.losses,
        },
    }


def _nodes(preview: RolloutPreview, *, wide: bool) -> TextTable:
    leaving = {one.node: one for one in preview.leaving}
    more = ("DRAIN", "BY") if wide else ()
    header = ("NODE", "FATE", "NOW", "THEN", "PODS", "EVICTION", *more, "WHY")
    rows: list[tuple[Cell, ...]] = []
    for one in preview.nodes:
        its = leaving.get(one.node)
        known = one.fate is NodeFate.CHANGES
        wide_cells = (one.drain or _NONE, "agent" if one.by_agent else "tables") if wide else ()
        rows.append(
            (
                Styled(one.node, "bold"),
                Styled(one.fate, _STYLES[one.fate]),
                _offers(one.now),
                _offers(one.then) if known and one.then is not None else "?" if known else _NONE,
                _NONE if its is None else _pods(its),
                _NONE if its is None else _eviction(its),
                *wide_cells,
                one.why,
            )
        )
    return TextTable(header=header, rows=tuple(rows))


def _offers(offers: Offers | None) -> str:
    if not offers:
        return "nothing"
    return " ".join(f"{name.removeprefix(_PREFIX)}={count}" for name, count in offers.items())


def _pods(one: LeavingPods) -> str:
    if not one.pods:
        return "none"
    return f"{'' if one.exact else 'at most '}{len(one.pods)}"


def _eviction(one: LeavingPods) -> str:
    if one.is_blocked:
        return f"takes none: {len(one.plan.blockers)} in the way"
    return f"takes {one.may_go}" if one.pods or one.may_go else _NONE


def _summary(preview: RolloutPreview) -> Iterator[str]:
    words = {
        NodeFate.CHANGES: "would change",
        NodeFate.SAME: "have it already",
        NodeFate.OUT: "left out",
        NodeFate.REFUSED: "would refuse",
        NodeFate.UNKNOWN: "unknown",
    }
    counted = [f"{n} {text}" for fate, text in words.items() if (n := preview.count(fate))]
    pods = sum(len(one.pods) for one in preview.leaving)
    most = "" if all(one.exact for one in preview.leaving) else "at most "
    goes = sum(one.may_go for one in preview.leaving)
    blocked = sum(1 for one in preview.leaving if one.is_blocked)
    yield f"{len(preview.nodes)} nodes: {', '.join(counted)}."
    if not preview.leaving:
        return
    keeps = f", and none on {blocked} of the nodes" if blocked else ""
    yield (
        f"Pods in the way: {most}{pods}. They end by themselves; eviction would take {goes}{keeps}."
    )


def _resources(preview: RolloutPreview) -> TextTable:
    change = preview.change
    rows = tuple(
        (
            name,
            str(change.now.get(name, 0)),
            str(change.then.get(name, 0)),
            Styled(f"{by:+}", "green" if by > 0 else "yellow"),
        )
        for name, by in change.difference.items()
    )
    header = ("RESOURCE", "NOW", "THEN", "CHANGE")
    return TextTable(header=header, rows=rows, right=frozenset({1, 2, 3}))


def _sections(preview: RolloutPreview, *, wide: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Titles with lines, those that have any."""
    sections = (
        ("The coordinator:", preview.coordinator),
        ("The API server refuses writes:", preview.writes_refused.splitlines()),
        ("Eviction would take none, because:", list(_blockers(preview))),
        ("Eviction would cost:", list(_losses(preview))),
        ("Quotas:", [f"{one.quota}: {one.text}" for one in preview.quotas]),
        (
            "Workloads that would find fewer places than they want:",
            [
                f"{one.owner}{' (not running now)' if one.rests else ''}: {one.pods} x"
                f" {_offers(one.asks)}; places on empty nodes: {one.places_now} now,"
                f" {one.places_then} then"
                for one in preview.workloads
            ],
        ),
        ("Pods:", list(_outlooks(preview.pods))),
        (
            "Autoscalers:",
            [
                f"{one.autoscaler} ({_named(one.nodes, wide=wide)}): {one.text}"
                for one in preview.autoscalers
            ],
        ),
        (
            "Not looked at:",
            [f"{one.what}: {one.why}" for one in preview.not_looked if one.matters or wide],
        ),
    )
    return ((title, lines) for title, lines in sections if lines)


def _blockers(preview: RolloutPreview) -> Iterator[str]:
    for one in preview.leaving:
        for blocker in one.plan.blockers:
            owner = f" ({blocker.owner})" if blocker.owner else ""
            yield f"{one.node}: {blocker.name}{owner}: {blocker.text}"


def _losses(preview: RolloutPreview) -> Iterator[str]:
    for one in preview.leaving:
        for loss in one.plan.losses:
            yield f"{one.node}: {loss.owner}: {loss.text}"


def _outlooks(pods: Sequence[PodOutlook]) -> Iterator[str]:
    for one in pods:
        yield f"{one.pod}: {_CHANCES[one.chance]} ({_offers(one.asks)})"


def _named(names: Sequence[str], *, wide: bool) -> str:
    if wide or len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
