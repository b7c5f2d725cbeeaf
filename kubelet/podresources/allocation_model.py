# SPDX-License-Identifier: Apache-2.0
"""The kubelet's answers about devices, free of gRPC: names and ids as the kubelet has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDevices:
    """Devices of one resource, or a part of them: the kubelet lists them by NUMA node."""

    resource: str
    """Name of the resource in pods' requests: ``nvidia.com/gpu``."""
    ids: tuple[str, ...]
    """Device ids that the device plugin registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevice:
    """A device of a ResourceClaim; text is empty where the kubelet is too old to report it."""

    claim: str
    """Name of the ResourceClaim, in the pod's namespace."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str = ""
    """Not empty where several claims share the device."""
    cdi: tuple[str, ...] = ()
    """The device's names in the Container Device Interface: ``vendor/class=name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """All devices that one container has."""

    name: str
    resources: tuple[ResourceDevices, ...] = ()
    claims: tuple[ClaimedDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """A pod of this node, with or without devices. The kubelet reports no UID."""

    namespace: str
    name: str
    containers: tuple[ContainerDevices, ...] = ()
