# SPDX-License-Identifier: Apache-2.0
"""Reads the changes in the journal's folder, for people. Nothing is locked or created.

The journal replaces whole files, so each file is whole here too, even while a change goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from actuator.change_record import HISTORY, JOURNAL, RecordedChanges
from actuator.journal import CHANGE, PAST, SEEN
from actuator.verified_layouts import VERIFIED
from api.versioned import VersionedFormat
from base.errors import BadInput, Permanent
from base.files import read_bytes

JOURNAL_FOLDER: Final = Path("/var/lib/gpuscape/mig")
"""Default folder of a node's journal."""

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChanges(RecordedChanges):
    """The changes of a node, a GPU each."""

    remembers: bool
    """Whether there are layouts that come back after a reboot."""
    remembered: tuple[str, ...] = ()
    """UUIDs of the GPUs with such layouts."""


def past_changes(folder: Path) -> PastChanges:
    """The changes in a journal's folder; none if there is no such folder.

    Raises Permanent where a file cannot be read, is damaged, or is of another version.
    """
    # in this order: a change that ends meanwhile is then in at least one of them
    unended, history = _read(folder / CHANGE, JOURNAL), _read(folder / PAST, HISTORY)
    recorded = RecordedChanges.read(
        () if unended is None else unended.changes, () if history is None else history.changes
    )
    remembers, remembered = (folder / SEEN).exists(), _remembered(folder / SEEN)
    return PastChanges(recorded.unended, recorded.ended, remembers=remembers, remembered=remembered)


def _remembered(file: Path) -> tuple[str, ...]:
    """UUIDs of verified layouts; none if the file is damaged, as in the journal."""
    try:
        verified = _read(file, VERIFIED)
    except Permanent:
        return ()
    return () if verified is None else tuple(sorted(verified.gpus))


def _read(file: Path, form: VersionedFormat[T]) -> T | None:
    """Content of a file of the journal; None if there is no file."""
    try:
        if not file.exists():
            return None
        content = form.decode(read_bytes(file, most_bytes=form.most_length))
    except PermissionError as error:
        raise Permanent(f"cannot read {file}: {error.strerror}: run this as root") from error
    except BadInput as error:
        raise Permanent(f"{file}: {error}") from error
    if content is None:
        raise Permanent(f"{file}: written by another version of gpuscape; ask that one")
    return content
