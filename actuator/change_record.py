# SPDX-License-Identifier: Apache-2.0
"""One change of MIG layouts as the journal keeps it, schema version 1. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
    """On some GPUs neither could be reached: what is idle on those is gone, and a person decides.
    The others have the layout from before."""


class GpuName(msgspec.Struct, frozen=True, kw_only=True):
    """What people called a GPU when a change began: one that is lost answers to nothing."""

    index: int
    bus_id: str
    """Normalised."""


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
    stuck: tuple[str, ...] = ()
    """UUIDs of the GPUs that hold it, of one that is held: the others have the layout from before.
    Empty where it was held by a version that did not tell them apart."""
    given_up: dict[str, GpuLayout] = {}
    """By UUID: GPUs that a person has taken out of it, and the layouts that they had before."""
    gpus: dict[str, GpuName] = {}
    """By UUID."""

    @property
    def concerns(self) -> frozenset[str]:
        """UUIDs of the GPUs that are not in a layout that was wanted or was there before."""
        is_held = self.outcome is ChangeOutcome.HELD
        return frozenset((is_held and self.stuck) or self.wanted)

    def without(self, gpus: Collection[str]) -> ChangeRecord:
        """The change with these GPUs given up."""
        gone = {uuid: layout for uuid, layout in self.previous.items() if uuid in gpus}
        reasons = (self.reason, f"given up: {', '.join(sorted(gone))}")
        return msgspec.structs.replace(
            self,
            wanted={uuid: one for uuid, one in self.wanted.items() if uuid not in gone},
            previous={uuid: one for uuid, one in self.previous.items() if uuid not in gone},
            stuck=tuple(uuid for uuid in self.stuck if uuid not in gone),
            given_up=self.given_up | gone,
            reason="; ".join(filter(None, reasons)),
        )


class HeldChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that are held, the newest last; no GPU holds two of them."""

    v: int
    changes: tuple[ChangeRecord, ...] = ()


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
HELD = VersionedFormat(
    name="the list of held MIG changes",
    remedy="compare the GPUs with the layout that you want, and remove the file",
    content=HeldChanges,
    version=VERSION,
    most_length=16 * MOST_BYTES,
    faults=lambda held: (fault for one in held.changes for fault in _faults(one)),
)
HISTORY = VersionedFormat(
    name="the history of MIG changes",
    remedy="it begins anew",
    content=ChangeHistory,
    version=VERSION,
    most_length=64 * MOST_BYTES,
)
