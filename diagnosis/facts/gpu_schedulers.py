# SPDX-License-Identifier: Apache-2.0
"""Which schedulers have placed the GPU pods of some nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kube.amounts.gpu_amounts import gpu_amounts
from kube.api import Object
from kube.objects.pod import Pod
from scheduler.filters.preemption import PlacedPod, placed_pod

GpuSchedulers = Mapping[str, tuple[str, ...]]
"""Name of a scheduler to the GPU pods that it has placed, as ``namespace/name``; both sorted."""


def schedulers_of_objects(pods: Iterable[Object]) -> GpuSchedulers:
    """The schedulers of those of these pods that have room on a node and request GPUs."""
    placed = (placed_pod(Pod.from_object(pod)) for pod in pods)
    return gpu_schedulers(pod for pod in placed if pod is not None)


def gpu_schedulers(pods: Iterable[PlacedPod]) -> GpuSchedulers:
    """The schedulers of those of these pods that request GPUs."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if gpu_amounts(pod.requests):
            names[pod.scheduler].append(pod.name)
    return {scheduler: tuple(sorted(names[scheduler])) for scheduler in sorted(names)}
