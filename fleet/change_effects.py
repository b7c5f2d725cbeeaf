# SPDX-License-Identifier: Apache-2.0
"""Effects that the coordinator may make next for a node's change. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.drain.drain_pod import DrainPod
from fleet.gpu_pod import GpuPod
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import NodeEnd


class NodeWrite(StrEnum):
    """Purpose of a patch of a Node."""

    CORDON = "cordon"
    PAUSE = "pause"
    PROCEED = "proceed"
    RESUME = "resume"
    ROLL_BACK = "roll-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchNode:
    """Patch the Node at this resourceVersion."""

    purpose: NodeWrite
    patch: Mapping[str, Any]
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """Write the record on its Lease."""

    record: RollbackRecord
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkRecord:
    """Move the record to a Lease that is no slot, so that the slot is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSlot:
    """Empty the Lease."""

    outcome: str
    """How the change ended, for people."""
    retry_later: bool = False
    """The node was not idle, or not available: its next attempt waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGpuUsage:
    """Read the node's pods from the API server, past all caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPods:
    """Have these pods of the device plugin leave; their DaemonSet makes others."""

    pods: tuple[GpuPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateDrain:
    """Evaluate which pods of the node may leave, each by a dry run too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictDeviceUsers:
    """Have the pods leave that use devices which the change needs."""

    pods: tuple[DrainPod, ...]


ChangeEffect = (
    PatchNode
    | WriteRecord
    | NodeEnd
    | ParkRecord
    | FreeSlot
    | ReadGpuUsage
    | EvaluateDrain
    | EvictDeviceUsers
    | EvictPods
    | None
)
