# SPDX-License-Identifier: Apache-2.0
"""Pods that use MIG devices, by the names of their devices; the driver knows no pods. Pure.

Safety: a pod whose device name does not show the GPU uses all GPUs with all their instances, since
its device may be any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from api.device_names import NamedBy, NamedInstance, NameKey, claimed_key, keys, plugin_key
from discovery.mig_state import MigGpu
from kubelet.devices_checkpoint import KubeletDevices
from mig.users.device_users import (
    DeviceUser,
    DeviceUsers,
    MigPart,
    UserKind,
    device_part,
    users_by_part,
)

Parts = tuple[MigPart, ...]


def pod_users(gpus: Collection[MigGpu], kubelet: KubeletDevices) -> DeviceUsers:
    """Pods by the parts of these GPUs that they use.

    A pod that has a whole GPU uses all its instances too: a program that gets a GPU with MIG on
    runs on one of them. A device that is certainly not one of these GPUs is left out.
    """
    anywhere = tuple(part for gpu in gpus for part in _all_of(gpu))
    return users_by_part(
        (part, [DeviceUser(UserKind.POD, pod) for pod in pods])
        for _, pods, parts in _devices(gpus, kubelet)
        for part in (anywhere if parts is None else parts)
    )


def unplaced_devices(
    gpus: Collection[MigGpu], kubelet: KubeletDevices
) -> Mapping[str, frozenset[str]]:
    """Name of a pod's device that may be any of these GPUs, to the pods that have it."""
    return {name: pods for name, pods, parts in _devices(gpus, kubelet) if parts is None}


def _devices(
    gpus: Collection[MigGpu], kubelet: KubeletDevices
) -> Iterator[tuple[str, frozenset[str], Parts | None]]:
    """Devices of pods: name, pods, and parts of these GPUs; None if the parts are not known."""
    named = dict(_named(gpus))
    minors = all(gpu.minor is not None for gpu in gpus)
    for name, pods in kubelet.held.items():
        key, _ = plugin_key(name)
        if key in named or name in kubelet.gpus:
            yield name, pods, named.get(key) or (() if _is_elsewhere(key, minors) else None)
    for name, pods in kubelet.claimed.items():
        claimed = claimed_key(name)
        known = () if claimed is not None and _is_elsewhere(claimed, minors) else None
        yield name, pods, known if claimed is None else named.get(claimed) or known


def _is_elsewhere(key: NameKey, minors: bool) -> bool:
    """Whether an unknown device name is surely no part of these GPUs; ``minors``: all are known."""
    return key.is_certain and (isinstance(key.gpu, str) or minors)


def _all_of(gpu: MigGpu) -> Iterator[MigPart]:
    yield MigPart(gpu.uuid, None)
    for instance in gpu.instances:
        yield MigPart(gpu.uuid, instance.id)


def _named(gpus: Iterable[MigGpu]) -> Iterator[tuple[NameKey, Parts]]:
    """Every device name of these GPUs, and the parts that it stands for."""
    for gpu in gpus:
        instances = (
            NamedInstance(
                id=instance.id,
                start=instance.start,
                devices=[part.uuid for part in instance.compute if part.uuid is not None],
            )
            for instance in gpu.instances
        )
        for key, instance_id in keys(gpu.uuid, gpu.minor, instances):
            yield (
                key,
                tuple(_all_of(gpu)) if instance_id is None else (MigPart(gpu.uuid, instance_id),),
            )
        for instance, compute in gpu.devices():
            if compute.uuid is not None:  # of all names only this one says the compute instance
                part = device_part(gpu, instance, compute)
                yield NameKey(NamedBy.UUID, compute.uuid), (part,)
