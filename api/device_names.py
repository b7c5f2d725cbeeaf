# SPDX-License-Identifier: Apache-2.0
"""Names that the kubelet knows a node's GPUs and MIG devices by, taken apart. Pure.

They are those of NVIDIA's and GKE's device plugins, and of NVIDIA's driver for dynamic resource
allocation (DRA). A name becomes a key, and a GPU has a key for each name that it may have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DRA_DRIVER: Final = "gpu.nvidia.com"

SHARE: Final = "::"
"""Separator before the number of a share, where a device plugin shares its devices.
Source: k8s-device-plugin 0.19.0, internal/rm/devices.go, AnnotatedID."""

_N = r"([0-9]{1,9})"

# Of device plugins. Source: dcgm-exporter's Kubernetes mapping.
_OLD_MIG = re.compile(rf"MIG-(GPU-[^/]+)/{_N}/{_N}")
"""UUID, GPU instance, compute instance; of drivers before 470."""
_GKE = re.compile(rf"nvidia{_N}(?:/gi{_N})?(?:/vgpu{_N})?")
"""Minor number, GPU instance, share."""
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""UUID of a GPU or a MIG device."""

# Of DRA. Source: NVIDIA's DRA driver, gpu-kubelet-plugin: deviceinfo.go, mig.go, cdi.go.
_CLAIMED_GPU = re.compile(rf"gpu-{_N}")
"""Minor number."""
_CLAIMED_MIG = re.compile(rf"gpu-{_N}-mig-(?=[0-9]+[cg])[a-z0-9-]+-[0-9]+-{_N}")
"""Minor number, profile, its number, start of the placement; from 25.12 on."""
_OLD_CLAIMED_MIG = re.compile(rf"gpu-{_N}-mig-[0-9]+-{_N}-[0-9]+")
"""Minor number, profile's number, start and size of the placement; up to 25.8."""
_CDI = re.compile(r"k8s\.gpu\.nvidia\.com/(?:device=|claim=[0-9a-f-]{36}-)(.+)")
"""The device's name; in a claim's own class behind the claim's UID."""


class NamedBy(StrEnum):
    """The kind of identifier that a name has for its device."""

    UUID = "uuid"
    """UUID of a GPU, with the id of the GPU instance if any; or UUID of a MIG device."""
    MINOR = "minor"
    """Number of the GPU's device file, with the id of the GPU instance if any."""
    START = "start"
    """Number of the GPU's device file, and the memory unit where the instance starts."""


@dataclass(frozen=True, slots=True)
class NameKey:
    """A name of a device, taken apart; names of one device in several forms give several keys."""

    named_by: NamedBy
    gpu: str | int
    """UUID or minor number."""
    instance: int | None = None
    """Id of the GPU instance, its first memory unit with ``NamedBy.START``; None: no instance."""

    @property
    def is_certain(self) -> bool:
        """The name has a known form, so a node without this key does not have the device."""
        return (
            not isinstance(self.gpu, str)
            or self.instance is not None
            or bool(_UUID.fullmatch(self.gpu))
        )


def plugin_key(device_id: str) -> tuple[NameKey, str | None]:
    """The key of a device plugin's id for a device, and the share of it; None: not shared."""
    plain, _, share = device_id.partition(SHARE)
    if old := _OLD_MIG.fullmatch(plain):
        return NameKey(NamedBy.UUID, old[1], int(old[2])), share or None
    if gke := _GKE.fullmatch(plain):
        minor, instance, gke_share = gke.groups()
        instance_id = None if instance is None else int(instance)
        return NameKey(NamedBy.MINOR, int(minor), instance_id), share or gke_share or None
    return NameKey(NamedBy.UUID, plain), share or None


def claimed_key(name: str) -> NameKey | None:
    """The key of a device's name by NVIDIA's DRA driver; None for a name of another form."""
    if gpu := _CLAIMED_GPU.fullmatch(name):
        return NameKey(NamedBy.MINOR, int(gpu[1]))
    if mig := _OLD_CLAIMED_MIG.fullmatch(name) or _CLAIMED_MIG.fullmatch(name):
        return NameKey(NamedBy.START, int(mig[1]), int(mig[2]))
    return None


def cdi_names(cdi: Iterable[str]) -> frozenset[str]:
    """The DRA driver's names for devices, from its names for the container runtime."""
    return frozenset(match[1] for name in cdi if (match := _CDI.fullmatch(name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedInstance:
    """What the names of a GPU instance and its MIG devices are made of."""

    id: int
    start: int | None
    """First memory unit; None where it is not known."""
    devices: Collection[str]
    """UUIDs of its MIG devices."""


def keys(
    uuid: str | None, minor: int | None, instances: Iterable[NamedInstance]
) -> Iterator[tuple[NameKey, int | None]]:
    """The keys of a GPU, each with None, and of its GPU instances, each with the instance's id.

    A key that needs an unknown UUID, minor number or start is left out.
    """
    instance_ids: list[int | None] = [None]
    for instance in instances:
        instance_ids.append(instance.id)
        for device in instance.devices:
            yield NameKey(NamedBy.UUID, device), instance.id
        if minor is not None and instance.start is not None:
            yield NameKey(NamedBy.START, minor, instance.start), instance.id
    for instance_id in instance_ids:
        if uuid is not None:
            yield NameKey(NamedBy.UUID, uuid, instance_id), instance_id
        if minor is not None:
            yield NameKey(NamedBy.MINOR, minor, instance_id), instance_id
