# SPDX-License-Identifier: Apache-2.0
"""What becomes of each Node that a rollout is for, and of the resources of the cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from agent.layouts.layout_request import other_managers
from api import keys
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_resources import GPU_RESOURCE, MIG_PREFIX
from api.mig_status_annotation import (
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    wish_digest,
)
from cli.mig.preview.agent_terms import OBSERVE
from cli.mig.preview.foretold_offers import Foretold, LayoutMeaning, foretold
from cli.mig.preview.node_gpus import NodeGpus, Offers, gpu_offers, node_gpus
from fleet.mig_node import Away, MigNode, node_of
from kube.api import Object

_PREFIXES: Final = (GPU_RESOURCE, MIG_PREFIX)
_AWAY: Final[Mapping[Away, str]] = {
    Away.NOT_READY: "it is not ready",
    Away.CORDONED: "it is cordoned",
    Away.DRIVER_UPGRADE: "its driver is being upgraded",
    Away.REBOOT: "it is being rebooted",
    Away.REMOVAL: "it is being removed",
}
_AGREED: Final = (MigPhase.PLANNED, MigPhase.WAITING, MigPhase.CHANGING)


class NodeFate(StrEnum):
    """What becomes of a Node."""

    CHANGES = "changes"
    SAME = "unchanged"
    """It has, or offers, what is asked for."""
    OUT = "left-out"
    """Nothing happens now, for a reason that is not the layout's."""
    REFUSED = "refused"
    """Its agent would refuse the layout."""
    UNKNOWN = "unknown"
    """It would be asked; what comes of it cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePreview:
    """One Node."""

    node: str
    fate: NodeFate
    why: str = ""
    now: Offers
    then: Offers | None = None
    """What it would offer; None where that is not known, or nothing changes."""
    by_agent: bool = False
    """The node's agent has said so; else it is worked out by labels and tables."""
    pods: frozenset[str] | None = None
    """Keys of the pods in the way, by the agent; None: it has not been asked."""
    gpus: frozenset[int] | None = None
    """Places of the GPUs that change, or may; None: not known."""
    sets_modes: bool = False
    """MIG is turned on or off on each of these: whoever has one of them is in the way."""
    drain: str = ""
    """How pods leave; empty: not known, as the coordinator has it."""

    @property
    def after(self) -> Offers:
        """What it offers in the end, as far as that is known."""
        return self.now if self.then is None else self.then


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAsked:
    """What all Nodes of a rollout have in common."""

    text: str
    """The layout as it is written to them."""
    meaning: LayoutMeaning
    drain: str = ""
    """Written too; empty: the Nodes keep theirs."""
    usual_drain: str = ""
    """The coordinator's, where a Node has none; empty: not known."""
    mode: str | None = None
    """The agents' ``mig-mode``; None: not known."""


def node_preview(
    node: Object, asked: NodesAsked, *, pods: Collection[str], slice_drivers: Collection[str]
) -> NodePreview:
    """What becomes of one Node; ``pods``: ``namespace/name`` of those on it."""
    seen = node_of(node, _PREFIXES)
    gpus = node_gpus(node)
    drain = asked.drain or seen.drain or asked.usual_drain
    out = _out(node, seen, asked, pods, slice_drivers)
    if out:
        return NodePreview(node=seen.name, fate=NodeFate.OUT, why=out, now=gpus.offers, drain=drain)
    found = _by_agent(node, seen, gpus, asked) or _by_tables(seen, gpus, asked)
    return replace(found, drain=drain, why=_with_policy(found.why, node, asked))


def offered(nodes: Iterable[Object], previews: Sequence[NodePreview]) -> tuple[Offers, Offers]:
    """What all Nodes of the cluster offer together, now and then."""
    then = {one.node: one.after for one in previews}
    now_sum: Counter[str] = Counter()
    then_sum: Counter[str] = Counter()
    for node in nodes:
        offers = gpu_offers(node)
        now_sum.update(offers)
        then_sum.update(then.get(node["metadata"]["name"], offers))
    return dict(sorted(now_sum.items())), dict(sorted(then_sum.items()))


