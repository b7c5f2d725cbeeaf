# SPDX-License-Identifier: Apache-2.0
"""Pods as the coordinator sees them: those that ask for GPUs, and the device plugin's. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.state_annotation import pod_key
from kube.amounts.gpu_amounts import asks_gpus
from kube.api import Object

Selector = tuple[str, str]
"""A label and its value."""
_ENDED = ("Succeeded", "Failed")


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
    is_ready: bool = False
    is_leaving: bool = False
    """It was deleted and has not gone yet; it holds what it holds until then."""
    started_at: float | None = None
    """When the first of its containers started that run now, seconds since 1970 by the node's
    clock; None while none runs, and for pods that are no device plugin's."""


def is_gpu_or_plugin_pod(pod: Object, terms: GpuPodSelector) -> bool:
    """Whether :func:`pod_of` is worth keeping: a cheap check, for watches of all pods."""
    return asks_gpus(pod.get("spec") or {}, terms.resources) or _is_plugin(pod, terms.plugins)


def gpu_pod_of(seen: Object, terms: GpuPodSelector) -> GpuPod:
    """The pod's values. Never raises."""
    meta, spec, status = seen["metadata"], seen.get("spec") or {}, seen.get("status") or {}
    ended = status.get("phase") in _ENDED
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    is_plugin = not ended and _is_plugin(seen, terms.plugins)
    return GpuPod(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        node=spec.get("nodeName") or "",
        key=pod_key(meta["namespace"], meta["name"]),
        holds=not ended and asks_gpus(spec, terms.resources),
        is_placed=is_placed(seen),
        is_plugin=is_plugin,
        is_ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in conditions
        ),
        is_leaving=bool(meta.get("deletionTimestamp")),
        started_at=_started_at(status) if is_plugin else None,
    )


def is_placed(pod: Object) -> bool:
    """Whether a kubelet has taken a pod that is bound to its node.

    It gives a pod its devices before it first writes the pod's status, and that has a start time.
    Source: Kubernetes, pkg/kubelet/kubelet.go, HandlePodAdditions; status/status_manager.go.
    """
    status = pod.get("status") or {}
    return status.get("phase") != "Pending" or bool(status.get("startTime"))


def _started_at(status: Mapping[str, Any]) -> float | None:
    starts = []
    for container in status.get("containerStatuses") or ():
        running = (container.get("state") or {}).get("running") or {}
        with contextlib.suppress(ValueError):
            starts.append(datetime.fromisoformat(str(running.get("startedAt"))).timestamp())
    return min(starts, default=None)


def _is_plugin(pod: Object, selectors: Iterable[Selector]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return any(labels.get(key) == value for key, value in selectors)
