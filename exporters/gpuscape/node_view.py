# SPDX-License-Identifier: Apache-2.0
"""Facts of a node at one moment, arranged as our own families read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot, GpuState, MigDevice, NodeSnapshot, NvidiaFacts
from discovery.sample import GpuSample, MemoryUse
from discovery.unread import unread_sample
from exporters.device_user_names import ContainerUser, ContainerUsers
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Sxid
from exporters.gpuscape.waste import NOTHING_SEEN, Waste
from health.health_verdict import Health, HealthVerdict

_COMPUTE_SLICES = re.compile(r"^\d+c\.")
"""Prefix of a MIG device's profile, such as ``1c.``, where its GPU instance has more slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAllocation:
    """Device users of a node's GPUs, and the resources and GPUs that can be allocated."""

    users: ContainerUsers = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """A resource's name in pods' requests, such as ``nvidia.com/gpu``, to its devices."""
    allocated: Mapping[str, int] = field(default_factory=dict)
    """Resource to how many of its devices containers have."""
    whole: frozenset[str] = frozenset()
    """Bus ids of the GPUs that are offered undivided and unshared, used or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """A GPU instance with its MIG devices and readings."""

    entity: GpuPart
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
    def entity(self) -> GpuPart:
        """Key of the whole GPU in mappings by entity."""
        return GpuPart(self.gpu.bus_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """All facts of one node that gpuscape's own families are computed from."""

    snapshot: NodeSnapshot
    gpus: tuple[GpuView, ...]
    """GPUs that answer; of the others only the state and the health are shown."""
    allocation: GpuAllocation | None
    """Device users of the GPUs; None where no source reports them."""
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
        users = () if self.allocation is None else self.allocation.users
        return frozenset(bus_id for bus_id, _ in users)

    def is_unhealthy(self, bus_id: str) -> bool:
        """Whether the verdict on the GPU is that work on it fails, or will."""
        verdict = self.health.get(bus_id)
        return verdict is not None and verdict.health is Health.UNHEALTHY

    def users(self, entity: GpuPart) -> tuple[ContainerUser, ...]:
        """The containers that hold exactly this GPU or GPU instance."""
        return () if self.allocation is None else self.allocation.users.get(entity, ())


def build_node_view(
    snapshot: NodeSnapshot,
    samples: Iterable[GpuSample],
    *,
    allocation: GpuAllocation | None = None,
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
        allocation=allocation,
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
            entity=GpuPart(gpu.bus_id, instance),
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
