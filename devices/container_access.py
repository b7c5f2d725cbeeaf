# SPDX-License-Identifier: Apache-2.0
"""What a container with some devices is started with, as NVIDIA's plugin has it. Pure.

Source: k8s-device-plugin v0.20.0, internal/plugin/server.go (``envvar``, ``pass-device-specs``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devices.offered_devices import OfferedDevice
from kubelet.device_plugin.plugin_model import ContainerAccess, HostDevice

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_NONE: Final = "void"
"""The container runtime gives such a container neither devices nor the driver's files."""
CONTROL_NODES: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
_CAPABILITIES: Final = "/dev/nvidia-caps"
_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """How containers get their devices."""

    device_specs: bool = False
    """Device nodes too, which the kubelet has to know for static CPUs (pass-device-specs)."""
    dev_root: str = "/"
    """Folder of the host in which the driver's /dev is."""
    control_nodes: Collection[str] = CONTROL_NODES
    """The nodes of CONTROL_NODES that the host has."""


def container_access(
    ids: Sequence[str], known: Mapping[str, OfferedDevice], settings: AccessSettings
) -> ContainerAccess:
    """The access of a container with these ids, each of which counts once; it never raises.

    The environment names UUIDs alone, also those that are not known: then the runtime refuses the
    container, which is better than one without its GPU. A share of a GPU, ``UUID::2``, is its GPU.
    """
    names = list(dict.fromkeys(id_.partition("::")[0] for id_ in ids))
    uuids = [name for name in names if _UUID.fullmatch(name)]
    specs: tuple[HostDevice, ...] = ()
    if settings.device_specs:
        nodes = dict.fromkeys(_nodes([known[name] for name in uuids if name in known], settings))
        root = settings.dev_root.rstrip("/")
        specs = tuple(HostDevice(container_path=node, host_path=root + node) for node in nodes)
    return ContainerAccess(environment={VISIBLE_DEVICES: ",".join(uuids) or _NONE}, devices=specs)


def _nodes(devices: Sequence[OfferedDevice], settings: AccessSettings) -> Iterator[str]:
    yield from (node for node in CONTROL_NODES if node in settings.control_nodes)
    for device in devices:
        if device.minor is not None:
            yield f"/dev/nvidia{device.minor}"
        yield from (f"{_CAPABILITIES}/nvidia-cap{minor}" for minor in device.capabilities)
