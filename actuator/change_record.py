# SPDX-License-Identifier: Apache-2.0
"""One change of MIG layouts as the journal keeps it, schema version 1. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from api.versioned import VersionedFormat
from mig.gpu_layout import GpuLayout

VERSION = 1
MOST_BYTES = 1 << 18
"""Sixteen GPUs with seven instances each take 30 KiB."""


class Direction(StrEnum):
    """Where a change is going."""

    FORWARD = "forward"
    """To the layouts that were asked for."""
    BACK = "back"
    """To those from before."""


class ChangeOutcome(StrEnum):
    """How a change ended. There is no fourth way."""

    APPLIED = "applied"
    """Every GPU has the layout that was asked for."""
    PREVIOUS = "previous"
    """Every GPU has the layout from before."""
    HELD = "held"
    """Neither could be reached: what is idle on the affected GPUs is gone, and a person decides."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must outlive the process: where the change is going, and where it came from.

    Never how far it is: only the driver knows.
    """

    v: int
    change: str
    """Identifies the change; unique on this node."""
    asked: str
    """Where the layout comes from, for people: ``all-1g.10gb of config.yaml``."""
    started: str
    """RFC 3339, for people."""
    boot: str
    """The kernel's boot id when it began."""
    wanted: dict[str, GpuLayout]
    """By GPU UUID: of the affected GPUs, each instance at the place that the plan has for it. After
    a reboot in the middle what the plan keeps comes back where its pods expect it."""
    previous: dict[str, GpuLayout]
    """Of the same GPUs, each instance at its place."""
    direction: Direction = Direction.FORWARD
    reason: str = ""
    """Why it goes back, or is held."""
    outcome: ChangeOutcome | None = None
    """None while it goes on; of those in the journal only a held one has one."""


class ChangeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that have ended, the newest last."""

    v: int
    changes: tuple[ChangeRecord, ...] = ()


def _faults(record: ChangeRecord) -> Iterator[str]:
    if record.wanted.keys() != record.previous.keys():
        yield "wanted and previous: they name other GPUs"
    if not record.wanted:
        yield "wanted: no GPU"
    for uuid, layout in record.previous.items():
        if any(one.start < 0 for one in layout.instances):
            yield f"previous.{uuid}: an instance has no place"


JOURNAL = VersionedFormat(
    name="the journal of MIG changes",
    remedy="compare the GPUs with the layout that you want, and remove the file",
    content=ChangeRecord,
    version=VERSION,
    most_length=MOST_BYTES,
    faults=_faults,
)
HISTORY = VersionedFormat(
    name="the history of MIG changes",
    remedy="it begins anew",
    content=ChangeHistory,
    version=VERSION,
    most_length=64 * MOST_BYTES,
)
