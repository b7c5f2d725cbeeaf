# SPDX-License-Identifier: Apache-2.0
"""Reads the agent's file of devices, which may be anything: the last good one of this boot counts.

The file and its folder must be root's and nobody else's to write, and the file no link, no pipe and
no device. Each reading opens the folder anew, since the agent may replace it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from api.device_exchange import (
    FILE_NAME,
    MOST_BYTES,
    DeviceExchange,
    ExchangeOfOtherBoot,
    UnknownExchangeVersion,
    read_exchange,
)
from base.errors import BadInput
from base.files import read_at_most

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH


class ExchangeState(StrEnum):
    """Whether the file could be used just now."""

    GOOD = "good"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"  # someone else than the agent could have written it
    OTHER_VERSION = "other-version"
    OTHER_BOOT = "other-boot"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeReading:
    """The devices to go by, and what the file was like just now."""

    state: ExchangeState
    why: str = ""
    """The problem, in one sentence; empty for a good file."""
    exchange: DeviceExchange | None = None
    """The last good content of this boot; None: there is none, so no device is known."""
    age_seconds: float | None = None
    """Time since the content was written: by the file's time when it was first seen, from then on
    by the reader's own clock."""


class ForeignFile(BadInput):
    """Someone else than the agent could have written the file."""


class ExchangeReader:
    """Keeps the last good content of the file. One thread."""

    def __init__(
        self,
        folder: Path,
        boot_id: str,
        *,
        owner: int = 0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``boot_id`` is the host's now; ``owner`` the user ID of the folder and the file.

        ``wall`` is Unix time, for the age of a file that was there before the reader.
        """
        self._wall = wall
        self._folder = folder
        self._boot_id = boot_id
        self._owner = owner
        self._content: DeviceExchange | None = None
        self._written_at = 0.0

    def read(self, now: float) -> ExchangeReading:
        """Read the file; ``now`` is monotonic. Raises nothing.

        A file that cannot be used leaves the last good one in force. A good one with an older
        generation or reading than the last is taken too: an agent begins anew where it lost its
        own file.
        """
        try:
            data, changed_at = self._bytes()
            content = read_exchange(data, self._boot_id)
        except (BadInput, OSError) as error:
            return self._reading(_state_of(error), _sentence(error), now)
        if content != self._content:
            self._content = content
            self._written_at = now - max(0.0, self._wall() - changed_at)
        return self._reading(ExchangeState.GOOD, "", now)

    def _reading(self, state: ExchangeState, why: str, now: float) -> ExchangeReading:
        return ExchangeReading(
            state=state,
            why=why,
            exchange=self._content,
            age_seconds=None if self._content is None else now - self._written_at,
        )

    def _bytes(self) -> tuple[bytes, float]:
        """The file's content and time of change. Raises OSError and ForeignFile."""
        folder = os.open(self._folder, _FOLDER)
        try:
            self._check_owner(os.fstat(folder), "folder")
            with os.fdopen(os.open(FILE_NAME, _FILE, dir_fd=folder), "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise ForeignFile("the agent's file of devices is no regular file")
                self._check_owner(status, "file")
                return read_at_most(file, MOST_BYTES + 1), status.st_mtime
        finally:
            os.close(folder)

    def _check_owner(self, status: os.stat_result, what: str) -> None:
        if status.st_uid != self._owner:
            raise ForeignFile(f"the exchange {what} belongs to user {status.st_uid}")
        if status.st_mode & _WRITERS:
            raise ForeignFile(f"others than the agent may write the exchange {what}")


def _state_of(error: BadInput | OSError) -> ExchangeState:
    match error:
        case FileNotFoundError():
            return ExchangeState.MISSING
        case OSError():  # O_NOFOLLOW: of a file, and of a folder with O_DIRECTORY
            is_other_kind = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
            return ExchangeState.FOREIGN if is_other_kind else ExchangeState.UNREADABLE
        case ForeignFile():
            return ExchangeState.FOREIGN
        case UnknownExchangeVersion():
            return ExchangeState.OTHER_VERSION
        case ExchangeOfOtherBoot():
            return ExchangeState.OTHER_BOOT
    return ExchangeState.DAMAGED


def _sentence(error: BadInput | OSError) -> str:
    if isinstance(error, OSError):
        return f"cannot read the agent's file of devices: {error.strerror}"
    return str(error)
