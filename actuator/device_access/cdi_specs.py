# SPDX-License-Identifier: Apache-2.0
"""Specifications of the Container Device Interface that speak of MIG instances that are gone. Pure.

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

from actuator.device_access.capability_nodes import DRIVER_NAME

VENDOR: Final = "nvidia.com"
"""Kinds are ``nvidia.com/gpu``, and ``k8s.device-plugin.nvidia.com/gpu`` of the device plugin."""

_MIG: Final = re.compile(r"MIG-[0-9a-fA-F-]{36}")
_NODE: Final = re.compile(rf"/dev/{DRIVER_NAME}/nvidia-cap(\d{{1,7}})")
_SHOWN: Final = 3
"""Of things that are gone, in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigThere:
    """The instances that there are now."""

    uuids: frozenset[str] | None
    """Of MIG devices; None where they are not known, and names are then not judged."""
    used_minors: frozenset[int]
    """Of the device nodes of instances that there are."""
    possible_minors: frozenset[int]
    """Of all instances that there could be. Other numbers are not of instances."""


def stale_entries(file: str, spec: object, there: MigThere) -> str | None:
    """What of a specification is gone, in one sentence with the fix; None: nothing is.

    ``spec`` is the file's content. What is not as the format has it is passed over: the runtime
    itself refuses the file.
    """
    if not isinstance(spec, Mapping):
        return None
    kind = spec.get("kind")
    if not isinstance(kind, str) or not _is_nvidias(kind):
        return None
    gone = list(dict.fromkeys(_gone(spec, there)))
    if not gone:
        return None
    named = ", ".join(gone[:_SHOWN]) + (f" and {len(gone) - _SHOWN} more" if gone[_SHOWN:] else "")
    return f"{file}: {kind} has {named}, which {_ARE_GONE[len(gone) > 1]}; {_fix(kind)}"


_ARE_GONE: Final = {False: "is not there any more", True: "are not there any more"}


def _fix(kind: str) -> str:
    if kind.startswith("k8s.device-plugin."):
        return "restart the device plugin's pod on this node"
    return "run nvidia-ctk cdi generate, as the service nvidia-cdi-refresh does"


def _is_nvidias(kind: str) -> bool:
    vendor = kind.partition("/")[0]
    return vendor == VENDOR or vendor.endswith(f".{VENDOR}")


def _gone(spec: Mapping[Any, Any], there: MigThere) -> Iterator[str]:
    for device in _list(spec.get("devices")):
        name = device.get("name")
        if isinstance(name, str) and _is_gone(name, there.uuids):
            yield f"the device {name}"
        yield from _gone_nodes(device.get("containerEdits"), there)
    yield from _gone_nodes(spec.get("containerEdits"), there)


def _is_gone(name: str, uuids: Collection[str] | None) -> bool:
    return uuids is not None and _MIG.fullmatch(name) is not None and name not in uuids


def _gone_nodes(edits: object, there: MigThere) -> Iterator[str]:
    for node in _list(edits.get("deviceNodes") if isinstance(edits, Mapping) else None):
        path = node.get("hostPath") or node.get("path")
        match = _NODE.fullmatch(path) if isinstance(path, str) else None
        if match is not None and int(match[1]) in there.possible_minors - there.used_minors:
            yield f"the node {match[0]}"


def _list(value: object) -> Iterator[Mapping[Any, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, Mapping))
