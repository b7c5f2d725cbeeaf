# SPDX-License-Identifier: Apache-2.0
"""Preview of a rollout for each Node, and for the resources of the cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from agent.layouts.layout_request import other_managers
from api import keys
from api.mig_mode_change import ModeChange, annotated_mode_change
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_resources import GPU_RESOURCE, MIG_PREFIX
from api.mig_status_annotation import (
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    desired_digest,
)
from base.errors import BadInput
from fleet.mig_node import MigNode, UnavailableReason, node_of
from forecast.agent_terms import OBSERVE
from forecast.node_gpus import NodeGpus, Offers, node_gpus
from forecast.resource_forecast import LayoutMeaning, ResourceForecast, forecast_resources
from kube.amounts.gpu_amounts import gpu_amounts
from kube.api import Object
from kube.objects.node import Node
from kube.objects.typed_object import Metadata

_PREFIXES: Final = (GPU_RESOURCE, MIG_PREFIX)
_AWAY: Final[Mapping[UnavailableReason, str]] = {
    UnavailableReason.NOT_READY: "it is not ready",
    UnavailableReason.CORDONED: "it is cordoned",
    UnavailableReason.DRIVER_UPGRADE: "its driver is being upgraded",
    UnavailableReason.REBOOT: "it is being rebooted",
    UnavailableReason.REMOVAL: "it is being removed",
}
_AGREED: Final = (
    MigPhase.PLANNED,
    MigPhase.WAITING,
    MigPhase.CHANGING,
    MigPhase.REBOOTING,
)


class NodeImpact(StrEnum):
    """Result of a rollout for a Node."""

    CHANGES = "changes"
    SAME = "unchanged"
    """The Node has the layout, or offers its resources already."""
    OUT = "left-out"
    """Nothing happens to the Node now, for a reason other than the layout."""
    REFUSED = "refused"
    """The Node's agent would refuse the layout."""
    UNKNOWN = "unknown"
    """The Node would get the layout, and it is not known with which result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePreview:
    """Preview of a rollout for a Node."""

    node: str
    fate: NodeImpact
    why: str = ""
    now: Offers
    then: Offers | None = None
    """Resources that the Node would offer; None where they are not known, or do not change."""
    by_agent: bool = False
    """Whether the preview is the agent's own plan; else it follows from labels and tables."""
    pods: frozenset[str] | None = None
    """Keys of the pods that block the change, from the agent; None where it has no plan for it."""
    gpus: frozenset[int] | None = None
    """Places of the GPUs that change or may change; None where they are not known."""
    sets_modes: bool = False
    """Whether MIG is turned on or off on each of these GPUs: then any user of one blocks it."""
    drain: str = ""
    """Drain mode; empty where it is the coordinator's, and not known."""

    @property
    def after(self) -> Offers:
        """Resources that the Node offers after the rollout, as far as they are known."""
        return self.now if self.then is None else self.then


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """Request of a rollout: what it writes to all of its Nodes, and the settings that apply."""

    text: str
    """The layout as it is written to the Nodes."""
    meaning: LayoutMeaning
    drain: str = ""
    """Drain mode that is written to the Nodes; empty where they keep their own."""
    usual_drain: str = ""
    """The coordinator's drain mode, for Nodes without one; empty where it is not known."""
    mode: str | None = None
    """Setting ``mig-mode`` of the agents; None where it is not known."""
    mode_change: ModeChange = ModeChange.OFF
    """Setting ``mig-mode-change`` of the agents, for Nodes without an annotation of this name."""

    def on(self, node: Node) -> RolloutRequest:
        """The request with what the Node permits. Raises BadInput for another annotation."""
        text = node.metadata.annotations.get(keys.MIG_MODE_CHANGE)
        return self if text is None else replace(self, mode_change=annotated_mode_change(text))


def node_preview(
    node: Object, rollout: RolloutRequest, *, pods: Collection[str], slice_drivers: Collection[str]
) -> NodePreview:
    """Preview a rollout for a Node; ``pods``: ``namespace/name`` of the pods on it."""
    mig_node = node_of(node, _PREFIXES)
    typed_node = Node.from_object(node)
    gpus = node_gpus(typed_node)
    drain = rollout.drain or mig_node.drain or rollout.usual_drain
    skip_reason = _skip_reason(node, mig_node, rollout, pods, slice_drivers)
    if skip_reason:
        return NodePreview(
            node=mig_node.name, fate=NodeImpact.OUT, why=skip_reason, now=gpus.offers, drain=drain
        )
    try:
        rollout = rollout.on(typed_node)
    except BadInput as error:
        return replace(_preview(mig_node, gpus, NodeImpact.REFUSED, str(error)), drain=drain)
    preview = _by_agent(typed_node, mig_node, gpus, rollout) or _by_tables(mig_node, gpus, rollout)
    return replace(preview, drain=drain, why=_with_policy(preview.why, typed_node, rollout))


def cluster_offers(
    nodes: Iterable[Object], previews: Sequence[NodePreview]
) -> tuple[Offers, Offers]:
    """Resources of all Nodes of the cluster together, now and after the rollout."""
    offers_then = {preview.node: preview.after for preview in previews}
    now_sum: Counter[str] = Counter()
    then_sum: Counter[str] = Counter()
    for node in map(Node.from_object, nodes):
        offers = gpu_amounts(node.status.allocatable)
        now_sum.update(offers)
        then_sum.update(offers_then.get(node.name, offers))
    return dict(sorted(now_sum.items())), dict(sorted(then_sum.items()))


