# SPDX-License-Identifier: Apache-2.0
"""Reports of the device reader: the result of a discovery, and its health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.model import Driver, GpuSnapshot, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResult:
    """Result of one discovery: the driver, and every GPU that is known, answering or not."""

    driver: Driver
    gpus: tuple[GpuSnapshot, ...]
    """By their places."""
    counts: GpuCounts = NO_GPUS
    settling: bool = False
    """A GPU among them may yet give its first answer."""
    awaits_record: bool = False
    """There may be more of them: see :meth:`KnownGpus.await_record`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderHealth:
    """Health of the reader; counts are since the start."""

    starts: int
    hangs: int
    deaths: int
    stuck: int
    """Children that got SIGTERM and have not ended."""
    quarantined: tuple[str, ...]
    released: bool
    why_quarantined: Mapping[str, Reason] = field(default_factory=dict)
    """By bus id."""
    event_losses: int = 0
    """Times that events may have been lost: a working child ended, or too many came."""
    missed_once: frozenset[str] = frozenset()
    """Quarantined GPUs that may just have stalled: they missed a single deadline."""
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Children that were replaced though they worked, by what they had used up: ``memory``,
    ``descriptors`` or ``age``."""
    outgrown: bool = False
    """The child that works takes more than it may: the next request replaces it."""
    awaited: frozenset[str] = frozenset()
    """GPUs whose first answer is being waited for, while the others are read without them."""
    initialising: str | None = None
    """Target that takes long for its first answer: a bus id, or ``driver``."""
    pid: int | None = None
    """Process id of the child that works now; None while there is none."""
