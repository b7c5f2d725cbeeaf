# SPDX-License-Identifier: Apache-2.0
"""Device users that keep a GPU or a GPU instance from being changed. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class HolderKind(StrEnum):
    """Kind of a holder, which makes an instance busy."""

    PROCESS = "process"
    """A process that has the instance open."""
    POD = "pod"
    """A pod that the kubelet assigned the device to, and that has not ended. Init containers and
    crash loops count: the kubelet gives them the same device again."""
    PENDING_POD = "pending-pod"
    """A pod without a node asks for a resource that the instance serves."""


@dataclass(frozen=True, slots=True, order=True)
class MigHolder:
    """A device user: a process, a pod, or a pending pod that requests such a device."""

    kind: HolderKind
    name: str
    """``4711 python``, ``namespace/name``."""

    def __str__(self) -> str:
        """Kind and name, as an operator would search for them."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class MigPart:
    """A GPU instance, or a whole GPU."""

    gpu: str
    """UUID."""
    instance: int | None
    """Id of the GPU instance; None for the whole GPU."""


MigHolders = Mapping[MigPart, frozenset[MigHolder]]
"""Holders by the part of a GPU that they hold. A part that is missing has no holder."""


def all_holders(*sources: MigHolders) -> MigHolders:
    """The union of several mappings of holders."""
    merged: dict[MigPart, frozenset[MigHolder]] = {}
    for source in sources:
        for part, holders in source.items():
            merged[part] = merged.get(part, frozenset()) | holders
    return merged
