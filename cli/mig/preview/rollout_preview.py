# SPDX-License-Identifier: Apache-2.0
"""All that a rollout would do, from one picture of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cli.mig.preview.autoscaler_warnings import (
    AutoscalerMarks,
    AutoscalerWarning,
    autoscaler_warnings,
)
from cli.mig.preview.cluster_picture import ClusterPicture, NotLookedAt
from cli.mig.preview.leaving_pods import LeavingPods, leaving_pods, with_refusals
from cli.mig.preview.node_preview import (
    NodeFate,
    NodePreview,
    NodesAsked,
    node_preview,
    offered,
)
from cli.mig.preview.places_for_pods import (
    PodChance,
    PodOutlook,
    StarvedWorkload,
    gpu_nodes,
    outlooks,
    starved,
)
from cli.mig.preview.quota_findings import (
    OffersChange,
    QuotaFinding,
    queue_findings,
    quota_findings,
)
from fleet.drain.drain_plan import DrainBlocker, DrainTerms
from fleet.mig_node import DrainMode
from kube.api import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPreview:
    """What would become of a cluster."""

    layout: str
    nodes: tuple[NodePreview, ...]
    """Those that were chosen, by name."""
    leaving: tuple[LeavingPods, ...]
    """One for each that changes; none where pods could not be read."""
    change: OffersChange
    """Of all Nodes of the cluster together."""
    quotas: tuple[QuotaFinding, ...]
    workloads: tuple[StarvedWorkload, ...]
    pods: tuple[PodOutlook, ...]
    autoscalers: tuple[AutoscalerWarning, ...]
    not_looked: tuple[NotLookedAt, ...]
    coordinator: tuple[str, ...] = ()
    """What keeps all nodes waiting, by the coordinator's Lease."""
    writes_refused: str = ""
    """What the API server says against the writes; empty where it would take all."""

    def count(self, fate: NodeFate) -> int:
        """Nodes of this fate."""
        return sum(1 for one in self.nodes if one.fate is fate)

    @property
    def needs_a_look(self) -> bool:
        """A person should read it before he says yes."""
        blocked = any(
            one.is_blocked for one in self.leaving if one.drain in (DrainMode.EVICT, DrainMode.NODE)
        )
        lacking = any(one.chance is not PodChance.FITS_THEN for one in self.pods)
        unclear = self.count(NodeFate.REFUSED) + self.count(NodeFate.UNKNOWN)
        unread = any(one.matters for one in self.not_looked)
        found = (
            self.quotas,
            self.workloads,
            self.autoscalers,
            self.writes_refused,
            self.coordinator,
        )
        return bool(blocked or lacking or unclear or unread or any(found))


def rollout_preview(
    picture: ClusterPicture,
    asked: NodesAsked,
    chosen: Callable[[Object], bool],
    *,
    evictions: DrainTerms,
    now: float | None = None,
) -> RolloutPreview:
    """What a rollout to the chosen Nodes would do.

    ``evictions``: what the coordinator may evict; ``now``: seconds since 1970, where known.
    """
    on_node: dict[str, list[str]] = {}
    for pod in picture.pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            meta = pod["metadata"]
            on_node.setdefault(node, []).append(f"{meta['namespace']}/{meta['name']}")
    previews = tuple(
        node_preview(
            node,
            asked,
            pods=on_node.get(name, ()),
            slice_drivers=picture.slice_drivers.get(name, frozenset()),
        )
        for name, node in sorted((it["metadata"]["name"], it) for it in picture.nodes)
        if chosen(node)
    )
    leaving = (
        leaving_pods(
            previews,
            picture.pods,
            picture.budgets,
            picture.owners,
            picture.holders,
            terms=evictions,
            now=now,
        )
        if picture.shows_pods
        else ()
    )
    offered_now, offered_then = offered(picture.nodes, previews)
    change = OffersChange(now=offered_now, then=offered_then)
    nodes = gpu_nodes(picture.nodes, {one.node: one.after for one in previews})
    marks = AutoscalerMarks(
        status=picture.autoscaler_status,
        deployments=picture.deployments,
        node_pools=picture.node_pools,
    )
    return RolloutPreview(
        layout=asked.text,
        nodes=previews,
        leaving=leaving,
        change=change,
        quotas=(
            *quota_findings(picture.quotas, change),
            *queue_findings(picture.cluster_queues, change),
        ),
        workloads=tuple(starved(picture.templates, nodes)),
        pods=tuple(outlooks(picture.pods, nodes, {one.node: one.pods for one in leaving})),
        autoscalers=tuple(autoscaler_warnings(picture.nodes, previews, marks)),
        not_looked=picture.not_looked,
    )


def with_evictions(
    preview: RolloutPreview, refused: Mapping[str, DrainBlocker], missed: NotLookedAt | None
) -> RolloutPreview:
    """With what the API server said to evictions that were tried: UID to blocker."""
    leaving = tuple(
        with_refusals(one, [refused[it.uid] for it in one.plan.evict if it.uid in refused])
        for one in preview.leaving
    )
    more = () if missed is None else (missed,)
    return replace(preview, leaving=leaving, not_looked=(*preview.not_looked, *more))
