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
"""Before the number of a share, where a device plugin shares its devices out.
Source: k8s-device-plugin 0.19.0, internal/rm/devices.go, AnnotatedID."""

_N = r"([0-9]{1,9})"

# Of device plugins. Source: dcgm-exporter's Kubernetes mapping.
_OLD_MIG = re.compile(rf"MIG-(GPU-[^/]+)/{_N}/{_N}")
"""UUID, GPU instance, compute instance; of drivers before 470."""
_GKE = re.compile(rf"nvidia{_N}(?:/gi{_N})?(?:/vgpu{_N})?")
"""Minor number, GPU instance, share."""
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Of a GPU or a MIG device."""

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
    """What a name goes by."""

    UUID = "uuid"
    """Of a GPU with the GPU instance, if any; or of a MIG device."""
    MINOR = "minor"
    """Number of the GPU's device file, with the GPU instance, if any."""
    START = "start"
    """Number of the GPU's device file, and where the instance starts, which no two share."""


@dataclass(frozen=True, slots=True)
class NameKey:
    """What a name says of its device."""

    by: NamedBy
    gpu: str | int
    """UUID or minor number."""
    at: int | None = None
    """Id of the GPU instance, or its first memory unit."""

    @property
    def is_certain(self) -> bool:
        """It has a known form, so that a node which has no such key has no such device."""
        return (
            not isinstance(self.gpu, str) or self.at is not None or bool(_UUID.fullmatch(self.gpu))
        )


def plugin_key(device_id: str) -> tuple[NameKey, str | None]:
    """A device plugin's id for a device, and which share of it that is."""
    plain, _, share = device_id.partition(SHARE)
    if old := _OLD_MIG.fullmatch(plain):
        return NameKey(NamedBy.UUID, old[1], int(old[2])), share or None
    if gke := _GKE.fullmatch(plain):
        minor, instance, gke_share = gke.groups()
        at = None if instance is None else int(instance)
        return NameKey(NamedBy.MINOR, int(minor), at), share or gke_share or None
    return NameKey(NamedBy.UUID, plain), share or None


def claimed_key(name: str) -> NameKey | None:
    """The name that NVIDIA's DRA driver has for a device; None where it has another form."""
    if gpu := _CLAIMED_GPU.fullmatch(name):
        return NameKey(NamedBy.MINOR, int(gpu[1]))
    if mig := _OLD_CLAIMED_MIG.fullmatch(name) or _CLAIMED_MIG.fullmatch(name):
        return NameKey(NamedBy.START, int(mig[1]), int(mig[2]))
    return None


def cdi_names(cdi: Iterable[str]) -> frozenset[str]:
    """The DRA driver's names for devices, from its names for the container runtime."""
    return frozenset(found[1] for name in cdi if (found := _CDI.fullmatch(name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedInstance:
    """A GPU instance as far as names go."""

    id: int
    start: int | None
    """First memory unit; None where it is not known."""
    devices: Collection[str]
    """UUIDs of its MIG devices."""


def keys(
    uuid: str | None, minor: int | None, instances: Iterable[NamedInstance]
) -> Iterator[tuple[NameKey, int | None]]:
    """Every name of a GPU, with None, and of its GPU instances, with their ids.

    Names by what is not known are left out.
    """
    there: list[int | None] = [None]
    for one in instances:
        there.append(one.id)
        for device in one.devices:
            yield NameKey(NamedBy.UUID, device), one.id
        if minor is not None and one.start is not None:
            yield NameKey(NamedBy.START, minor, one.start), one.id
    for at in there:
        if uuid is not None:
            yield NameKey(NamedBy.UUID, uuid, at), at
        if minor is not None:
            yield NameKey(NamedBy.MINOR, minor, at), at