def _skip_reason(
    node: Object,
    mig_node: MigNode,
    rollout: RolloutRequest,
    pods: Collection[str],
    slice_drivers: Collection[str],
) -> str:
    """Why nothing happens to the Node now; empty where something may."""
    metadata: dict[str, Any] = node["metadata"]
    if Metadata.from_object(metadata).labels.get(keys.MIG_CAPABLE) == "false":
        return "none of its GPUs has MIG"
    managers = other_managers(metadata, pods=pods, slice_drivers=slice_drivers)
    if managers:
        return f"{' and '.join(managers)} manages MIG there"
    if mig_node.status is None:
        return "no agent manages MIG there"
    if mig_node.away is not None:
        return _AWAY[mig_node.away]
    if mig_node.unschedulable and mig_node.permit is None:
        return "cordoned by somebody else: it waits until it is uncordoned"
    if rollout.mode is not None and rollout.mode != "enforce":
        word = "only plans" if rollout.mode == OBSERVE else "does not look"
        return f"its agent {word} (mig-mode {rollout.mode})"
    return ""


def _by_agent(
    node: Node, mig_node: MigNode, gpus: NodeGpus, rollout: RolloutRequest
) -> NodePreview | None:
    """Preview from the agent's status; None where the status is not about this layout."""
    status = mig_node.status
    annotations = node.metadata.annotations
    if status is None or annotations.get(keys.MIG_LAYOUT) != rollout.text:
        return None
    if status.desired_digest != desired_digest(RequestSource.ANNOTATION, rollout.text):
        return None  # not judged yet
    if status.phase == MigPhase.UNCHANGED:
        return _preview(mig_node, gpus, NodeImpact.SAME, "it has this layout", by_agent=True)
    if status.phase == MigPhase.REFUSED:
        return _preview(mig_node, gpus, NodeImpact.REFUSED, status.reason, by_agent=True)
    if status.phase in _AGREED:
        return _planned(mig_node, gpus, status, mig_node.request, rollout)
    return None


def _planned(
    mig_node: MigNode,
    gpus: NodeGpus,
    status: MigStatusAnnotation,
    request: MigRequestAnnotation | None,
    rollout: RolloutRequest,
) -> NodePreview:
    """Preview of a change that the agent has planned.

    The agent reports the resources where it knows the strategy; else they are forecast here.
    """
    offers: Offers | None = dict(request.allocatable) if request and request.allocatable else None
    if offers is None:
        offers = forecast_resources(rollout.meaning, gpus, rollout.mode_change).offers
    why = f"desired already: {status.phase}"
    if request is not None and request.programs:
        why += f"; in its way: {', '.join(request.programs)}"
    return NodePreview(
        node=mig_node.name,
        fate=NodeImpact.CHANGES,
        why=why,
        now=gpus.offers,
        then=offers,
        by_agent=True,
        pods=None if request is None or request.unlisted else frozenset(request.pods),
    )


def _by_tables(mig_node: MigNode, gpus: NodeGpus, rollout: RolloutRequest) -> NodePreview:
    forecast = forecast_resources(rollout.meaning, gpus, rollout.mode_change)
    if forecast.refused:
        return _preview(mig_node, gpus, NodeImpact.REFUSED, forecast.refused)
    if forecast.offers is None:
        return _preview(mig_node, gpus, NodeImpact.UNKNOWN, forecast.unknown)
    if forecast.offers == gpus.offers:
        return _preview(mig_node, gpus, NodeImpact.SAME, "it offers the same already")
    return NodePreview(
        node=mig_node.name,
        fate=NodeImpact.CHANGES,
        why=_changed_gpus_note(forecast, gpus),
        now=gpus.offers,
        then=forecast.offers,
        gpus=frozenset(forecast.gpus),
        sets_modes=forecast.sets_modes,
    )


def _with_policy(why: str, node: Node, rollout: RolloutRequest) -> str:
    """Add a note where the rollout takes the Node's layout out of the fleet policy's hands.

    The fleet policy never replaces a layout that a person has written.
    """
    annotations = node.metadata.annotations
    mark = annotations.get(keys.MIG_POLICY)
    if mark is None or annotations.get(keys.MIG_LAYOUT) == rollout.text:
        return why
    policy_note = (
        f"its layout is the fleet policy's ({mark.partition('/')[0]}), and would be so no more"
    )
    return f"{why}; {policy_note}" if why else policy_note


def _changed_gpus_note(forecast: ResourceForecast, gpus: NodeGpus) -> str:
    if len(forecast.gpus) == len(gpus.ids):
        return ""
    return f"GPUs {', '.join(map(str, forecast.gpus))} of {len(gpus.ids)}"


def _preview(
    mig_node: MigNode, gpus: NodeGpus, fate: NodeImpact, why: str, *, by_agent: bool = False
) -> NodePreview:
    return NodePreview(node=mig_node.name, fate=fate, why=why, now=gpus.offers, by_agent=by_agent)
