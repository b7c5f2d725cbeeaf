# SPDX-License-Identifier: Apache-2.0
"""What a device plugin and the kubelet say to each other, free of gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDevice:
    """A device in the list of a resource."""

    id: str
    healthy: bool = True
    numa_node: int | None = None
    """None where it is not known, or is not to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMount:
    """A file or folder of the host in a container, read-only."""

    container_path: str
    host_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """A device node of the host in a container."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAccess:
    """What a container is started with so that it can use its devices."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()
    """Names in the Container Device Interface: ``vendor/class=name``."""


class ResourceAnswers(Protocol):
    """Answers of a device plugin about one resource. None of them raises."""

    async def preferred(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """Ids that a container should get; empty for no preference."""

    def access(self, ids: Sequence[str]) -> ContainerAccess:
        """What a container with these devices is started with."""
