# SPDX-License-Identifier: Apache-2.0
"""Finds the GPUs that the kubelet's names of a node's devices stand for.

One that leads to no device of this node for certain stands for nothing: it is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from api.device_names import (
    DRA_DRIVER,
    NamedBy,
    NamedInstance,
    NameKey,
    cdi_names,
    claimed_key,
    keys,
    plugin_key,
)
from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot, nvidia_gpus
from kubelet.podresources.allocation_model import ClaimedDevice

Resolve = Callable[[str, str, str], str | None]
"""UUID of a GPU or MIG device from driver, pool and device name, as its ResourceSlice has it."""


def no_slices(_driver: str, _pool: str, _device: str) -> None:
    """The resolver of an agent that may not read ResourceSlices."""


class DeviceNames:
    """The names of one node's devices."""

    def __init__(
        self, snapshot: NodeSnapshot, *, pool: str | None = None, resolve: Resolve = no_slices
    ) -> None:
        """``pool``: the Node's name, whose DRA device names these are; None takes any pool's."""
        self._pool = pool
        self._resolve = resolve
        self._parts = dict(named_parts(snapshot))

    def of_plugin(self, device_id: str) -> tuple[GpuPart | None, str | None]:
        """The device that a device plugin's id stands for, and which share of it."""
        key, share = plugin_key(device_id)
        return self._parts.get(key), share

    def of_claim(self, claimed: ClaimedDevice) -> tuple[GpuPart | None, ...]:
        """GPUs that an entry of a claim stands for; None for a name that is not known.

        By its ResourceSlice, else by its name, else by its CDI names, which may be of
        several devices. Empty where it is no GPU's.
        """
        if claimed.driver not in ("", DRA_DRIVER):
            return ()
        if not claimed.device:
            return tuple(self._claimed(name) for name in sorted(cdi_names(claimed.cdi)))
        if self._pool not in (None, claimed.pool):
            return (None,)
        uuid = self._resolve(claimed.driver, claimed.pool, claimed.device)
        if uuid is None:
            return (self._claimed(claimed.device),)
        return (self._parts.get(NameKey(NamedBy.UUID, uuid)),)

    def _claimed(self, name: str) -> GpuPart | None:
        key = claimed_key(name)
        return None if key is None else self._parts.get(key)


def named_parts(snapshot: NodeSnapshot) -> Iterator[tuple[NameKey, GpuPart]]:
    """Every name of the GPUs and of their instances, with the part that it stands for."""
    for gpu, nvidia in nvidia_gpus(snapshot.gpus):
        instances = (
            NamedInstance(
                id=mig.gpu_instance_id,
                start=None if mig.placement is None else mig.placement[0],
                devices=(mig.uuid,),
            )
            for mig in nvidia.mig_devices
        )
        for key, instance_id in keys(gpu.uuid, nvidia.minor, instances):
            yield key, GpuPart(gpu.bus_id, instance_id)
