# SPDX-License-Identifier: Apache-2.0
"""Which device nodes the MIG instances of a node need, from what the driver publishes. Pure.

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
"""Of the driver that serves the nodes, in /proc/devices."""

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
        """Of the file in /dev/nvidia-caps."""
        return f"nvidia-cap{self.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityNodes:
    """What the driver asks for."""

    nodes: tuple[CapabilityNode, ...]
    """One for each GPU instance and each compute instance that there is, by minor number."""
    problems: tuple[str, ...] = ()
    """Instances whose node is not known, each in one sentence."""


def wanted_nodes(devices: str, minors: str, files: Mapping[str, str]) -> CapabilityNodes:
    """The nodes of all instances that there are.

    ``devices`` is the text of /proc/devices, ``minors`` of /proc/driver/nvidia-caps/mig-minors.
    ``files`` has the text of each file ``gpu*/mig/gi*/access`` and ``gpu*/mig/gi*/ci*/access`` by
    its path below /proc/driver/nvidia/capabilities. An instance on whose number these do not agree
    is a problem, and so is one whose parameters cannot be read: nothing is guessed. One of which
    the driver says that nobody may make its node has none.
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
    nodes.sort(key=lambda one: one.minor)
    return CapabilityNodes(nodes=tuple(nodes), problems=tuple(problems))


def capability_of(path: str) -> str:
    """``gpu0/gi1/access`` for ``gpu0/mig/gi1/access``: its name in mig-minors."""
    return path.replace("/mig/", "/", 1)


def instance_minors(text: str) -> Mapping[int, str]:
    """Minor number to capability, of all instances that there could be; control nodes are none.

    ``text`` is that of mig-minors. Lines that are not understood are left out.
    """
    found = {}
    for line in text.splitlines():
        match = _MINOR_LINE.fullmatch(line)
        if match is not None and _INSTANCE.fullmatch(match[1]):
            found[int(match[2])] = match[1]
    return found


def _major(devices: str) -> int | None:
    """Of the capability driver; None where it is not there. Block devices have other numbers."""
    characters = devices.partition("Character devices:")[2].partition("\n\n")[0]
    found = (_MAJOR_LINE.fullmatch(line) for line in characters.splitlines())
    return next((int(match[1]) for match in found if match is not None), None)


def _node(capability: str, major: int, text: str, listed: int | None) -> CapabilityNode | None:
    """None where the driver lets nobody make it. Raises BadInput."""
    said = dict(_parameters(text))
    minor = said.get("DeviceFileMinor")
    mode = said.get("DeviceFileMode")
    if minor is None or mode is None:
        raise BadInput("the driver does not say the number and the mode of its device node")
    if minor > _MOST_MINOR or mode > _MODE_BITS:
        raise BadInput(f"no device node can have the number {minor} and the mode {mode}")
    if listed is None:
        raise BadInput(f"its number {minor} is not in mig-minors")
    if listed != minor:
        raise BadInput(f"its number is {minor}, and {listed} in mig-minors")
    if said.get("DeviceFileModify", 1) != 1:
        return None
    return CapabilityNode(
        capability=capability,
        major=major,
        minor=minor,
        mode=mode,
        uid=said.get("DeviceFileUID", 0),
        gid=said.get("DeviceFileGID", 0),
    )


def _parameters(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        match = _PARAMETER.fullmatch(line.strip())
        if match is not None:
            yield match[1], int(match[2])
