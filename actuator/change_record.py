# SPDX-License-Identifier: Apache-2.0
"""A change of MIG layouts as the journal keeps it, schema version 2. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum

import msgspec

from api.mig_outcome import Outcome
from api.versioned import VersionedFormat
from mig.gpu_layout import GpuLayout

VERSION = 2
MOST_BYTES = 1 << 18
"""Sixteen GPUs with seven instances each take 30 KiB."""


class Direction(StrEnum):
    """Direction of a change: to the desired layouts, or back."""

    FORWARD = "forward"
    """To the desired layouts."""
    BACK = "back"
    """To the previous layouts."""


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
    origin: str
    """Origin of the layouts, for people: ``all-1g.10gb of config.yaml``."""
    started: str
    """Start time in RFC 3339, for people."""
    boot: str
    """The kernel's boot id when it began."""
    desired: dict[str, GpuLayout]
    """Desired layouts of the affected GPUs by UUID, each instance at its place by the plan. So kept
    instances come back where their pods expect them, also after a reboot in the middle."""
    previous: dict[str, GpuLayout]
    """Previous layouts of the same GPUs, each instance at its place."""
    direction: Direction = Direction.FORWARD
    reason: str = ""
    """Why the change goes back, or is stuck."""
    outcome: Outcome | None = None
    """None while the change goes on; in the journal only stuck changes have an outcome."""
    stuck: tuple[str, ...] = ()
    """UUIDs of the stuck GPUs of a stuck change: the others have their previous layout."""
    given_up: dict[str, GpuLayout] = {}
    """UUID to previous layout of the GPUs that a person has taken out of the change."""
    gpus: dict[str, GpuName] = {}
    """Names of the affected GPUs by UUID."""

    @property
    def concerns(self) -> frozenset[str]:
        """UUIDs of the GPUs that the change still affects: of a stuck change the stuck ones."""
        is_stuck = self.outcome is Outcome.STUCK
        return frozenset((is_stuck and self.stuck) or self.desired)

    def without(self, gpus: Collection[str]) -> ChangeRecord:
        """The change with these GPUs given up."""
        gone = {uuid: layout for uuid, layout in self.previous.items() if uuid in gpus}
        reasons = (self.reason, f"given up: {', '.join(sorted(gone))}")
        return msgspec.structs.replace(
            self,
            desired={uuid: layout for uuid, layout in self.desired.items() if uuid not in gone},
            previous={uuid: layout for uuid, layout in self.previous.items() if uuid not in gone},
            stuck=tuple(uuid for uuid in self.stuck if uuid not in gone),
            given_up=self.given_up | gone,
            reason="; ".join(filter(None, reasons)),
        )


class StuckChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that are stuck, the newest last; no GPU has two of them."""

    v: int
    changes: tuple[ChangeRecord, ...] = ()


class ChangeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that have ended, the newest last."""

    v: int
    changes: tuple[ChangeRecord, ...] = ()


def _faults(record: ChangeRecord) -> Iterator[str]:
    if record.desired.keys() != record.previous.keys():
        yield "desired and previous: they name other GPUs"
    if not record.desired:
        yield "desired: no GPU"
    for uuid, layout in record.previous.items():
        if any(instance.start < 0 for instance in layout.instances):
            yield f"previous.{uuid}: an instance has no place"


JOURNAL = VersionedFormat(
    name="the journal of MIG changes",
    remedy="compare the GPUs with the desired layout, and remove the file",
    content=ChangeRecord,
    version=VERSION,
    most_length=MOST_BYTES,
    faults=_faults,
)
STUCK = VersionedFormat(
    name="the list of stuck MIG changes",
    remedy="compare the GPUs with the desired layout, and remove the file",
    content=StuckChanges,
    version=VERSION,
    most_length=16 * MOST_BYTES,
    faults=lambda stuck: (fault for record in stuck.changes for fault in _faults(record)),
)
HISTORY = VersionedFormat(
    name="the history of MIG changes",
    remedy="it begins anew",
    content=ChangeHistory,
    version=VERSION,
    most_length=64 * MOST_BYTES,
)
