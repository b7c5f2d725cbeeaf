# SPDX-License-Identifier: Apache-2.0
"""Holders of GPU instances that the driver does not know: pods, by the names of devices. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from discovery.mig_state import MigGpu
from mig.holders import HolderKind, MigHolder, MigHolders, MigPart

SHARE = "::"
"""Before the number of a share, where a device plugin shares its devices out.
Source: k8s-device-plugin 0.19.0, internal/rm/devices.go, AnnotatedID."""


def pod_holders(gpus: Iterable[MigGpu], held: Mapping[str, Collection[str]]) -> MigHolders:
    """Pods by what they hold; ``held``: a device, as its plugin has named it, to its pods.

    Names that stand for nothing on these GPUs are left out.
    """
    parts = dict(_parts(gpus))
    found: dict[MigPart, set[MigHolder]] = {}
    for name, pods in held.items():
        part = parts.get(name.partition(SHARE)[0])
        if part is not None:
            found.setdefault(part, set()).update(MigHolder(HolderKind.POD, pod) for pod in pods)
    return {part: frozenset(holders) for part, holders in found.items()}


def _parts(gpus: Iterable[MigGpu]) -> Iterator[tuple[str, MigPart]]:
    """UUIDs of GPUs and MIG devices, these also in the form that drivers before 470 have."""
    for gpu in gpus:
        yield gpu.uuid, MigPart(gpu.uuid, None)
        for instance, compute in gpu.devices():
            part = MigPart(gpu.uuid, instance.id)
            yield f"MIG-{gpu.uuid}/{instance.id}/{compute.id}", part
            if compute.uuid is not None:
                yield compute.uuid, part
