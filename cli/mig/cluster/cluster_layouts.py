# SPDX-License-Identifier: Apache-2.0
"""What the cluster's Nodes say about their MIG layouts, as people compare it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from api import keys, mig_grant_annotation, mig_request_annotation, mig_status_annotation
from api.mig_grant_annotation import GrantPhase, MigGrantAnnotation
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import (
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    wish_digest,
)
from base.errors import BadInput
from cli.terminal import Cell, Styled, TextTable
from fleet.startup.startup_taint import is_tainted
from kube.amounts.gpu_amounts import gpu_amounts
from kube.api import Object

_NONE: Final = "-"
_UNJUDGED: Final = "unjudged"
"""In place of the phase of what was asked for before."""
_OTHER_VERSION: Final = "written by another major version of gpuscape"
_MOST_WISH: Final = 40
"""Characters of a layout in the table; -o wide has it whole."""
_STYLES: Final[Mapping[str, str]] = {
    MigPhase.UNCHANGED: "green",
    MigPhase.PLANNED: "cyan",
    MigPhase.WAITING: "cyan",
    MigPhase.CHANGING: "bold cyan",
    MigPhase.UNREAD: "yellow",
    _UNJUDGED: "yellow",
    MigPhase.REFUSED: "yellow",
    MigPhase.FAILED: "bold yellow",
    MigPhase.HELD: "bold red",
}
_NEVER: Final = "never"
"""Of ``gpuscape.io/mig-adopt``: the label is another program's."""
_SETTLED: Final = (MigPhase.UNCHANGED, MigPhase.IDLE, MigPhase.UNADOPTED)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayout:
    """What one Node says about its MIG layout."""

    node: str
    wish: str | None
    """What is asked for now; None: nothing."""
    status: MigStatusAnnotation | None
    """None: no agent has said anything that can be read."""
    request: MigRequestAnnotation | None
    grant: MigGrantAnnotation | None
    cordoned: bool
    damaged: str = ""
    """Why an annotation could not be read."""
    is_stale: bool = False
    """The agent has not said anything yet of what is asked for now."""
    unlisted: tuple[str, ...] = ()
    """Resources of the layout of which the device plugin lists too few."""
    has_startup_taint: bool = False
    """Pods are kept away until its first layout is there."""

    @property
    def phase(self) -> str:
        """One word; a dash where no agent says anything."""
        if self.status is None:
            return _NONE
        return _UNJUDGED if self.is_stale else self.status.phase

    @property
    def is_settled(self) -> bool:
        """Nothing is to be done about it: the layout is there, or none is obeyed."""
        idle = self.status is None and self.wish is None and not self.damaged
        return (idle or self.phase in _SETTLED) and self.grant is None

    @property
    def has_drifted(self) -> bool:
        """The GPUs had what is asked for, and somebody has changed them since."""
        return (
            self.status is not None
            and bool(self.status.reached)
            and (self.status.reached == self.status.plan)
        )

    @property
    def slot(self) -> str:
        """What the coordinator lets this node do."""
        if self.grant is None:
            return _NONE
        return "change" if self.grant.phase is GrantPhase.GO else "hold"

    @property
    def pods(self) -> str:
        """Those in the way, by name as far as there are names."""
        if self.status is None or not self.status.pods:
            return _NONE
        more = f" and {self.status.more_pods} more" if self.status.more_pods else ""
        return ", ".join(self.status.pods) + more

    @property
    def why(self) -> str:
        """What a person should know."""
        kept = ("pods kept away by the startup taint",) if self.has_startup_taint else ()
        return "; ".join(text for text in (self._reason, *kept) if text)

    @property
    def _reason(self) -> str:
        if self.damaged:
            return self.damaged
        if self.status is None:
            return "" if self.wish is None else "no agent that looks after MIG has seen it"
        if self.unlisted and self.grant is None:
            return f"the device plugin does not list all of {', '.join(self.unlisted)}"
        if self.is_stale:
            return "its agent has not judged yet what is asked for now"
        return self.status.reason


