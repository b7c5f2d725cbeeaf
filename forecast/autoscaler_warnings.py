# SPDX-License-Identifier: Apache-2.0
"""Warnings about what autoscalers would do during a rollout. Pure.

Sources: kubernetes/autoscaler, cluster-autoscaler/processors/customresources/gpu_processor.go
(a node with its provider's GPU label and without nvidia.com/gpu counts as not ready) and GPULabel
of its cloud providers; kubernetes-sigs/karpenter#341 (a node whose resources do not register is
never initialised); aws/karpenter-provider-aws#8710 (MIG needs a NodeOverlay).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from api.mig_resources import GPU_RESOURCE, MIG_PREFIX
from forecast.node_preview import NodeImpact, NodePreview
from kube.api import Object
from kube.objects.pod import Pod
from kube.objects.typed_object import Metadata

CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "Karpenter"
GPU_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "accelerator",
    "aliyun.accelerator/nvidia_name",
    "cluster-api/accelerator",
)
"""Node labels by which cluster-autoscaler recognizes GPU nodes: GKE, AWS, Azure, Alibaba, Cluster
API."""
NODE_POOL: Final = "karpenter.sh/nodepool"
INITIALIZED: Final = "karpenter.sh/initialized"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerMarks:
    """Signs in the cluster that there are autoscalers."""

    status: bool = False
    """Whether cluster-autoscaler has written its status."""
    deployments: Sequence[Object] = ()
    """All Deployments of the cluster."""
    node_pools: Sequence[Object] = ()
    """Karpenter's NodePools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerWarning:
    """Something that an autoscaler may do during the rollout, for some Nodes."""

    autoscaler: str
    nodes: tuple[str, ...]
    """Names of the Nodes that the warning is about."""
    text: str
    """The warning, a sentence in which "it" is the autoscaler."""


def autoscaler_warnings(
    nodes: Iterable[Object], previews: Sequence[NodePreview], marks: AutoscalerMarks
) -> list[AutoscalerWarning]:
    """Warnings about the Nodes that change; empty where there is no sign of an autoscaler."""
    changing = {preview.node: preview for preview in previews if preview.fate is NodeImpact.CHANGES}
    metadata = [Metadata.from_object(node["metadata"]) for node in nodes]
    labels_by_node = {meta.name: meta.labels for meta in metadata if meta.name in changing}
    labels_by_node = dict(sorted(labels_by_node.items()))
    labelled = [
        name
        for name, node_labels in labels_by_node.items()
        if any(label in node_labels for label in GPU_LABELS)
    ]
    pooled = [name for name, node_labels in labels_by_node.items() if node_labels.get(NODE_POOL)]
    warnings: list[AutoscalerWarning] = []
    without_gpus = [name for name in labelled if not changing[name].after.get(GPU_RESOURCE)]
    if without_gpus:
        warnings.append(_not_ready(without_gpus))
    runs = _runs(marks)
    autoscalers = [CLUSTER_AUTOSCALER] * bool(runs or labelled) + [KARPENTER] * bool(pooled)
    warnings += [_scale_up(name, tuple(labels_by_node)) for name in autoscalers]
    if pooled:
        warnings += _karpenter_warnings(pooled, labels_by_node, changing, marks.node_pools)
    return warnings


def _runs(marks: AutoscalerMarks) -> bool:
    return marks.status or any(map(_is_cluster_autoscaler, marks.deployments))


def _is_cluster_autoscaler(deployment: Object) -> bool:
    template = Pod.from_object((deployment.get("spec") or {}).get("template") or {})
    images = (container.image for container in template.spec.containers)
    return any(CLUSTER_AUTOSCALER in text for text in (deployment["metadata"]["name"], *images))


def _not_ready(nodes: Sequence[str]) -> AutoscalerWarning:
    text = (
        f"it takes a GPU node that offers no {GPU_RESOURCE} for not ready: it may add others, and"
        " stops where many are so"
    )
    return AutoscalerWarning(autoscaler=CLUSTER_AUTOSCALER, nodes=tuple(nodes), text=text)


def _scale_up(autoscaler: str, nodes: tuple[str, ...]) -> AutoscalerWarning:
    text = "it may add nodes while these are cordoned and their pods find no other place"
    return AutoscalerWarning(autoscaler=autoscaler, nodes=nodes, text=text)


def _karpenter_warnings(
    pooled: Sequence[str],
    labels_by_node: Mapping[str, Mapping[str, str]],
    changing: dict[str, NodePreview],
    pools: Sequence[Object],
) -> Iterator[AutoscalerWarning]:
    pool_names = {labels_by_node[name][NODE_POOL] for name in pooled}
    pool_notes = "; ".join(_pool(pool) for pool in pools if pool["metadata"]["name"] in pool_names)
    yield AutoscalerWarning(
        autoscaler=KARPENTER,
        nodes=tuple(pooled),
        text="it replaces nodes, and new ones have the layout where the fleet policy selects them"
        f" alone{' (NodePool ' + pool_notes + ')' if pool_notes else ''}",
    )
    uninitialized = [name for name in pooled if labels_by_node[name].get(INITIALIZED) != "true"]
    uninitialized = [name for name in uninitialized if not changing[name].after.get(GPU_RESOURCE)]
    if uninitialized:
        text = f"it waits for {GPU_RESOURCE} on these new nodes, and counts them as unfinished"
        yield AutoscalerWarning(autoscaler=KARPENTER, nodes=tuple(uninitialized), text=text)
    resources = sorted(
        name for node in pooled for name in changing[node].after if name.startswith(MIG_PREFIX)
    )
    if resources:
        text = f"it creates no node for pods that request {resources[0]}, without a NodeOverlay"
        yield AutoscalerWarning(autoscaler=KARPENTER, nodes=tuple(pooled), text=text)


def _pool(pool: Object) -> str:
    spec = pool.get("spec") or {}
    policy = (spec.get("disruption") or {}).get("consolidationPolicy") or "by default"
    expires = ((spec.get("template") or {}).get("spec") or {}).get("expireAfter") or "by default"
    return f"{pool['metadata']['name']}: consolidationPolicy {policy}, expireAfter {expires}"
