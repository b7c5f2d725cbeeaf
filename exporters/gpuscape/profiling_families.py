# SPDX-License-Identifier: Apache-2.0
"""Use of the parts of a GPU since the previous sample, on Hopper and later. Pure.

Each family comes twice: for each GPU, and for each GPU instance. Numbers are NVML's metric ids.
Source: nvmlGpmMetricId_t, nvml.h. GPM has no counter of bytes, so these are rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from discovery.sample import profiled_by
from exporters.gpuscape.gpuscape_family import GPU, INSTANCE, GpuscapeFamily, Series, of_gpus
from exporters.gpuscape.node_view import GpuView, NodeView

GRAPHICS = 1
"""Share of the time for which anything ran."""

_ENGINES = {f"nvdec{index}": 30 + index for index in range(8)}
_ENGINES |= {f"nvjpg{index}": 40 + index for index in range(8)}
_ENGINES |= {f"nvofa{index}": 50 + index for index in range(2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profiling metric, served as a family for GPUs and another for GPU instances."""

    name: str
    """End of the families' names, after ``gpuscape_gpu_`` and ``gpuscape_mig_instance_``."""
    help: str
    metrics: Mapping[str, int]
    """Value of the further label to NVML's metric id; the empty one where there is no label."""
    label: str | None = None
    on_instances: bool = True


def _rate(name: str, words: str, metric: int) -> Profile:
    """Bytes each second over a link of the GPU, which its instances share."""
    return Profile(
        name=f"{name}_bytes_per_second",
        help=f"Bytes that {words} each second.",
        metrics={"": metric},
        on_instances=False,
    )


PROFILES: tuple[Profile, ...] = (
    Profile(
        name="graphics_active_ratio",
        help="Share of the time for which any work ran.",
        metrics={"": GRAPHICS},
    ),
    Profile(
        name="sm_active_ratio",
        help="Share of the time for which a streaming multiprocessor had work, over all of them.",
        metrics={"": 2},
    ),
    Profile(
        name="sm_occupancy_ratio",
        help="Resident warps as a share of the maximum.",
        metrics={"": 3},
    ),
    Profile(
        name="pipe_active_ratio",
        help="Share of the time for which a pipe of the multiprocessors worked; tensor is all"
        " tensor pipes together.",
        label="pipe",
        metrics={
            "int": 4,
            "tensor": 5,
            "tensor_dfma": 6,
            "tensor_hmma": 7,
            "tensor_dmma": 8,
            "tensor_imma": 9,
            "fp64": 11,
            "fp32": 12,
            "fp16": 13,
        },
    ),
    Profile(
        name="memory_bandwidth_ratio",
        help="Memory bandwidth in use as a share of the maximum.",
        metrics={"": 10},
    ),
    Profile(
        name="engine_active_ratio",
        help="Use of a video, JPEG or optical-flow engine.",
        label="engine",
        metrics=_ENGINES,
    ),
    _rate("pcie_received", "came over PCIe", 21),
    _rate("pcie_sent", "went over PCIe", 20),
    _rate("nvlink_received", "came over all NVLinks", 60),
    _rate("nvlink_sent", "went over all NVLinks", 61),
    _rate("c2c_received", "came over the link between chips", 101),
    _rate("c2c_sent", "went over the link between chips", 100),
)


def _of_gpus(profile: Profile) -> GpuscapeFamily:
    def series(node: NodeView) -> Series:
        for gpu in node.gpus:
            yield from _numbers(profile, gpu.labels, gpu.profiling)

    return _family(profile, f"gpuscape_gpu_{profile.name}", GPU, series)


def _of_instances(profile: Profile) -> GpuscapeFamily:
    def series(node: NodeView) -> Series:
        for gpu in node.gpus:
            for instance in gpu.instances:
                yield from _numbers(profile, instance.labels, instance.profiling)

    return _family(profile, f"gpuscape_mig_instance_{profile.name}", INSTANCE, series)


def _numbers(profile: Profile, labels: tuple[str, ...], readings: Mapping[int, float]) -> Series:
    if readings:
        for word, metric in profile.metrics.items():
            yield (*labels, word) if profile.label else labels, readings.get(metric)


def _family(
    profile: Profile,
    name: str,
    labels: tuple[str, ...],
    series: Callable[[NodeView], Series],
) -> GpuscapeFamily:
    metrics = profile.metrics.values()
    return GpuscapeFamily(
        name=name,
        help=f"{profile.help} Hopper and later.",
        labels=(*labels, profile.label) if profile.label else labels,
        series=series,
        source=f"GPM metric {', '.join(map(str, metrics))}, since the sample before",
        groups=profiled_by(*metrics),
    )


def busy_ratio(gpu: GpuView) -> float | None:
    """Busy ratio by GPM, which covers all the time since the sample before, else by utilisation."""
    return gpu.profiling.get(GRAPHICS, gpu.sample.gpu_busy_ratio)


FAMILIES: tuple[GpuscapeFamily, ...] = (
    of_gpus(
        "gpuscape_gpu_active_ratio",
        "Share of the time for which any work ran: by GPM on Hopper and later, else utilisation.",
        busy_ratio,
        groups=profiled_by(GRAPHICS),
        source="GPM metric 1, else nvmlDeviceGetUtilizationRates, not available while MIG is on",
    ),
    *(_of_gpus(profile) for profile in PROFILES),
    *(_of_instances(profile) for profile in PROFILES if profile.on_instances),
)
