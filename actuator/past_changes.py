# SPDX-License-Identifier: Apache-2.0
"""What the journal's folder has about changes, for people. Nothing is locked or made.

The journal puts whole files in the place of others, so what is read here is whole as well, even
while a change goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from actuator.change_record import HELD, HISTORY, JOURNAL, ChangeRecord
from actuator.journal import CHANGE, HELD_BACK, PAST, SEEN
from actuator.verified_layouts import VERIFIED
from api.versioned import VersionedFormat
from base.errors import BadInput, Permanent
from base.files import read_bytes

JOURNAL_FOLDER: Final = Path("/var/lib/gpuscape/mig")
"""Where a node keeps its journal, unless another place is named."""

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChanges:
    """The changes of a node."""

    unended: tuple[ChangeRecord, ...]
    """Those that are held, then the one that goes on or was stopped."""
    ended: tuple[ChangeRecord, ...]
    """The newest last."""
    remembers: bool
    """Whether there are layouts that come back after a reboot."""
    remembered: tuple[str, ...] = ()
    """UUIDs of their GPUs."""


def past_changes(folder: Path) -> PastChanges | None:
    """What a journal's folder has; None where there is no such folder.

    Raises Permanent where a file cannot be read, is damaged, or is of another version.
    """
    if not folder.is_dir():
        return None
    last = _read(folder / CHANGE, JOURNAL)
    held = _read(folder / HELD_BACK, HELD)
    history = _read(folder / PAST, HISTORY)
    before = () if held is None else held.changes
    return PastChanges(
        unended=before
        if last is None
        else (*(one for one in before if one.change != last.change), last),
        ended=() if history is None else history.changes,
        remembers=(folder / SEEN).exists(),
        remembered=_remembered(folder / SEEN),
    )


def _remembered(file: Path) -> tuple[str, ...]:
    """None where the file is damaged: the journal takes it for empty, too."""
    try:
        found = _read(file, VERIFIED)
    except Permanent:
        return ()
    return () if found is None else tuple(sorted(found.gpus))


def _read(file: Path, form: VersionedFormat[T]) -> T | None:
    """None where there is no file."""
    try:
        if not file.exists():
            return None
        found = form.decode(read_bytes(file, most_bytes=form.most_length))
    except PermissionError as error:
        raise Permanent(f"cannot read {file}: {error.strerror}: run this as root") from error
    except BadInput as error:
        raise Permanent(f"{file}: {error}") from error
    if found is None:
        raise Permanent(f"{file}: written by another version of gpuscape; ask that one")
    return found
