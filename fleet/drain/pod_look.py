# SPDX-License-Identifier: Apache-2.0
"""Whether anybody holds what a node's change would take, by its agent and its pods. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from api.mig_request_annotation import MigRequestAnnotation
from fleet.gpu_pod import GpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLook:
    """All pods of a node that hold GPUs, read at one moment."""

    read_at: float
    """Seconds since 1970, before the read began."""
    held: frozenset[str]
    """Keys of the pods."""
    all_placed: bool = True
    """Whether each pod has been given its devices."""


def is_idle(
    request: MigRequestAnnotation, held: Collection[str], *, all_placed: bool = True
) -> bool:
    """Whether nobody holds what would change, by the kubelet and by the API server.

    ``held``: keys of pods on the node that ask for GPUs. One that the kubelet has given nothing yet
    may get a device that goes, so it is in the way; also where the agent's list has its name, from
    a pod before it (``all_placed`` False).
    """
    in_use = request.pods or request.programs or request.unlisted
    return not in_use and all_placed and set(held) <= set(request.others)


def is_idle_by(request: MigRequestAnnotation, pods: Collection[GpuPod]) -> bool:
    """Whether nobody holds what would change, by the node's pods as read at one moment."""
    return is_idle_at(request, look_of(pods, 0))


def is_idle_at(request: MigRequestAnnotation, look: PodLook) -> bool:
    """Whether nobody holds what would change, by GPU use that was read from the API."""
    return is_idle(request, look.held, all_placed=look.all_placed)


def look_of(pods: Collection[GpuPod], read_at: float) -> PodLook:
    """GPU use by a node's pods; ``read_at``: when the read of them began."""
    held = [pod for pod in pods if pod.holds]
    return PodLook(
        read_at=read_at,
        held=frozenset(pod.key for pod in held),
        all_placed=all(pod.is_placed for pod in held),
    )
