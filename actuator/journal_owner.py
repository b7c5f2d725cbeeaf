# SPDX-License-Identifier: Apache-2.0
"""The lock by which an actuator owns the journal's folder: no other program begins a change there.

It is in a second file, apart from the lock of each change, and also holds while no change runs.
The kernel drops it when the process ends, for whatever reason, and it holds across containers that
mount the same folder. Linux.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from actuator.journal import FILE_FLAGS, FOLDER_FLAGS, Journal, JournalBusy
from api import keys
from base.text.safe_text import short_line

OWNER: Final = "owner"
PATIENCE_SECONDS: Final = 2.0
"""Time for which an actuator tries to get the lock: a reader may have it for a moment too."""
_PAUSE_SECONDS: Final = 0.05
_MOST_BYTES: Final = 300


@contextlib.contextmanager
def owned(
    path: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Own the folder, made if it is missing, until the block ends.

    Raises JournalBusy where another actuator has it, and JournalUnusable as :class:`Journal`.
    """
    with Journal(path, lock=False) as journal:
        deadline = clock() + PATIENCE_SECONDS
        while (lock := journal.locked(OWNER)) is None:
            if clock() >= deadline:
                owner = owner_of(path) or "another program"
                raise JournalBusy(f"{path}: {owner} has it: only one actuator runs on a node")
            sleep(_PAUSE_SECONDS)
        try:
            with contextlib.suppress(OSError):  # on a full disk the lock holds without a name
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{_name()}\n".encode(), 0)
            yield
        finally:
            os.close(lock)


def owner_of(path: Path) -> str:
    """The actuator that owns the folder, for people; empty if none is known."""
    try:
        folder = os.open(path, FOLDER_FLAGS)
    except OSError:
        return ""
    try:
        file = os.open(OWNER, FILE_FLAGS, dir_fd=folder)
    except OSError:
        return ""
    finally:
        os.close(folder)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(file, _MOST_BYTES).decode("utf-8", "replace")
        return short_line(text, _MOST_BYTES) or "a gpuscape actuator"
    finally:
        os.close(file)
    return ""


def refuse_owned(path: Path) -> None:
    """Raise JournalBusy, with the fix, if an actuator owns the folder."""
    owner = owner_of(path)
    if owner:
        raise JournalBusy(
            f"{owner}, changes MIG on this node: annotate the Node with {keys.MIG_LAYOUT}, or stop"
            " the actuator's container first"
        )


def _name() -> str:
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"gpuscape actuator, process {os.getpid()} of {socket.gethostname()} since {since}"
