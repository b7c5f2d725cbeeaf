# SPDX-License-Identifier: Apache-2.0
"""Advisories that somebody has judged and accepts for a while: requirements/advisories.toml."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from base.errors import BadInput

Text = Annotated[str, msgspec.Meta(min_length=1)]


class AcceptedAdvisory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An advisory that does not fail the comparison, up to a day."""

    id: Text
    """Or an alias of it, such as its CVE."""
    reason: Text
    until: datetime.date
    """The last day."""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    accepted: tuple[AcceptedAdvisory, ...]


def read_accepted(path: Path) -> tuple[AcceptedAdvisory, ...]:
    """The file's entries. Raises BadInput naming the file and the key."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_File).accepted
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}: {error}; an entry has id, reason and until, a date") from error
