# SPDX-License-Identifier: Apache-2.0
"""GPU instances, each once: what they are and what memory they use. Pure.

Sums over them are right, and so are those over GPUs: no number of a GPU is repeated on its
instances. Power, clocks and temperature are the GPU's, and nobody measures the part of an instance.
"""

from __future__ import annotations

from collections.abc import Callable

from discovery.sample import MemoryUse
from exporters.gpuscape.gpuscape_family import INSTANCE, GpuscapeFamily, Series, of_instances
from exporters.gpuscape.node_view import InstanceView, NodeView

_USE = "nvmlDeviceGetMemoryInfo of the first compute instance"


def _infos(node: NodeView) -> Series:
    for gpu in node.gpus:
        for instance in gpu.instances:
            first = instance.devices[0]
            start, size = ("", "") if first.placement is None else map(str, first.placement)
            yield (*instance.labels, instance.profile, start, size), 1


def _memory(read: Callable[[MemoryUse], int | None]) -> Callable[[InstanceView], int | None]:
    return lambda instance: None if instance.memory is None else read(instance.memory)


_NUMBERS: tuple[tuple[str, str, Callable[[InstanceView], float | None], str], ...] = (
    ("gpuscape_mig_instance_slices", "Compute slices of the GPU instance.",
     lambda instance: instance.devices[0].gpu_instance_slices,
     "nvmlDeviceGetAttributes_v2, gpuInstanceSliceCount"),
    ("gpuscape_mig_instance_share_ratio",
     "Share of its GPU's compute slices that the GPU instance has.",
     lambda instance: instance.share,
     "its slices by the most MIG devices that the GPU can have, 7, or 4 on the A30"),
    ("gpuscape_mig_instance_compute_instances", "Compute instances in the GPU instance.",
     lambda instance: len(instance.devices), "nvmlDeviceGetComputeInstanceId of each MIG device"),
    ("gpuscape_mig_instance_memory_bytes", "Frame buffer of the GPU instance.",
     lambda instance: instance.devices[0].memory_bytes, "nvmlDeviceGetAttributes_v2, memorySizeMB"),
    ("gpuscape_mig_instance_memory_used_bytes", "Frame buffer in use by the GPU instance.",
     _memory(lambda use: use.used_bytes), _USE),
    ("gpuscape_mig_instance_memory_free_bytes", "Frame buffer of the GPU instance that is free.",
     _memory(lambda use: use.free_bytes), _USE),
    ("gpuscape_mig_instance_memory_reserved_bytes",
     "Frame buffer of the GPU instance that the driver keeps for itself.",
     _memory(lambda use: use.reserved_bytes), f"{_USE}; driver 510 and later"),
)  # fmt: skip
"""Name, in words, where it is read, the source for the docs."""

FAMILIES: tuple[GpuscapeFamily, ...] = (
    GpuscapeFamily(
        name="gpuscape_mig_instance_info",
        help="Profile of a GPU instance, and where in its GPU it is; always 1.",
        labels=(*INSTANCE, "profile", "placement_start", "placement_size"),
        series=_infos,
        source="nvmlDeviceGetGpuInstanceId and attributes of each MIG device",
    ),
    *(of_instances(name, text, read, source=source) for name, text, read, source in _NUMBERS),
)