def _out(
    node: Object,
    seen: MigNode,
    asked: NodesAsked,
    pods: Collection[str],
    slice_drivers: Collection[str],
) -> str:
    """Why nothing happens there now; empty where something may."""
    metadata: dict[str, Any] = node["metadata"]
    if (metadata.get("labels") or {}).get(keys.MIG_CAPABLE) == "false":
        return "none of its GPUs has MIG"
    others = other_managers(metadata, pods=pods, slice_drivers=slice_drivers)
    if others:
        return f"{' and '.join(others)} manages MIG there"
    if seen.status is None:
        return "no agent looks after MIG there"
    if seen.away is not None:
        return _AWAY[seen.away]
    if seen.unschedulable and seen.grant is None:
        return "it is cordoned by somebody: it waits for the end of that"
    if asked.mode is not None and asked.mode != "enforce":
        word = "only plans" if asked.mode == OBSERVE else "does not look"
        return f"its agent {word} (mig-mode {asked.mode})"
    return ""


def _by_agent(node: Object, seen: MigNode, gpus: NodeGpus, asked: NodesAsked) -> NodePreview | None:
    """What the agent says of this very wish; None where it has not been asked for that."""
    status = seen.status
    annotations = node["metadata"].get("annotations") or {}
    if status is None or annotations.get(keys.MIG_LAYOUT) != asked.text:
        return None
    if status.wish != wish_digest(RequestSource.ANNOTATION, asked.text):
        return None  # not judged yet
    if status.phase == MigPhase.UNCHANGED:
        return _preview(seen, gpus, NodeFate.SAME, "it has this layout", by_agent=True)
    if status.phase == MigPhase.REFUSED:
        return _preview(seen, gpus, NodeFate.REFUSED, status.reason, by_agent=True)
    if status.phase in _AGREED:
        return _planned(seen, gpus, status, seen.request, asked)
    return None


def _planned(
    seen: MigNode,
    gpus: NodeGpus,
    status: MigStatusAnnotation,
    request: MigRequestAnnotation | None,
    asked: NodesAsked,
) -> NodePreview:
    """The agent knows the way; what the node offers then it says where it knows the strategy."""
    offers: Offers | None = dict(request.offers) if request and request.offers else None
    if offers is None:
        offers = foretold(asked.meaning, gpus).offers
    why = f"asked for already: {status.phase}"
    if request is not None and request.programs:
        why += f"; in its way: {', '.join(request.programs)}"
    return NodePreview(
        node=seen.name,
        fate=NodeFate.CHANGES,
        why=why,
        now=gpus.offers,
        then=offers,
        by_agent=True,
        pods=None if request is None or request.unlisted else frozenset(request.pods),
    )


def _by_tables(seen: MigNode, gpus: NodeGpus, asked: NodesAsked) -> NodePreview:
    found = foretold(asked.meaning, gpus)
    if found.refused:
        return _preview(seen, gpus, NodeFate.REFUSED, found.refused)
    if found.offers is None:
        return _preview(seen, gpus, NodeFate.UNKNOWN, found.unknown)
    if found.offers == gpus.offers:
        return _preview(seen, gpus, NodeFate.SAME, "it offers the same already")
    return NodePreview(
        node=seen.name,
        fate=NodeFate.CHANGES,
        why=_partly(found, gpus),
        now=gpus.offers,
        then=found.offers,
        gpus=frozenset(found.gpus),
        sets_modes=found.sets_modes,
    )


def _with_policy(why: str, node: Object, asked: NodesAsked) -> str:
    """The fleet policy never replaces what a person wrote."""
    annotations = node["metadata"].get("annotations") or {}
    mark = annotations.get(keys.MIG_POLICY)
    if mark is None or annotations.get(keys.MIG_LAYOUT) == asked.text:
        return why
    taken = f"its layout is the fleet policy's ({mark.partition('/')[0]}), and would be so no more"
    return f"{why}; {taken}" if why else taken


def _partly(found: Foretold, gpus: NodeGpus) -> str:
    if len(found.gpus) == len(gpus.ids):
        return ""
    return f"GPUs {', '.join(map(str, found.gpus))} of {len(gpus.ids)}"


def _preview(
    seen: MigNode, gpus: NodeGpus, fate: NodeFate, why: str, *, by_agent: bool = False
) -> NodePreview:
    return NodePreview(node=seen.name, fate=fate, why=why, now=gpus.offers, by_agent=by_agent)
