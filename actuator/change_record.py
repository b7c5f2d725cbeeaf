# SPDX-License-Identifier: Apache-2.0
"""A change of MIG layouts as the journal keeps it, schema version 1. Pure."""

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
    """Direction of a change: to the desired layouts, or back."""

    FORWARD = "forward"
    """To the desired layouts."""
    BACK = "back"
    """To the previous layouts."""


class ChangeOutcome(StrEnum):
    """How a change ended; there is no other way."""

    APPLIED = "applied"
    """Every GPU has its desired layout."""
    PREVIOUS = "previous"
    """Every GPU has its previous layout."""
    HELD = "held"
    """Some GPUs could reach neither: their idle instances are destroyed, and a person decides.
    The other GPUs have their previous layout."""


class GpuName(msgspec.Struct, frozen=True, kw_only=True):
    """Index and bus id of a GPU when a change began: a lost GPU reports neither."""

    index: int
    bus_id: str
    """Normalised."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a change that must outlive the process: desired and previous layouts.

    Never how far the change is: only the driver knows.
    """

    v: int
    change: str
    """Identifies the change; unique on this node."""
    asked: str
    """Origin of the layouts, for people: ``all-1g.10gb of config.yaml``."""
    started: str
    """Start time in RFC 3339, for people."""
    boot: str
    """The kernel's boot id when it began."""
    wanted: dict[str, GpuLayout]
    """Desired layouts of the affected GPUs by UUID, each instance at its place by the plan. So kept
    instances come back where their pods expect them, also after a reboot in the middle."""
    previous: dict[str, GpuLayout]
    """Previous layouts of the same GPUs, each instance at its place."""
    direction: Direction = Direction.FORWARD
    reason: str = ""
    """Why the change goes back, or is held."""
    outcome: ChangeOutcome | None = None
    """None while the change goes on; in the journal only held changes have an outcome."""
    stuck: tuple[str, ...] = ()
    """UUIDs of the stuck GPUs of a held change: the others have their previous layout.
    Empty if it was held by a version that did not record them."""
    given_up: dict[str, GpuLayout] = {}
    """UUID to previous layout of the GPUs that a person has taken out of the change."""
    gpus: dict[str, GpuName] = {}
    """Names of the affected GPUs by UUID."""

    @property
    def concerns(self) -> frozenset[str]:
        """UUIDs of the GPUs that the change still affects: of a held change the stuck ones."""
        is_held = self.outcome is ChangeOutcome.HELD
        return frozenset((is_held and self.stuck) or self.wanted)

    def without(self, gpus: Collection[str]) -> ChangeRecord:
        """The change with these GPUs given up."""
        gone = {uuid: layout for uuid, layout in self.previous.items() if uuid in gpus}
        reasons = (self.reason, f"given up: {', '.join(sorted(gone))}")
        return msgspec.structs.replace(
            self,
            wanted={uuid: layout for uuid, layout in self.wanted.items() if uuid not in gone},
            previous={uuid: layout for uuid, layout in self.previous.items() if uuid not in gone},
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
        if any(instance.start < 0 for instance in layout.instances):
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
    faults=lambda held: (fault for record in held.changes for fault in _faults(record)),
)
HISTORY = VersionedFormat(
    name="the history of MIG changes",
    remedy="it begins anew",
    content=ChangeHistory,
    version=VERSION,
    most_length=64 * MOST_BYTES,
)
