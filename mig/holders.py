# SPDX-License-Identifier: Apache-2.0
"""Who needs a GPU or a GPU instance as it is. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class HolderKind(StrEnum):
    """What makes an instance busy."""

    PROCESS = "process"
    """It has the instance open."""
    POD = "pod"
    """The kubelet assigned the device to it, and it has not ended. Init containers and crash loops
    count: the kubelet hands them the same device again."""
    CLAIM = "claim"
    """A pod without a node asks for a resource that the instance serves."""


@dataclass(frozen=True, slots=True, order=True)
class MigHolder:
    """A process, a pod, or the claim of one."""

    kind: HolderKind
    name: str
    """``4711 python``, ``namespace/name``."""

    def __str__(self) -> str:
        """As an operator would search for it."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class MigPart:
    """A GPU instance, or a whole GPU."""

    gpu: str
    """UUID."""
    instance: int | None
    """Id of the GPU instance; None for the whole GPU."""


MigHolders = Mapping[MigPart, frozenset[MigHolder]]
"""Who holds what. A part that is missing has no holder."""


def all_holders(*several: MigHolders) -> MigHolders:
    """Everybody whom one of them has."""
    found: dict[MigPart, frozenset[MigHolder]] = {}
    for each in several:
        for part, holders in each.items():
            found[part] = found.get(part, frozenset()) | holders
    return found
