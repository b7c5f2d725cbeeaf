# SPDX-License-Identifier: Apache-2.0
"""GPUs and MIG devices of each container of the node.

From the kubelet's answers and a snapshot of the node. State annotation and per-pod
metrics rest on it. Names that stand for no device of this node are kept apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from api.device_names import DRA_DRIVER
from api.mig_resources import GPU_RESOURCES, SHARED_SUFFIX, is_gpu_resource
from discovery.gpu_part import GpuPart
from kubelet.device_resolution import DeviceNames
from kubelet.podresources.allocation_model import (
    ClaimedDevice,
    ContainerDevices,
    PodDevices,
    ResourceDevices,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device, or a share of one, as it was allocated to a container."""

    part: GpuPart
    resource: str
    """Name in pods' requests: ``nvidia.com/gpu``; of a ResourceClaim its driver's name."""
    id: str
    """Device id that the kubelet reports; of a ResourceClaim ``pool/device``."""
    share: str | None = None
    """Name of the share, where the device is shared out."""
    claim: ClaimedDevice | None = None
    """The ResourceClaim's entry, where the device was allocated by a claim."""

    @property
    def is_whole_gpu(self) -> bool:
        """Whether this is neither a MIG device nor a share."""
        shared = self.share is not None or self.resource.endswith(SHARED_SUFFIX)
        return self.part.gpu_instance_id is None and not shared


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownDevice:
    """A name that stands for no device of this node."""

    resource: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuContainer:
    """A container that has GPUs."""

    namespace: str
    pod: str
    container: str
    devices: tuple[AllocatedDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAllocation:
    """A node's GPUs, as device plugins offer them and as containers have them."""

    pods: frozenset[str] = frozenset()
    """``namespace/name`` of all that the kubelet lists, with or without GPUs."""
    containers: tuple[GpuContainer, ...] = ()
    """Containers that have GPUs, in the kubelet's order."""
    whole: frozenset[str] = frozenset()
    """Bus ids of the GPUs that device plugins offer undivided and unshared, used or not."""
    unknown: frozenset[UnknownDevice] = frozenset()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """Resource of a device plugin to how many devices of it are offered, used or not."""
    allocated: Mapping[str, int] = field(default_factory=dict)
    """Resource to how many devices of it containers have. Both mappings count unknown devices."""

    @property
    def by_pod(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """(namespace, pod) to the bus ids of the GPUs that it has all or part of."""
        pods: dict[tuple[str, str], frozenset[str]] = {}
        for container in self.containers:
            pod = container.namespace, container.pod
            pods[pod] = pods.get(pod, frozenset()) | {
                device.part.bus_id for device in container.devices
            }
        return pods


def allocation(
    pods: Iterable[PodDevices],
    allocatable: Iterable[ResourceDevices],
    names: DeviceNames,
    *,
    resources: Collection[str] = (),
) -> NodeAllocation:
    """Read the kubelet's two answers; ``resources`` count as GPUs like NVIDIA's own names."""
    counted = _Counted(names, frozenset({*GPU_RESOURCES, *resources}))
    pods = tuple(pods)
    held = [
        (pod, container, tuple(counted.devices_of(container)))
        for pod in pods
        for container in pod.containers
    ]
    offered = tuple(counted.of_plugins(allocatable))
    taken = tuple(device for _, _, devices in held for device in devices)
    return NodeAllocation(
        pods=frozenset(f"{pod.namespace}/{pod.name}" for pod in pods),
        containers=tuple(
            GpuContainer(
                namespace=pod.namespace,
                pod=pod.name,
                container=container.name,
                devices=known_devices,
            )
            for pod, container, devices in held
            if (
                known_devices := tuple(
                    device for device in devices if isinstance(device, AllocatedDevice)
                )
            )
        ),
        whole=frozenset(
            device.part.bus_id
            for device in offered
            if isinstance(device, AllocatedDevice) and device.is_whole_gpu
        ),
        unknown=frozenset(
            device for device in (*offered, *taken) if isinstance(device, UnknownDevice)
        ),
        allocatable=counted.by_resource(offered),
        allocated=counted.by_resource(taken),
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """Finds the devices that count as GPUs on one node."""

    names: DeviceNames
    resources: frozenset[str]

    def devices_of(self, container: ContainerDevices) -> Iterator[AllocatedDevice | UnknownDevice]:
        """All GPUs of a container."""
        yield from self.of_plugins(container.resources)
        for claimed in container.claims:
            yield from self._of_claim(claimed)

    def of_plugins(
        self, parts: Iterable[ResourceDevices]
    ) -> Iterator[AllocatedDevice | UnknownDevice]:
        """GPUs among the devices of device plugins."""
        for part in parts:
            if self._counts(part.resource):
                for device_id in part.ids:
                    yield self._of_plugin(part.resource, device_id)

    def by_resource(self, devices: Iterable[AllocatedDevice | UnknownDevice]) -> Mapping[str, int]:
        """Resource to its number of devices; one that two containers have counts once."""
        ids = {(device.resource, device.id) for device in devices if self._counts(device.resource)}
        return Counter(resource for resource, _ in ids)

    def _counts(self, resource: str) -> bool:
        return is_gpu_resource(resource, self.resources)

    def _of_plugin(self, resource: str, device_id: str) -> AllocatedDevice | UnknownDevice:
        part, share = self.names.of_plugin(device_id)
        if part is None:
            return UnknownDevice(resource=resource, id=device_id)
        return AllocatedDevice(part=part, resource=resource, id=device_id, share=share)

    def _of_claim(self, claimed: ClaimedDevice) -> Iterator[AllocatedDevice | UnknownDevice]:
        resource = claimed.driver or DRA_DRIVER
        name = f"{claimed.pool}/{claimed.device}" if claimed.device else ",".join(claimed.cdi)
        for part in self.names.of_claim(claimed):
            if part is None:
                yield UnknownDevice(resource=resource, id=name)
            else:
                yield AllocatedDevice(
                    part=part,
                    resource=resource,
                    id=name,
                    share=claimed.share or None,
                    claim=claimed,
                )
