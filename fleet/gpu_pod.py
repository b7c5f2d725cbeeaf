# SPDX-License-Identifier: Apache-2.0
"""Pods as the coordinator sees them: those that ask for GPUs, the device plugin's, and those of the
parts of the GPU operator that keep GPUs open. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from api.state_annotation import pod_key
from kube.amounts.gpu_amounts import asks_gpus
from kube.api import Object
from kube.objects.pod import Pod

_PARTS: Final = (
    "client",
    "dcgm",
    "dcgm-exporter",
    "device-plugin",
    "gpu-feature-discovery",
    "nvsm",
)
PAUSABLE: Final = frozenset(f"nvidia.com/gpu.deploy.{part}" for part in _PARTS)
"""Labels of the parts of the GPU operator that keep GPUs open. Never the driver's or the
toolkit's. Source: NVIDIA mig-parted, cmd/nvidia-mig-manager."""

Selector = tuple[str, str]
"""A label and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPodSelector:
    """Resources and labels by which pods count."""

    resources: tuple[str, ...]
    """Names of GPU resources, and how such names begin."""
    plugins: tuple[Selector, ...]
    """A pod with any of these labels is a device plugin's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """A pod that is bound to a node."""

    namespace: str
    name: str
    uid: str
    node: str
    key: str
    """Key of the pod in an agent's request."""
    holds: bool
    """It asks for a GPU resource, and has not ended."""
    is_placed: bool = True
    """Its kubelet has taken it, so it has its devices; until then it may be given any."""
    is_plugin: bool = False
    paused_by: str = ""
    """Label of its node without which the GPU operator takes it away, if it keeps GPUs open."""
    is_ready: bool = False
    is_leaving: bool = False
    """It was deleted and has not gone yet; it holds what it holds until then."""
    started_at: float | None = None
    """When the first of its containers started that run now, seconds since 1970 by the node's
    clock; None while none runs, and for pods that are no device plugin's."""

    @property
    def counts(self) -> bool:
        """Whether it holds GPUs, or keeps them open."""
        return self.holds or self.is_plugin or bool(self.paused_by)

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def is_gpu_or_client_pod(seen: Object, terms: GpuPodSelector) -> bool:
    """Whether :func:`gpu_pod_of` is worth keeping, for watches of all pods. Raises BadInput."""
    pod = Pod.from_object(seen)
    is_client = bool(_pausing_label(pod)) or _is_plugin(pod, terms.plugins)
    return is_client or asks_gpus(pod.spec, terms.resources)


def gpu_pod_of(seen: Object, terms: GpuPodSelector) -> GpuPod:
    """The pod's values. Raises BadInput for what no API server sends."""
    pod = Pod.from_object(seen)
    meta = pod.metadata
    is_plugin = not pod.is_finished and _is_plugin(pod, terms.plugins)
    return GpuPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=pod.spec.node_name,
        key=pod_key(meta.namespace, meta.name),
        holds=not pod.is_finished and asks_gpus(pod.spec, terms.resources),
        is_placed=is_placed(pod),
        is_plugin=is_plugin,
        paused_by="" if pod.is_finished else _pausing_label(pod),
        is_ready=pod.is_ready,
        is_leaving=pod.is_deleted,
        started_at=_started_at(pod) if is_plugin else None,
    )


def is_placed(pod: Pod) -> bool:
    """Whether a kubelet has taken a pod that is bound to its node.

    It gives a pod its devices before it first writes the pod's status, and that has a start time.
    Source: Kubernetes, pkg/kubelet/kubelet.go, HandlePodAdditions; status/status_manager.go.
    """
    return pod.status.phase != "Pending" or bool(pod.status.start_time)


def _started_at(pod: Pod) -> float | None:
    starts = []
    for container in pod.status.container_statuses:
        if (running := container.state.running) is not None:
            with contextlib.suppress(ValueError):
                starts.append(datetime.fromisoformat(running.started_at).timestamp())
    return min(starts, default=None)


def _pausing_label(pod: Pod) -> str:
    """The first label of the GPU operator in its node selector, by which it can be paused.

    Source: NVIDIA/gpu-operator, assets/state-*/*_daemonset.yaml, nodeSelector.
    """
    return min(PAUSABLE.intersection(pod.spec.node_selector), default="")


def _is_plugin(pod: Pod, selectors: Iterable[Selector]) -> bool:
    return any(pod.metadata.labels.get(key) == value for key, value in selectors)
