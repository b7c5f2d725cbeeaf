# SPDX-License-Identifier: Apache-2.0
"""Holders of GPU instances that the driver does not know: pods, by the names of devices. Pure.

Safety: a pod whose device has a name that says nothing of where it is holds every GPU with all that
is on it, since it may be there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from api.device_names import NamedInstance, NameKey, claimed_key, keys, plugin_key
from discovery.host.kubelet_devices import KubeletDevices
from discovery.mig_state import MigGpu
from mig.holders import HolderKind, MigHolder, MigHolders, MigPart

Parts = tuple[MigPart, ...]


def pod_holders(gpus: Collection[MigGpu], kubelet: KubeletDevices) -> MigHolders:
    """Pods by what they hold of these GPUs.

    Who has a whole GPU has all that is on it too: a program that is given a GPU with MIG on runs on
    one of its instances. A device that is certainly none of these GPUs is left out.
    """
    anywhere = tuple(part for gpu in gpus for part in _all_of(gpu))
    found: dict[MigPart, set[MigHolder]] = {}
    for _, pods, parts in _devices(gpus, kubelet):
        for part in anywhere if parts is None else parts:
            found.setdefault(part, set()).update(MigHolder(HolderKind.POD, pod) for pod in pods)
    return {part: frozenset(holders) for part, holders in found.items()}


def unplaced_devices(
    gpus: Collection[MigGpu], kubelet: KubeletDevices
) -> Mapping[str, frozenset[str]]:
    """Names of GPUs that pods have and that may be any of these, to the pods."""
    return {name: pods for name, pods, parts in _devices(gpus, kubelet) if parts is None}


def _devices(
    gpus: Collection[MigGpu], kubelet: KubeletDevices
) -> Iterator[tuple[str, frozenset[str], Parts | None]]:
    """What pods have: name, pods, and where it is on these GPUs; None where that is not known."""
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
    """Whether a device whose name is none of these GPUs' is none of them; ``minors``: all known."""
    return key.is_certain and (isinstance(key.gpu, str) or minors)


def _all_of(gpu: MigGpu) -> Iterator[MigPart]:
    yield MigPart(gpu.uuid, None)
    for one in gpu.instances:
        yield MigPart(gpu.uuid, one.id)


def _named(gpus: Iterable[MigGpu]) -> Iterator[tuple[NameKey, Parts]]:
    """Every name of these GPUs, and what it stands for."""
    for gpu in gpus:
        instances = (
            NamedInstance(
                id=one.id,
                start=one.start,
                devices=[part.uuid for part in one.compute if part.uuid is not None],
            )
            for one in gpu.instances
        )
        for key, at in keys(gpu.uuid, gpu.minor, instances):
            yield key, tuple(_all_of(gpu)) if at is None else (MigPart(gpu.uuid, at),)
