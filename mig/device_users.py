# SPDX-License-Identifier: Apache-2.0
"""Device users that keep a GPU or a GPU instance from being changed. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class UserKind(StrEnum):
    """Kind of a device user, which makes an instance busy."""

    PROCESS = "process"
    """A process that has the instance open."""
    POD = "pod"
    """A pod that the kubelet assigned the device to, and that has not ended. Init containers and
    crash loops count: the kubelet gives them the same device again."""
    PENDING_POD = "pending-pod"
    """A pod without a node asks for a resource that the instance serves."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceUser:
    """A device user: a process, a pod, or a pending pod that requests such a device."""

    kind: UserKind
    name: str
    """``4711 python``, ``namespace/name``."""

    def __str__(self) -> str:
        """Kind and name, as an operator would search for them."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class MigPart:
    """A GPU instance, or a whole GPU, by UUID: a plan outlives a reading."""

    gpu: str
    """UUID."""
    instance: int | None
    """Id of the GPU instance; None for the whole GPU."""


DeviceUsers = Mapping[MigPart, frozenset[DeviceUser]]
"""Part of a GPU to its device users. A part that is missing has none."""


def all_users(*sources: DeviceUsers) -> DeviceUsers:
    """The union of several mappings of device users."""
    merged: dict[MigPart, frozenset[DeviceUser]] = {}
    for source in sources:
        for part, users in source.items():
            merged[part] = merged.get(part, frozenset()) | users
    return merged
