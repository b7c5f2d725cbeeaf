# SPDX-License-Identifier: Apache-2.0
"""GPU use of a node by its pods, and whether it leaves a change's GPUs idle. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from api.mig_request_annotation import MigRequestAnnotation
from fleet.gpu_pod import GpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """GPU use of a node: all pods that hold GPUs, read at one moment."""

    read_at: float
    """Seconds since 1970, before the read began."""
    held: frozenset[str]
    """Keys of the pods."""
    all_placed: bool = True
    """Whether each pod has been given its devices."""


def is_idle(request: MigRequestAnnotation, usage: GpuUsage) -> bool:
    """Whether nobody holds what would change, by the kubelet and by the API server.

    A pod that asks for GPUs and has no device yet may get one that goes, so it is in the way; also
    where the agent's list has its name, from a pod before it (``all_placed`` False).
    """
    in_use = request.pods or request.programs or request.unlisted
    return not in_use and usage.all_placed and usage.held <= set(request.other_pods)


def usage_of(pods: Collection[GpuPod], read_at: float = 0.0) -> GpuUsage:
    """GPU use by a node's pods; ``read_at``: when the read of them began."""
    held = [pod for pod in pods if pod.holds]
    keys, all_placed = frozenset(pod.key for pod in held), all(pod.is_placed for pod in held)
    return GpuUsage(read_at=read_at, held=keys, all_placed=all_placed)