def node_layout(node: Object) -> NodeLayout | None:
    """What a Node says; None where MIG layouts are nobody's affair there."""
    meta = node["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    wish = annotations.get(keys.MIG_LAYOUT, labels.get(keys.MIG_CONFIG))
    damaged: list[str] = []

    def read(key: str, decode: Callable[[str], T | None]) -> T | None:
        text = annotations.get(key)
        if text is None:
            return None
        try:
            found = decode(text)
        except BadInput as error:
            damaged.append(str(error))
            return None
        if found is None:
            damaged.append(f"annotation {key}: {_OTHER_VERSION}")
        return found

    status = read(keys.MIG_STATUS, mig_status_annotation.decode)
    request = read(keys.MIG_REQUEST, mig_request_annotation.decode)
    grant = read(keys.MIG_GRANT, mig_grant_annotation.decode)
    has_taint = is_tainted(node)
    if wish is None and not damaged and not (status or request or grant or has_taint):
        return None
    return NodeLayout(
        node=meta["name"],
        wish=wish,
        status=status,
        request=request,
        grant=grant,
        cordoned=bool((node.get("spec") or {}).get("unschedulable")),
        damaged="; ".join(damaged),
        is_stale=status is not None and _is_stale(status, annotations, labels),
        unlisted=() if status is None else _unlisted(status, node),
        has_startup_taint=has_taint,
    )


def _unlisted(status: MigStatusAnnotation, node: Object) -> tuple[str, ...]:
    """Resources of a layout that is there, of which the node has fewer than the layout."""
    if status.phase != MigPhase.UNCHANGED:
        return ()
    listed = gpu_amounts((node.get("status") or {}).get("capacity") or {}, status.offers)
    return tuple(
        name for name, count in sorted(status.offers.items()) if listed.get(name, 0) < count
    )


def _is_stale(
    status: MigStatusAnnotation, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> bool:
    """Whether a status that settles something was written before the Node asked for what it does.

    A label that the status shows as not obeyed may be one that the agent has judged.
    """
    text, label = annotations.get(keys.MIG_LAYOUT), labels.get(keys.MIG_CONFIG, "")
    if text is not None:
        wish = wish_digest(RequestSource.ANNOTATION, text)
    elif label and labels.get(keys.MIG_ADOPT) != _NEVER:
        wish = wish_digest(RequestSource.LABEL, label)
    else:
        wish = ""
    if status.phase == MigPhase.UNCHANGED:
        return not wish or status.wish not in ("", wish)
    if status.phase == MigPhase.IDLE:
        return bool(wish)
    return status.phase == MigPhase.UNADOPTED and (text is not None or status.unadopted != label)


def layout_table(found: Sequence[NodeLayout], *, wide: bool) -> TextTable:
    """One row a Node."""
    more = ("GPUS", "KEPT", "GONE", "NEW", "CORDONED", "TAINT") if wide else ()
    return TextTable(
        header=("NODE", "ASKED", "PHASE", "SINCE", "SLOT", *more, "PODS", "WHY"),
        rows=tuple(layout_row(one, wide=wide) for one in found),
    )


def layout_row(one: NodeLayout, *, wide: bool) -> tuple[Cell, ...]:
    """Its cells."""
    wish = " ".join((one.wish or _NONE).split())
    if not wide and len(wish) > _MOST_WISH:
        wish = f"{wish[: _MOST_WISH - 1]}…"
    since = (one.status.since if one.status else "") or _NONE
    more: tuple[str, ...] = ()
    if wide:
        gpus = one.status.gpus if one.status else ()
        more = (
            ",".join(str(each.gpu) for each in gpus) or _NONE,
            *(
                str(sum(counts)) if gpus else _NONE
                for counts in (
                    [each.keep for each in gpus],
                    [each.destroy for each in gpus],
                    [each.create for each in gpus],
                )
            ),
            "yes" if one.cordoned else "no",
            "yes" if one.has_startup_taint else "no",
        )
    drift = " (drift)" if one.has_drifted else ""
    phase = Styled(f"{one.phase}{drift}", _STYLES.get(one.phase, ""))
    return (Styled(one.node, "bold"), wish, phase, since, one.slot, *more, one.pods, one.why)


def layout_summary(found: Sequence[NodeLayout]) -> str:
    """The nodes by phase, in one line."""
    phases = Counter(one.phase if one.status else "not looked at" for one in found)
    counted = ", ".join(f"{count} {phase}" for phase, count in phases.most_common())
    slots = sum(1 for one in found if one.grant is not None)
    tainted = sum(one.has_startup_taint for one in found)
    more = f", {tainted} with the startup taint" if tainted else ""
    return f"{len(found)} nodes: {counted}; {slots} with a slot{more}"


def layout_document(one: NodeLayout) -> dict[str, Any]:
    """For -o json and yaml."""
    return {
        "node": one.node,
        "asked": one.wish,
        "settled": one.is_settled,
        "drift": one.has_drifted,
        "cordoned": one.cordoned,
        "startup_taint": one.has_startup_taint,
        "unlisted": list(one.unlisted),
        "status": one.status,
        "request": one.request,
        "grant": one.grant,
        "problem": one.damaged or None,
    }
