# SPDX-License-Identifier: Apache-2.0
"""A change of MIG layouts as the journal keeps it: an entry for each GPU, version 2. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from api.mig_mode_change import NO_FALLBACK, ModeChange, ResetFallback
from api.mig_outcome import GpuOutcome, Outcome, joint_outcome
from api.versioned import VersionedFormat
from mig.gpu_layout import GpuLayout
from mig.mode_permission import ModePermission

VERSION: Final = 2
MOST_PAST: Final = 50
"""Ended changes that the history keeps at most."""


class Direction(StrEnum):
    """Direction of a change: to the desired layout, or back."""

    FORWARD = "forward"
    """To the desired layout."""
    BACK = "back"
    """To the previous layout."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a change on one GPU that must outlive the process.

    Never how far the change is: only the driver knows.
    """

    change: str
    """Identifies the request: its GPUs have an entry each; unique on this node."""
    origin: str
    """Origin of the layouts, for people: ``all-1g.10gb of config.yaml``."""
    started: str
    """Start time of the request in RFC 3339, for people."""
    boot: str
    """The kernel's boot id when it began."""
    gpu: str
    """UUID."""
    index: int
    """Index of the GPU when the change began: a lost GPU reports none."""
    bus_id: str
    """Bus id of the GPU when the change began, normalised."""
    desired: GpuLayout
    """Desired layout, each instance at its place by the plan. So kept instances come back where
    their pods expect them, also after a reboot in the middle."""
    previous: GpuLayout
    """Previous layout, each instance at its place."""
    direction: Direction = Direction.FORWARD
    reason: str = ""
    """Why the change goes back, or is stuck."""
    outcome: Outcome | None = None
    """None while the change goes on; stuck until a person has ended it."""
    hung: bool = False
    """The change is stuck since a call of the driver did not return: only a restore calls it for
    this GPU again."""
    given_up: bool = False
    """A person has ended the change on this GPU, which has neither layout."""
    mode_change: ModeChange = ModeChange.OFF
    """What the change may do about a mode that needs a reset, whichever process goes on with it."""
    fallback: ResetFallback = NO_FALLBACK
    """What may follow where the driver makes no such reset."""
    reset: bool = False
    """nvidia-smi was started to reset the GPU, or was about to be: once for a change."""
    boot_asked: str = ""
    """The kernel's boot id when a boot was asked for, which brings the mode: once for a change."""
    asked_at: str = ""
    """When that was, in RFC 3339."""

    @property
    def key(self) -> tuple[str, str]:
        """Request and GPU, which identify the entry."""
        return self.change, self.gpu

    @property
    def modes(self) -> ModePermission:
        """Permission for a reset. A mode that waits is its own where it switches the mode: no
        change begins while another one waits on its GPU."""
        switches = self.desired.mig != self.previous.mig
        is_allowed = switches and self.mode_change is not ModeChange.OFF
        begun = frozenset({self.gpu} if is_allowed else ())
        return ModePermission(by=self.mode_change, fallback=self.fallback, begun=begun)


class ChangeRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of changes, the newest last."""

    v: int = VERSION
    changes: tuple[ChangeRecord, ...]


@dataclass(frozen=True, slots=True)
class RecordedChanges:
    """The entries of a journal."""

    unended: tuple[ChangeRecord, ...] = ()
    """Open and stuck entries, the newest last; no GPU has two of them."""
    ended: tuple[ChangeRecord, ...] = ()
    """Entries of the history, the newest last."""

    @classmethod
    def read(
        cls, unended: Iterable[ChangeRecord], ended: tuple[ChangeRecord, ...]
    ) -> RecordedChanges:
        """An entry in the history has ended, also where its process died before the end of it.

        Ending it again could give another outcome.
        """
        past = {record.key for record in ended}
        return cls(tuple(record for record in unended if record.key not in past), ended)

    def of(self, change: str) -> tuple[ChangeRecord, ...]:
        """The entries of a request, ended or not."""
        return tuple(record for record in (*self.ended, *self.unended) if record.change == change)

    def on(self, gpus: Collection[str]) -> tuple[ChangeRecord, ...]:
        """The entries of these GPUs that have not ended."""
        return tuple(record for record in self.unended if record.gpu in gpus)


def by_request(records: Iterable[ChangeRecord]) -> tuple[tuple[ChangeRecord, ...], ...]:
    """Entries by request, each in the order of the GPUs; requests by their newest entry."""
    requests: dict[str, list[ChangeRecord]] = {}
    for record in records:
        requests[record.change] = [*requests.pop(record.change, ()), record]
    return tuple(
        tuple(sorted(entries, key=lambda record: record.index)) for entries in requests.values()
    )


def request_outcome(records: Sequence[ChangeRecord]) -> Outcome | None:
    """The worst outcome of a request's GPUs; None while its change goes on on one of them."""
    is_open = any(record.outcome is None for record in records)
    return None if is_open else joint_outcome(gpu_outcomes(records))


def newest_requests(records: Sequence[ChangeRecord]) -> tuple[ChangeRecord, ...]:
    """The entries of the newest requests, as many as the history keeps."""
    kept = {entries[0].change for entries in by_request(records)[-MOST_PAST:]}
    return tuple(record for record in records if record.change in kept)


def gpu_outcomes(
    records: Iterable[ChangeRecord], desired: Collection[str] = ()
) -> tuple[GpuOutcome, ...]:
    """How a request ended on each of its GPUs, without those on which it goes on.

    ``desired``: UUIDs of the request's GPUs; those without an entry had the layout already.
    """
    ordered = sorted(records, key=lambda record: record.index)
    rest = sorted(set(desired) - {record.gpu for record in ordered})
    return (
        *(
            GpuOutcome(
                gpu=record.gpu, outcome=record.outcome, reason=record.reason, index=record.index
            )
            for record in ordered
            if record.outcome is not None
        ),
        *(GpuOutcome(gpu=gpu, outcome=Outcome.UNCHANGED) for gpu in rest),
    )


def _faults(records: ChangeRecords) -> Iterator[str]:
    for record in records.changes:
        if any(instance.start < 0 for instance in record.previous.instances):
            yield f"previous of {record.gpu}: an instance has no place"


JOURNAL: Final = VersionedFormat(
    name="the journal of MIG changes",
    remedy="compare the GPUs with the desired layout, and remove the file",
    content=ChangeRecords,
    version=VERSION,
    most_length=1 << 20,
    faults=_faults,
)
"""Sixty-four GPUs with seven instances each take 200 KiB."""
HISTORY: Final = VersionedFormat(
    name="the history of MIG changes",
    remedy="it begins anew",
    content=ChangeRecords,
    version=VERSION,
    most_length=MOST_PAST << 20,
)
