# SPDX-License-Identifier: Apache-2.0
"""Device nodes that a node's MIG instances need, by the driver's files in /proc. Pure.

Whoever opens a MIG device opens a capability of its GPU instance and one of its compute instance,
each through a device node, ``/dev/nvidia-caps/nvidia-cap<minor>``. The driver makes no nodes. It
publishes their numbers, and a file for each instance that there is.
Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities"; nvidia-modprobe, which makes such a
node when a program that is root asks it to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from base.errors import BadInput

DRIVER_NAME: Final = "nvidia-caps"
"""Name, in /proc/devices, of the driver that serves the device nodes."""

_INSTANCE: Final = re.compile(r"gpu\d{1,4}/gi\d{1,3}(?:/ci\d{1,3})?/access")
_MINOR_LINE: Final = re.compile(r"(\S+) (\d{1,7})")
_MAJOR_LINE: Final = re.compile(rf" *(\d{{1,4}}) {DRIVER_NAME}")
_PARAMETER: Final = re.compile(r"(\w+): *(\d{1,10})")
_MOST_MINOR: Final = (1 << 20) - 1
_MODE_BITS: Final = 0o777


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityNode:
    """A device node that must be there before a program can open an instance."""

    capability: str
    """``gpu0/gi1/ci0/access``: the instance that it leads to."""
    major: int
    minor: int
    mode: int
    """Permission bits."""
    uid: int
    gid: int

    @property
    def name(self) -> str:
        """Name of the file in /dev/nvidia-caps."""
        return f"nvidia-cap{self.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityNodes:
    """The device nodes that the driver's instances need, and the problems."""

    nodes: tuple[CapabilityNode, ...]
    """Nodes of all current GPU instances and compute instances, by minor number."""
    problems: tuple[str, ...] = ()
    """Instances whose node is not known, each in one sentence."""


def required_nodes(devices: str, minors: str, files: Mapping[str, str]) -> CapabilityNodes:
    """The nodes of all current instances.

    ``devices`` is the text of /proc/devices, ``minors`` of /proc/driver/nvidia-caps/mig-minors.
    ``files`` has the text of each file ``gpu*/mig/gi*/access`` and ``gpu*/mig/gi*/ci*/access`` by
    its path below /proc/driver/nvidia/capabilities. An instance on whose number these do not agree
    is a problem, and so is an instance whose parameters cannot be read: nothing is guessed. An
    instance whose node the driver lets nobody make has none.
    """
    if not files:
        return CapabilityNodes(nodes=())
    major = _major(devices)
    if major is None:
        return CapabilityNodes(
            nodes=(),
            problems=(f"/proc/devices has no {DRIVER_NAME}: the driver serves no capabilities",),
        )
    numbers = {name: minor for minor, name in instance_minors(minors).items()}
    nodes, problems = list[CapabilityNode](), list[str]()
    for path in sorted(files):
        capability = capability_of(path)
        try:
            node = _node(capability, major, files[path], numbers.get(capability))
        except BadInput as error:
            problems.append(f"{capability}: {error}")
            continue
        if node is not None:
            nodes.append(node)
    nodes.sort(key=lambda node: node.minor)
    return CapabilityNodes(nodes=tuple(nodes), problems=tuple(problems))


def capability_of(path: str) -> str:
    """``gpu0/gi1/access`` for ``gpu0/mig/gi1/access``: its name in mig-minors."""
    return path.replace("/mig/", "/", 1)


def instance_minors(text: str) -> Mapping[int, str]:
    """Minor number to capability, of all possible instances; control nodes are left out.

    ``text``: content of mig-minors. Lines that are not understood are left out.
    """
    capability_by_minor = {}
    for line in text.splitlines():
        match = _MINOR_LINE.fullmatch(line)
        if match is not None and _INSTANCE.fullmatch(match[1]):
            capability_by_minor[int(match[2])] = match[1]
    return capability_by_minor


def _major(devices: str) -> int | None:
    """Major number of the capability driver; None if it is not loaded.

    Block devices are not read: they have numbers of their own.
    """
    characters = devices.partition("Character devices:")[2].partition("\n\n")[0]
    matches = (_MAJOR_LINE.fullmatch(line) for line in characters.splitlines())
    return next((int(match[1]) for match in matches if match is not None), None)


def _node(capability: str, major: int, text: str, listed: int | None) -> CapabilityNode | None:
    """The node of a capability; None if the driver lets nobody make it. Raises BadInput."""
    parameters = dict(_parameters(text))
    minor = parameters.get("DeviceFileMinor")
    mode = parameters.get("DeviceFileMode")
    if minor is None or mode is None:
        raise BadInput("the driver does not say the number and the mode of its device node")
    if minor > _MOST_MINOR or mode > _MODE_BITS:
        raise BadInput(f"no device node can have the number {minor} and the mode {mode}")
    if listed is None:
        raise BadInput(f"its number {minor} is not in mig-minors")
    if listed != minor:
        raise BadInput(f"its number is {minor}, and {listed} in mig-minors")
    if parameters.get("DeviceFileModify", 1) != 1:
        return None
    return CapabilityNode(
        capability=capability,
        major=major,
        minor=minor,
        mode=mode,
        uid=parameters.get("DeviceFileUID", 0),
        gid=parameters.get("DeviceFileGID", 0),
    )


def _parameters(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        match = _PARAMETER.fullmatch(line.strip())
        if match is not None:
            yield match[1], int(match[2])
