# SPDX-License-Identifier: Apache-2.0
"""Device users of GPUs, free GPUs and how well they are linked, and GPUs held without use. Pure.

These families are absent where no source reports device users. What can be held is a GPU without
GPU instances, or a GPU instance: families with an optional ``gpu_instance_id`` have one series for
each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from discovery.gpu_part import GpuPart
from discovery.sample import profiled_by
from exporters.gpuscape.fragmentation import Free, free
from exporters.gpuscape.gpuscape_family import GPU, INSTANCE, GpuscapeFamily, Series
from exporters.gpuscape.node_view import (
    GpuAllocation,
    GpuView,
    InstanceView,
    NodeView,
    gpu_labels,
)
from exporters.gpuscape.profiling_families import GRAPHICS, busy_ratio
from exporters.gpuscape.waste import IDLE_BELOW_RATIO, WINDOW_SECONDS, GpuUse, Held, Times

_KUBELET = "the kubelet's pod-resources socket"
_BUSY = "GPM's graphics activity, else utilisation"
_RULE = f"busy below {IDLE_BELOW_RATIO:.0%} in every sample of {WINDOW_SECONDS / 60:.0f} minutes"


def uses(node: NodeView) -> Iterator[GpuUse]:
    """Use of each GPU or GPU instance that can be held, from the newest samples."""
    for gpu in node.gpus:
        sampled_at = gpu.sample.at_seconds if gpu.sampled else None
        for part in gpu.instances or (gpu,):
            yield GpuUse(
                entity=part.entity,
                at_seconds=sampled_at,
                held_by=_held(node, part.entity),
                busy_ratio=_busy(part),
            )


def _busy(part: GpuView | InstanceView) -> float | None:
    return part.profiling.get(GRAPHICS) if isinstance(part, InstanceView) else busy_ratio(part)


def _held(node: NodeView, entity: GpuPart) -> Held | None:
    if node.allocation is None:
        return None
    return frozenset((user.namespace, user.pod, user.container) for user in node.users(entity))


def _gpus(node: NodeView) -> Series:
    """A series for each GPU, also for one that does not answer: the kubelet still lists it."""
    if node.allocation is not None:
        held = node.held
        for gpu in node.snapshot.gpus:
            yield gpu_labels(gpu), gpu.bus_id in held


def _instances(node: NodeView) -> Series:
    if node.allocation is not None:
        for gpu in node.gpus:
            for instance in gpu.instances:
                yield instance.labels, instance.entity in node.allocation.users


def _pods(node: NodeView) -> Series:
    if node.allocation is None:
        return
    names = {gpu.bus_id: gpu_labels(gpu) for gpu in node.snapshot.gpus}
    for (bus_id, instance), users in node.allocation.users.items():
        part = (*names.get(bus_id, ("", bus_id)), "" if instance is None else str(instance))
        for user in users:
            yield (*part, user.namespace, user.pod, user.container), 1


def _resources(read: Callable[[GpuAllocation], Mapping[str, int]]) -> Callable[[NodeView], Series]:
    def series(node: NodeView) -> Series:
        if (allocation := node.allocation) is not None:
            for resource in sorted({*allocation.allocatable, *allocation.allocated}):
                yield (resource,), read(allocation).get(resource, 0)

    return series


def _free(read: Callable[[Free], float | None]) -> Callable[[NodeView], Series]:
    def series(node: NodeView) -> Series:
        if node.allocation is not None:
            yield (), read(free(node.snapshot.topology, _free_gpus(node, node.allocation.whole)))

    return series


def _free_gpus(node: NodeView, whole: frozenset[str]) -> set[str]:
    """GPUs that could be allocated to a pod whole now."""
    return {
        gpu.gpu.bus_id
        for gpu in node.gpus
        if gpu.gpu.bus_id in whole - node.held
        and not gpu.gpu.mig_enabled
        and not node.is_unhealthy(gpu.gpu.bus_id)
    }


def _times(read: Callable[[Times], float | None]) -> Callable[[NodeView], Series]:
    def series(node: NodeView) -> Series:
        if node.allocation is not None:
            for labels, times, _ in _parts(node):
                yield labels, read(times)

    return series


def _parts(node: NodeView) -> Iterator[tuple[tuple[str, ...], Times, float | None]]:
    """Labels, times and share of the GPU, for each GPU or GPU instance that can be held."""
    for gpu in node.gpus:
        if gpu.entity in node.waste:
            yield (*gpu.labels, ""), node.waste[gpu.entity], 1.0
        for instance in gpu.instances:
            if instance.entity in node.waste:
                yield instance.labels, node.waste[instance.entity], instance.share


def _idle_share(node: NodeView) -> Series:
    measured = [(times.idle, share) for _, times, share in _parts(node) if times.idle is not None]
    shares = [share for _, share in measured if share is not None]
    if node.allocation is not None and measured and len(shares) == len(measured):
        yield (), sum(share for idle, share in measured if idle and share) / sum(shares)


def _unmeasured(node: NodeView) -> Series:
    if node.allocation is not None:
        yield (), sum(times.unmeasured for _, times, _ in _parts(node))


FAMILIES: tuple[GpuscapeFamily, ...] = (
    GpuscapeFamily(
        name="gpuscape_gpu_allocated",
        help="1 if a pod holds the GPU, a share of it or one of its GPU instances, else 0.",
        labels=GPU,
        series=_gpus,
        source=_KUBELET,
    ),
    GpuscapeFamily(
        name="gpuscape_mig_instance_allocated",
        help="1 if a pod holds the GPU instance or a part of it, else 0.",
        labels=INSTANCE,
        series=_instances,
        source=_KUBELET,
    ),
    GpuscapeFamily(
        name="gpuscape_pod_gpu_info",
        help="A container that holds the GPU or GPU instance; always 1, for joins with others.",
        labels=(*INSTANCE, "namespace", "pod", "container"),
        series=_pods,
        source=_KUBELET,
    ),
    GpuscapeFamily(
        name="gpuscape_resource_allocatable",
        help="Devices of the resource that can be allocated to pods.",
        labels=("resource",),
        series=_resources(lambda allocation: allocation.allocatable),
        source=f"{_KUBELET}, GetAllocatableResources",
    ),
    GpuscapeFamily(
        name="gpuscape_resource_allocated",
        help="Devices of the resource that are allocated to pods.",
        labels=("resource",),
        series=_resources(lambda allocation: allocation.allocated),
        source=f"{_KUBELET}, List",
    ),
    GpuscapeFamily(
        name="gpuscape_free_gpus",
        help="GPUs that can be allocated whole to a pod now.",
        labels=(),
        series=_free(lambda free_set: free_set.gpus),
        source="GPUs that answer, are not unhealthy, are offered whole, have MIG off, and that"
        " nobody holds",
    ),
    GpuscapeFamily(
        name="gpuscape_free_gpus_largest_island",
        help="Free GPUs in the largest set in which every pair has NVLinks; 1 if none is linked.",
        labels=(),
        series=_free(lambda free_set: free_set.island),
        source="gpuscape_free_gpus and gpuscape_topology_nvlinks",
    ),
    GpuscapeFamily(
        name="gpuscape_free_gpus_fragmentation_ratio",
        help="How much smaller the largest linked set of free GPUs is than it could be: 0 is best;"
        " absent without free GPUs.",
        labels=(),
        series=_free(lambda free_set: free_set.fragmentation),
        source="1 - gpuscape_free_gpus_largest_island / min(gpuscape_free_gpus, the node's largest"
        " island)",
    ),
    GpuscapeFamily(
        name="gpuscape_allocated_seconds_total",
        help="Time for which pods held the GPU or GPU instance, since this agent first saw it.",
        labels=INSTANCE,
        series=_times(lambda times: times.allocated_seconds),
        source="time between two samples, where somebody held it at both",
    ),
    GpuscapeFamily(
        name="gpuscape_allocated_idle_seconds_total",
        help="Time for which pods held it and it was idle; absent if its use is not measured.",
        labels=INSTANCE,
        series=_times(lambda times: times.idle_seconds),
        groups=profiled_by(GRAPHICS),
        source=f"{_RULE}, with nobody new among its device users: from the end of that window on;"
        f" busy is {_BUSY}",
    ),
    GpuscapeFamily(
        name="gpuscape_allocated_idle",
        help="1 if pods hold it and it is idle, 0 if they hold it and use it; else absent.",
        labels=INSTANCE,
        series=_times(lambda times: times.idle),
        groups=profiled_by(GRAPHICS),
        source=f"{_RULE}, with nobody new among its device users; busy is {_BUSY}",
    ),
    GpuscapeFamily(
        name="gpuscape_allocated_idle_ratio",
        help="Share of the node's held GPUs that is idle; absent where none is held and measured.",
        labels=(),
        series=_idle_share,
        groups=profiled_by(GRAPHICS),
        source="gpuscape_allocated_idle, a GPU instance counted as its share of the GPU",
    ),
    GpuscapeFamily(
        name="gpuscape_allocated_unmeasured",
        help="GPUs and GPU instances that pods hold, but whose use is not measured.",
        labels=(),
        series=_unmeasured,
        groups=profiled_by(GRAPHICS),
        source="those held without a busy ratio in the newest sample, such as all under MIG before"
        " Hopper",
    ),
)
