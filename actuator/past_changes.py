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

from actuator.change_record import HISTORY, JOURNAL, ChangeRecord
from actuator.journal import CHANGE, PAST, SEEN
from api.versioned import VersionedFormat
from base.errors import BadInput, Permanent
from base.files import read_bytes

JOURNAL_FOLDER: Final = Path("/var/lib/gpuscape/mig")
"""Where a node keeps its journal, unless another place is named."""

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChanges:
    """The changes of a node."""

    unended: ChangeRecord | None
    """The one that goes on, was stopped, or is held."""
    ended: tuple[ChangeRecord, ...]
    """The newest last."""
    remembers: bool
    """Whether there are layouts that come back after a reboot."""


def past_changes(folder: Path) -> PastChanges | None:
    """What a journal's folder has; None where there is no such folder.

    Raises Permanent where a file cannot be read, is damaged, or is of another version.
    """
    if not folder.is_dir():
        return None
    unended = _read(folder / CHANGE, JOURNAL)
    history = _read(folder / PAST, HISTORY)
    return PastChanges(
        unended=unended,
        ended=() if history is None else history.changes,
        remembers=(folder / SEEN).exists(),
    )


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
