# SPDX-License-Identifier: Apache-2.0
"""What autoscalers would make of a rollout. Pure.

Sources: kubernetes/autoscaler, cluster-autoscaler/processors/customresources/gpu_processor.go
(a node with its provider's GPU label and without nvidia.com/gpu counts as not ready) and GPULabel
of its cloud providers; kubernetes-sigs/karpenter#341 (a node whose resources do not register is
never initialised); aws/karpenter-provider-aws#8710 (MIG needs a NodeOverlay).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from api.mig_resources import GPU_RESOURCE, MIG_PREFIX
from cli.mig.preview.node_preview import NodeFate, NodePreview
from kube.api import Object

CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "Karpenter"
GPU_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "accelerator",
    "aliyun.accelerator/nvidia_name",
    "cluster-api/accelerator",
)
"""Node labels by which cluster-autoscaler knows nodes with GPUs: GKE, AWS, Azure, Alibaba, Cluster
API."""
NODE_POOL: Final = "karpenter.sh/nodepool"
INITIALIZED: Final = "karpenter.sh/initialized"
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerMarks:
    """What shows that there are autoscalers."""

    status: bool = False
    """cluster-autoscaler has written its status."""
    deployments: Sequence[Object] = ()
    """All Deployments of the cluster."""
    node_pools: Sequence[Object] = ()
    """Karpenter's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerWarning:
    """One thing to know."""

    autoscaler: str
    nodes: tuple[str, ...]
    """That it is about."""
    text: str
    """A sentence."""


def autoscaler_warnings(
    nodes: Iterable[Object], previews: Sequence[NodePreview], marks: AutoscalerMarks
) -> list[AutoscalerWarning]:
    """Warnings about the Nodes that change; none where nothing shows an autoscaler."""
    changing = {one.node: one for one in previews if one.fate is NodeFate.CHANGES}
    seen = {name: node for node in nodes if (name := str(node["metadata"]["name"])) in changing}
    labels = {name: seen[name]["metadata"].get("labels") or {} for name in sorted(seen)}
    known = [name for name, its in labels.items() if any(each in its for each in GPU_LABELS)]
    pooled = [name for name, its in labels.items() if its.get(NODE_POOL)]
    found: list[AutoscalerWarning] = []
    without = [name for name in known if not changing[name].after.get(GPU_RESOURCE)]
    if without:
        found.append(_not_ready(without))
    runs = _runs(marks)
    who = [CLUSTER_AUTOSCALER] * bool(runs or known) + [KARPENTER] * bool(pooled)
    found += [_scale_up(name, tuple(labels)) for name in who]
    if pooled:
        found += _of_karpenter(pooled, labels, changing, marks.node_pools)
    return found


def _runs(marks: AutoscalerMarks) -> bool:
    return marks.status or any(map(_is_cluster_autoscaler, marks.deployments))


def _is_cluster_autoscaler(deployment: Object) -> bool:
    spec = (((deployment.get("spec") or {}).get("template") or {}).get("spec")) or {}
    images = (str(it.get("image", "")) for it in spec.get("containers") or ())
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


def _of_karpenter(
    pooled: Sequence[str],
    labels: dict[str, dict[str, str]],
    changing: dict[str, NodePreview],
    pools: Sequence[Object],
) -> Iterator[AutoscalerWarning]:
    there = {labels[name][NODE_POOL] for name in pooled}
    ways = "; ".join(_pool(pool) for pool in pools if pool["metadata"]["name"] in there)
    yield AutoscalerWarning(
        autoscaler=KARPENTER,
        nodes=tuple(pooled),
        text="it replaces nodes, and new ones have the layout where the fleet policy selects them"
        f" alone{' (NodePool ' + ways + ')' if ways else ''}",
    )
    raw = [name for name in pooled if labels[name].get(INITIALIZED) != "true"]
    raw = [name for name in raw if not changing[name].after.get(GPU_RESOURCE)]
    if raw:
        text = f"it waits for {GPU_RESOURCE} on these new nodes, and counts them as unfinished"
        yield AutoscalerWarning(autoscaler=KARPENTER, nodes=tuple(raw), text=text)
    gains = sorted(
        name for one in pooled for name in changing[one].after if name.startswith(MIG_PREFIX)
    )
    if gains:
        text = f"it makes no node for pods that ask for {gains[0]}, without a NodeOverlay"
        yield AutoscalerWarning(autoscaler=KARPENTER, nodes=tuple(pooled), text=text)


def _pool(pool: Object) -> str:
    spec = pool.get("spec") or {}
    policy = (spec.get("disruption") or {}).get("consolidationPolicy") or "by default"
    expires = ((spec.get("template") or {}).get("spec") or {}).get("expireAfter") or "by default"
    return f"{pool['metadata']['name']}: consolidationPolicy {policy}, expireAfter {expires}"
