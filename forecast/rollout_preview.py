# SPDX-License-Identifier: Apache-2.0
"""Preview of a rollout: all its effects, from a picture of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fleet.drain.drain_blocker import DrainBlocker
from fleet.drain.drain_plan import DrainSettings
from fleet.mig_node import DrainMode
from forecast.autoscaler_warnings import (
    AutoscalerMarks,
    AutoscalerWarning,
    autoscaler_warnings,
)
from forecast.cluster_picture import ClusterPicture, UnreadPart
from forecast.leaving_pods import LeavingPods, leaving_pods, with_refusals
from forecast.node_preview import (
    NodeImpact,
    NodePreview,
    RolloutRequest,
    cluster_offers,
    node_preview,
)
from forecast.places_for_pods import (
    PodImpact,
    PodImpactKind,
    StarvedWorkload,
    gpu_nodes,
    pod_impacts,
    starved_workloads,
)
from forecast.quota_findings import (
    OffersChange,
    QuotaFinding,
    queue_findings,
    quota_findings,
)
from kube.api import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPreview:
    """Effects that a rollout would have on a cluster."""

    layout: str
    nodes: tuple[NodePreview, ...]
    """The chosen Nodes, by name."""
    leaving: tuple[LeavingPods, ...]
    """Pods of each Node that changes; empty where pods could not be read."""
    change: OffersChange
    """Change of the resources of all Nodes of the cluster together."""
    quotas: tuple[QuotaFinding, ...]
    workloads: tuple[StarvedWorkload, ...]
    pods: tuple[PodImpact, ...]
    autoscalers: tuple[AutoscalerWarning, ...]
    unread_parts: tuple[UnreadPart, ...]
    coordinator: tuple[str, ...] = ()
    """Reasons for which all nodes wait, from the coordinator's Lease."""
    writes_refused: str = ""
    """Reasons of the API server for refusing writes; empty where it accepts all."""

    def count(self, fate: NodeImpact) -> int:
        """Number of Nodes with this fate."""
        return sum(1 for node in self.nodes if node.fate is fate)

    @property
    def needs_a_look(self) -> bool:
        """Whether a person should read the preview before starting the rollout."""
        blocked = any(
            node_pods.is_blocked
            for node_pods in self.leaving
            if node_pods.drain in (DrainMode.EVICT, DrainMode.NODE)
        )
        lacking = any(impact.chance is not PodImpactKind.FITS_THEN for impact in self.pods)
        unclear = self.count(NodeImpact.REFUSED) + self.count(NodeImpact.UNKNOWN)
        has_unread = any(unread.matters for unread in self.unread_parts)
        findings = (
            self.quotas,
            self.workloads,
            self.autoscalers,
            self.writes_refused,
            self.coordinator,
        )
        return bool(blocked or lacking or unclear or has_unread or any(findings))


def rollout_preview(
    picture: ClusterPicture,
    rollout: RolloutRequest,
    is_chosen: Callable[[Object], bool],
    *,
    evictions: DrainSettings,
    now: float | None = None,
) -> RolloutPreview:
    """Preview a rollout to the chosen Nodes.

    ``evictions``: pods that the coordinator may evict; ``now``: seconds since 1970, where known.
    """
    on_node: dict[str, list[str]] = {}
    for pod in picture.pods:
        if pod.is_bound:
            on_node.setdefault(pod.spec.node_name, []).append(pod.metadata.full_name)
    previews = tuple(
        node_preview(
            node,
            rollout,
            pods=on_node.get(name, ()),
            slice_drivers=picture.slice_drivers.get(name, frozenset()),
        )
        for name, node in sorted(
            (manifest["metadata"]["name"], manifest) for manifest in picture.nodes
        )
        if is_chosen(node)
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
    offered_now, offered_then = cluster_offers(picture.nodes, previews)
    change = OffersChange(now=offered_now, then=offered_then)
    nodes = gpu_nodes(picture.nodes, {preview.node: preview.after for preview in previews})
    marks = AutoscalerMarks(
        status=picture.autoscaler_status,
        deployments=picture.deployments,
        node_pools=picture.node_pools,
    )
    return RolloutPreview(
        layout=rollout.text,
        nodes=previews,
        leaving=leaving,
        change=change,
        quotas=(
            *quota_findings(picture.quotas, change),
            *queue_findings(picture.cluster_queues, change),
        ),
        workloads=tuple(starved_workloads(picture.templates, nodes)),
        pods=tuple(
            pod_impacts(
                picture.pods, nodes, {node_pods.node: node_pods.pods for node_pods in leaving}
            )
        ),
        autoscalers=tuple(autoscaler_warnings(picture.nodes, previews, marks)),
        unread_parts=picture.unread_parts,
    )


def with_evictions(
    preview: RolloutPreview,
    blockers_by_uid: Mapping[str, DrainBlocker],
    not_tried: UnreadPart | None,
) -> RolloutPreview:
    """Add the refused evictions of a dry run, by UID; ``not_tried``: why not all were tried."""
    leaving = tuple(
        with_refusals(
            node_pods,
            [
                blockers_by_uid[pod.meta.uid]
                for pod in node_pods.plan.evict
                if pod.meta.uid in blockers_by_uid
            ],
        )
        for node_pods in preview.leaving
    )
    more = () if not_tried is None else (not_tried,)
    return replace(preview, leaving=leaving, unread_parts=(*preview.unread_parts, *more))
