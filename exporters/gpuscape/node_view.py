# SPDX-License-Identifier: Apache-2.0
"""Facts of a node at one moment, arranged as our own families read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from discovery.model import GpuSnapshot, GpuState, MigDevice, NodeSnapshot, NvidiaFacts
from discovery.sample import GpuSample, MemoryUse
from discovery.unread import unread_sample
from exporters.gpu_holders import Entity, Holder, Holders
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Sxid
from exporters.gpuscape.waste import NOTHING_SEEN, Waste
from health.health_verdict import Health, HealthVerdict

_COMPUTE_SLICES = re.compile(r"^\d+c\.")
"""Prefix of a MIG device's profile, such as ``1c.``, where its GPU instance has more slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAllocation:
    """Number of devices of one resource: those that can be allocated, and those that are."""

    name: str
    """The resource's name in a pod's requests, such as ``nvidia.com/gpu``."""
    allocatable: int
    allocated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHoldings:
    """Holders of a node's GPUs, and the resources and GPUs that can be held."""

    holders: Holders = field(default_factory=dict)
    resources: tuple[ResourceAllocation, ...] = ()
    whole: frozenset[str] = frozenset()
    """Bus ids of the GPUs that are offered undivided and unshared, used or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """A GPU instance with its MIG devices and readings."""

    entity: Entity
    labels: tuple[str, ...]
    """Values of ``gpuscape_family.INSTANCE``."""
    profile: str
    """Profile of the GPU instance, such as ``3g.20gb``."""
    devices: tuple[MigDevice, ...]
    """MIG devices of the GPU instance, at least one."""
    memory: MemoryUse | None
    profiling: Mapping[int, float]
    """GPM metric id to value."""
    share: float | None
    """Share of the GPU's compute slices, 0 to 1; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """A GPU that answers, with its newest sample."""

    gpu: GpuSnapshot
    labels: tuple[str, ...]
    """Values of ``gpuscape_family.GPU``."""
    sample: GpuSample
    """The newest sample; one without readings where there is none."""
    sampled: bool
    profiling: Mapping[int, float]
    instances: tuple[InstanceView, ...]

    @property
    def entity(self) -> Entity:
        """Key of the whole GPU in mappings by entity."""
        return self.gpu.bus_id, None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """All facts of one node that gpuscape's own families are computed from."""

    snapshot: NodeSnapshot
    gpus: tuple[GpuView, ...]
    """GPUs that answer; of the others only the state and the health are shown."""
    holdings: GpuHoldings | None
    """Holders of the GPUs; None where no source reports them."""
    health: Mapping[str, HealthVerdict]
    """Bus id of a GPU to its verdict."""
    processes: tuple[ProcessUse, ...]
    sxids: tuple[Sxid, ...]
    waste: Waste

    @property
    def nvidia_gpus(self) -> Iterator[tuple[GpuView, NvidiaFacts]]:
        """The NVIDIA GPUs that answer, with the facts that only they have."""
        return ((view, view.gpu.nvidia) for view in self.gpus if view.gpu.nvidia is not None)

    @property
    def held(self) -> frozenset[str]:
        """Bus ids of the GPUs that somebody holds, wholly or in part."""
        holders = () if self.holdings is None else self.holdings.holders
        return frozenset(bus_id for bus_id, _ in holders)

    def is_unhealthy(self, bus_id: str) -> bool:
        """Whether the verdict on the GPU is that work on it fails, or will."""
        verdict = self.health.get(bus_id)
        return verdict is not None and verdict.health is Health.UNHEALTHY

    def holders(self, entity: Entity) -> tuple[Holder, ...]:
        """The containers that hold exactly this GPU or GPU instance."""
        return () if self.holdings is None else self.holdings.holders.get(entity, ())


def build_node_view(
    snapshot: NodeSnapshot,
    samples: Iterable[GpuSample],
    *,
    holdings: GpuHoldings | None = None,
    health: Mapping[str, HealthVerdict] | None = None,
    processes: Iterable[ProcessUse] = (),
    sxids: Iterable[Sxid] = (),
    waste: Waste = NOTHING_SEEN,
) -> NodeView:
    """The view of a node; ``health`` is by bus id, and may leave GPUs out."""
    by_bus = {sample.bus_id: sample for sample in samples}
    return NodeView(
        snapshot=snapshot,
        gpus=tuple(
            _gpu(gpu, by_bus.get(gpu.bus_id))
            for gpu in snapshot.gpus
            if gpu.state is GpuState.PRESENT
        ),
        holdings=holdings,
        health=health or {},
        processes=tuple(processes),
        sxids=tuple(sxids),
        waste=waste,
    )


def gpu_labels(gpu: GpuSnapshot) -> tuple[str, str]:
    """UUID and bus id; the UUID is empty where it is not known."""
    return gpu.uuid or "", gpu.bus_id


def _gpu(gpu: GpuSnapshot, sample: GpuSample | None) -> GpuView:
    read = sample or unread_sample(gpu.bus_id)
    return GpuView(
        gpu=gpu,
        labels=gpu_labels(gpu),
        sample=read,
        sampled=sample is not None,
        profiling=dict(read.profiling),
        instances=() if gpu.nvidia is None else _instances(gpu, gpu.nvidia, read),
    )


def _instances(
    gpu: GpuSnapshot, nvidia: NvidiaFacts, sample: GpuSample
) -> tuple[InstanceView, ...]:
    by_id: dict[int, list[MigDevice]] = {}
    for device in nvidia.mig_devices:
        by_id.setdefault(device.gpu_instance_id, []).append(device)
    memory, profiling = dict(sample.mig_memory), dict(sample.mig_profiling)
    return tuple(
        InstanceView(
            entity=(gpu.bus_id, instance),
            labels=(*gpu_labels(gpu), str(instance)),
            profile=_COMPUTE_SLICES.sub("", devices[0].profile),
            devices=tuple(devices),
            memory=memory.get(instance),
            profiling=dict(profiling.get(instance, ())),
            share=_share(devices[0], nvidia.max_mig_devices),
        )
        for instance, devices in by_id.items()
    )


def _share(device: MigDevice, slices: int | None) -> float | None:
    """A GPU has as many compute slices as it can have MIG devices: 7, or 4 on the A30."""
    if not slices or not 0 < device.gpu_instance_slices <= slices:
        return None
    return device.gpu_instance_slices / slices
