# SPDX-License-Identifier: Apache-2.0
"""What processes have of a GPU or a GPU instance, as ``gpuscape_process_*`` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from discovery.model import Bytes
from discovery.sample import ProcessKind

OTHER: Final = "other"
"""In place of a pid: all processes that have no series of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPod:
    """The pod that a process runs in."""

    uid: str
    namespace: str | None = None
    """Known, as the name is, only where pods may be read."""
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What one process, or all the others, have of a GPU or of one of its GPU instances.

    There are few for each GPU, whatever runs on it: those with the most memory one by one,
    and at most one OTHER for the GPU and for each instance, so that sums over ``pid`` are right.
    """

    bus_id: str
    gpu_instance_id: int | None = None
    pid: str
    """Decimal, as the host counts; or OTHER."""
    name: str | None = None
    """As the process calls itself, so it may hold anything; None of OTHER, or not known."""
    kinds: tuple[ProcessKind, ...] = ()
    """What it does there, sorted."""
    pod: OfPod | None = None
    """None: it runs in no pod, or it ended meanwhile; of OTHER too."""
    memory_bytes: Bytes | None = None
    busy_ratio: float | None = None
    """Share of the time for which its kernels ran; of OTHER the sum. None under MIG."""
