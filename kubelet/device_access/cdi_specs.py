# SPDX-License-Identifier: Apache-2.0
"""Stale specifications of the Container Device Interface: they name destroyed MIG instances. Pure.

A container runtime injects devices as such a file says. Nobody writes the file anew when MIG
instances change: NVIDIA's device plugin does at its start, nvidia-cdi-refresh when the driver is
loaded. Until then pods that get a new device fail to start, or get the node of one that is gone.
Source: CDI specification 0.8; nvidia-container-toolkit 1.18, ``nvidia-ctk cdi generate``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from base.words import first_names
from kubelet.device_access.capability_nodes import DRIVER_NAME

VENDOR: Final = "nvidia.com"
"""Kinds are ``nvidia.com/gpu``, and ``k8s.device-plugin.nvidia.com/gpu`` of the device plugin."""

_MIG: Final = re.compile(r"MIG-[0-9a-fA-F-]{36}")
_NODE: Final = re.compile(rf"/dev/{DRIVER_NAME}/nvidia-cap(\d{{1,7}})")
_SHOWN: Final = 3
"""Stale entries that a message names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstances:
    """The current instances, and the numbers of all possible ones."""

    uuids: frozenset[str] | None
    """UUIDs of MIG devices; None if they are not known, and names are then not checked."""
    used_minors: frozenset[int]
    """Minor numbers of the device nodes of current instances."""
    possible_minors: frozenset[int]
    """Minor numbers of all possible instances. Other numbers belong to no instance."""


def stale_entries(file: str, spec: object, present: MigInstances) -> str | None:
    """The stale entries of a specification, in one sentence with the fix; None if there are none.

    ``spec`` is the file's content. Parts that violate the format are ignored: the runtime itself
    refuses the file.
    """
    if not isinstance(spec, Mapping):
        return None
    kind = spec.get("kind")
    if not isinstance(kind, str) or not _is_nvidias(kind):
        return None
    stale = list(dict.fromkeys(_stale_parts(spec, present)))
    if not stale:
        return None
    named = first_names(stale, _SHOWN)
    return f"{file}: {kind} has {named}, which {_ARE_GONE[len(stale) > 1]}; {_fix(kind)}"


_ARE_GONE: Final = {False: "is not there any more", True: "are not there any more"}


def _fix(kind: str) -> str:
    if kind.startswith("k8s.device-plugin."):
        return "restart the device plugin's pod on this node"
    return "run nvidia-ctk cdi generate, as the service nvidia-cdi-refresh does"


def _is_nvidias(kind: str) -> bool:
    vendor = kind.partition("/")[0]
    return vendor == VENDOR or vendor.endswith(f".{VENDOR}")


def _stale_parts(spec: Mapping[Any, Any], present: MigInstances) -> Iterator[str]:
    for device in _list(spec.get("devices")):
        name = device.get("name")
        if isinstance(name, str) and _is_stale(name, present.uuids):
            yield f"the device {name}"
        yield from _stale_nodes(device.get("containerEdits"), present)
    yield from _stale_nodes(spec.get("containerEdits"), present)


def _is_stale(name: str, uuids: Collection[str] | None) -> bool:
    return uuids is not None and _MIG.fullmatch(name) is not None and name not in uuids


def _stale_nodes(edits: object, present: MigInstances) -> Iterator[str]:
    for node in _list(edits.get("deviceNodes") if isinstance(edits, Mapping) else None):
        path = node.get("hostPath") or node.get("path")
        match = _NODE.fullmatch(path) if isinstance(path, str) else None
        if match is not None and int(match[1]) in present.possible_minors - present.used_minors:
            yield f"the node {match[0]}"


def _list(value: object) -> Iterator[Mapping[Any, Any]]:
    if isinstance(value, list):
        yield from (mapping for mapping in value if isinstance(mapping, Mapping))
