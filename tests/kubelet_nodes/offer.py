# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's device plugin registers with the kubelet: devices of a node, by resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from api.mig_resources import MigStrategy
from discovery.model import GpuSnapshot, GpuState, MigDevice, NodeSnapshot
from labelers.groups.mig_labels import profile_suffix, single_fault
from labelers.groups.sharing import NOTHING_SHARED, Sharing

GPU: Final = "nvidia.com/gpu"
MIG: Final = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device, or share of one, as the plugin registered it."""

    id: str
    bus_id: str
    healthy: bool = True
    numa_node: int | None = None

    @property
    def hardware(self) -> str:
        """The id without the share's number."""
        return self.id.partition("::")[0]

    @property
    def is_whole_gpu(self) -> bool:
        """Neither a MIG device nor a share."""
        return not self.id.startswith("MIG-") and "::" not in self.id


Offer = Mapping[str, tuple[Device, ...]]
"""Resource, as pods request it, to its devices in bus order."""


def offer(
    snapshot: NodeSnapshot,
    *,
    strategy: MigStrategy = MigStrategy.NONE,
    sharing: Sharing = NOTHING_SHARED,
    before: Offer | None = None,
) -> Offer:
    """What there is now, after what was registered ``before``.

    Devices of a GPU that does not answer any more stay, unhealthy, until it does. A
    resource that has no devices left stays too, with none: the kubelet never forgets one.
    """
    gpus = [gpu for gpu in snapshot.gpus if gpu.state is GpuState.PRESENT and gpu.uuid]
    answering = {gpu.bus_id for gpu in gpus}
    found: dict[str, list[Device]] = {name: [] for name in before or {}}
    for resource, devices in (before or {}).items():
        silent = (device for device in devices if device.bus_id not in answering)
        found[resource] += (replace(device, healthy=False) for device in silent)
    if not _fails_to_start(gpus, strategy):
        for resource, device in _devices(gpus, strategy):
            name, shares = _shared(resource, device, sharing)
            found.setdefault(name, []).extend(shares)
    return {name: _in_bus_order(devices, snapshot) for name, devices in found.items()}


def _fails_to_start(gpus: Sequence[GpuSnapshot], strategy: MigStrategy) -> bool:
    """A layout that the plugin does not start with.

    Source: NVIDIA/k8s-device-plugin v0.20.0, internal/rm.
    """
    if strategy is MigStrategy.SINGLE and any(gpu.mig_enabled for gpu in gpus):
        return single_fault(gpus) is not None
    parts = [device for gpu in gpus if gpu.mig_enabled for device in gpu.mig_devices]
    return strategy is MigStrategy.MIXED and any(map(_is_part_of_an_instance, parts))


def _is_part_of_an_instance(device: MigDevice) -> bool:
    return device.compute_instance_slices != device.gpu_instance_slices


def _devices(gpus: Sequence[GpuSnapshot], strategy: MigStrategy) -> Iterator[tuple[str, Device]]:
    for gpu in gpus:
        whole = Device(id=gpu.uuid or "", bus_id=gpu.bus_id, numa_node=gpu.numa_node)
        if strategy is MigStrategy.NONE or not gpu.mig_enabled:
            yield GPU, whole
            continue
        for part in gpu.mig_devices:
            single = strategy is MigStrategy.SINGLE
            yield GPU if single else MIG + profile_suffix(part), replace(whole, id=part.uuid)


def _shared(resource: str, device: Device, sharing: Sharing) -> tuple[str, list[Device]]:
    """The resource's name and the device's shares, itself where it is not shared."""
    how = sharing.resource(resource)
    if not how.is_shared:
        return resource, [device]
    name = f"{resource}.shared" if how.renamed else resource
    return name, [replace(device, id=f"{device.id}::{n}") for n in range(how.replicas)]


def _in_bus_order(devices: Sequence[Device], snapshot: NodeSnapshot) -> tuple[Device, ...]:
    places = {gpu.bus_id: place for place, gpu in enumerate(snapshot.gpus)}
    return tuple(sorted(devices, key=lambda device: places.get(device.bus_id, len(places))))
