# SPDX-License-Identifier: Apache-2.0
"""Memory and time that processes use of a GPU or GPU instance, for ``gpuscape_process_*``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from discovery.model import Bytes
from discovery.sample import ProcessKind

OTHER: Final = "other"
"""Value in place of a pid, for all processes that have no series of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPod:
    """The pod that a process runs in."""

    uid: str
    namespace: str | None = None
    """Namespace of the pod; known, as its name, only where pods may be read."""
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """Use of a GPU or a GPU instance by a process, or by all processes without a series.

    There are few for each GPU, whatever runs on it: those with the most memory one by one,
    and at most one OTHER for the GPU and for each instance, so that sums over ``pid`` are right.
    """

    bus_id: str
    gpu_instance_id: int | None = None
    pid: str
    """Process id of the host, decimal; or OTHER."""
    name: str | None = None
    """Name that the process gives itself, so any text; None for OTHER, or where not known."""
    kinds: tuple[ProcessKind, ...] = ()
    """Kinds of work of the process on the GPU, sorted."""
    pod: OfPod | None = None
    """None for OTHER, and where the process runs in no pod or has ended meanwhile."""
    memory_bytes: Bytes | None = None
    busy_ratio: float | None = None
    """Share of the time for which its kernels ran; of OTHER the sum. None under MIG."""
