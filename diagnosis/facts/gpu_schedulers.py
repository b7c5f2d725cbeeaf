# SPDX-License-Identifier: Apache-2.0
"""Which schedulers have placed the GPU pods of some nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kube.amounts.gpu_amounts import gpu_amounts
from scheduler.filters.preemption import PlacedPod

GpuSchedulers = Mapping[str, tuple[str, ...]]
"""Name of a scheduler to the GPU pods that it has placed, as ``namespace/name``; both sorted."""


def gpu_schedulers(pods: Iterable[PlacedPod]) -> GpuSchedulers:
    """The schedulers of those of these pods that request GPUs."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if gpu_amounts(pod.requests):
            names[pod.scheduler].append(pod.name)
    return {scheduler: tuple(sorted(names[scheduler])) for scheduler in sorted(names)}
