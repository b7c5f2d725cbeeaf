# SPDX-License-Identifier: Apache-2.0
"""What the names that the kubelet knows a node's devices by stand for.

Names are those of NVIDIA's and GKE's device plugins and of NVIDIA's driver for dynamic
resource allocation (DRA). One that leads to no device of this node for certain stands
for nothing: it is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from agent.podresources.model import ClaimedDevice
from discovery.model import GpuSnapshot, NodeSnapshot

DRA_DRIVER: Final = "gpu.nvidia.com"

_N = r"([0-9]{1,9})"

# Of device plugins. Source: dcgm-exporter's Kubernetes mapping.
_OLD_MIG = re.compile(rf"MIG-(GPU-[^/]+)/{_N}/{_N}")
"""UUID, GPU instance, compute instance; of drivers before 470."""
_GKE = re.compile(rf"nvidia{_N}(?:/gi{_N})?(?:/vgpu{_N})?")
"""Minor number, GPU instance, share."""

# Of DRA. Source: NVIDIA's DRA driver, gpu-kubelet-plugin: deviceinfo.go, mig.go, cdi.go.
_CLAIMED_GPU = re.compile(rf"gpu-{_N}")
"""Minor number."""
_CLAIMED_MIG = re.compile(rf"gpu-{_N}-mig-(?=[0-9]+[cg])[a-z0-9-]+-[0-9]+-{_N}")
"""Minor number, profile, its number, start of the placement; from 25.12 on."""
_OLD_CLAIMED_MIG = re.compile(rf"gpu-{_N}-mig-[0-9]+-{_N}-[0-9]+")
"""Minor number, profile's number, start and size of the placement; up to 25.8."""
_CDI = re.compile(r"k8s\.gpu\.nvidia\.com/(?:device=|claim=[0-9a-f-]{36}-)(.+)")
"""The device's name; in a claim's own class behind the claim's UID."""

Resolve = Callable[[str, str, str], str | None]
"""UUID of a GPU or MIG device from driver, pool and device name, as its ResourceSlice has it."""


def no_slices(_driver: str, _pool: str, _device: str) -> None:
    """The resolver of an agent that may not read ResourceSlices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """A whole GPU, or one GPU instance of it."""

    bus_id: str
    gpu_instance_id: int | None = None


class DeviceNames:
    """The names of one node's devices."""

    def __init__(
        self, snapshot: NodeSnapshot, *, pool: str | None = None, resolve: Resolve = no_slices
    ) -> None:
        """``pool``: the Node's name, whose DRA device names these are; None takes any pool's."""
        self._pool = pool
        self._resolve = resolve
        self._parts = {key: part for gpu in snapshot.gpus for key, part in _named(gpu)}

    def of_plugin(self, device_id: str) -> tuple[GpuPart | None, str | None]:
        """The device that a device plugin's id stands for, and which share of it."""
        plain, _, share = device_id.partition("::")
        if old := _OLD_MIG.fullmatch(plain):
            part = self._parts.get(("uuid", old[1], int(old[2])))
        elif gke := _GKE.fullmatch(plain):
            minor, instance, gke_share = gke.groups()
            part = self._parts.get(("minor", int(minor), _number(instance)))
            share = share or gke_share
        else:
            part = self._parts.get(("uuid", plain, None))
        return part, share or None

    def of_claim(self, claimed: ClaimedDevice) -> tuple[GpuPart | None, ...]:
        """What one entry of a claim stands for: None for a name that is not known.

        By its ResourceSlice, else by its name, else by its CDI names, which may be of
        several devices. Empty where it is no GPU's.
        """
        if claimed.driver not in ("", DRA_DRIVER):
            return ()
        if not claimed.device:
            names = {found[1] for name in claimed.cdi if (found := _CDI.fullmatch(name))}
            return tuple(self._claimed(name) for name in sorted(names))
        if self._pool not in (None, claimed.pool):
            return (None,)
        uuid = self._resolve(claimed.driver, claimed.pool, claimed.device)
        if uuid is None:
            return (self._claimed(claimed.device),)
        return (self._parts.get(("uuid", uuid, None)),)

    def _claimed(self, name: str) -> GpuPart | None:
        if gpu := _CLAIMED_GPU.fullmatch(name):
            return self._parts.get(("minor", int(gpu[1]), None))
        if mig := _OLD_CLAIMED_MIG.fullmatch(name) or _CLAIMED_MIG.fullmatch(name):
            return self._parts.get(("start", int(mig[1]), int(mig[2])))
        return None


_Key = tuple[str, str | int, int | None]
"""``uuid`` and ``minor`` of a GPU with the GPU instance, if any, or of a MIG device alone;
``start``: minor of a GPU and where the instance starts, which no two share."""


def _named(gpu: GpuSnapshot) -> Iterator[tuple[_Key, GpuPart]]:
    """Every name of the GPU and of its instances; names that it does not report are left out."""
    parts: dict[int | None, GpuPart] = {None: GpuPart(bus_id=gpu.bus_id)}
    for mig in gpu.mig_devices:
        part = GpuPart(bus_id=gpu.bus_id, gpu_instance_id=mig.gpu_instance_id)
        parts[mig.gpu_instance_id] = part
        yield ("uuid", mig.uuid, None), part
        if gpu.minor is not None and mig.placement is not None:
            yield ("start", gpu.minor, mig.placement[0]), part
    for instance, part in parts.items():
        if gpu.uuid is not None:
            yield ("uuid", gpu.uuid, instance), part
        if gpu.minor is not None:
            yield ("minor", gpu.minor, instance), part


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
