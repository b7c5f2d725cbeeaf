# SPDX-License-Identifier: Apache-2.0
"""The actuator has the journal's folder for its whole life: nobody else begins a change there.

That is a lock of its own, in a second file, apart from the one that each change takes: it holds
while no change runs too. The kernel drops it with the process, however that ends, and it holds
across containers that mount the same folder. Linux.
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

from actuator.journal import Journal, JournalBusy
from api import keys
from base.text.safe_text import short_line

OWNER: Final = "owner"
PATIENCE_SECONDS: Final = 2.0
"""That an actuator tries at its start: who only looks has the lock for a moment too."""
_PAUSE_SECONDS: Final = 0.05
_MOST_BYTES: Final = 300
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def owned(
    path: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Have the folder, made if it is missing, until the block ends.

    Raises JournalBusy where another actuator has it, and JournalUnusable as :class:`Journal`.
    """
    with Journal(path, lock=False) as journal:
        last = clock() + PATIENCE_SECONDS
        while (lock := journal.locked(OWNER)) is None:
            if clock() >= last:
                who = owner_of(path) or "another program"
                raise JournalBusy(f"{path}: {who} has it: only one actuator runs on a node")
            sleep(_PAUSE_SECONDS)
        try:
            with contextlib.suppress(OSError):  # on a full disk the lock holds without a name
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{_name()}\n".encode(), 0)
            yield
        finally:
            os.close(lock)


def owner_of(path: Path) -> str:
    """Who has the folder, in words for people; empty where nobody has it, or it may not be read."""
    try:
        folder = os.open(path, _FOLDER)
    except OSError:
        return ""
    try:
        file = os.open(OWNER, _READ, dir_fd=folder)
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
    """Raises JournalBusy, with the way to go, where an actuator has the folder."""
    who = owner_of(path)
    if who:
        raise JournalBusy(
            f"{who}, changes MIG on this node: annotate the Node with {keys.MIG_LAYOUT}, or stop"
            " the actuator's container first"
        )


def _name() -> str:
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"gpuscape actuator, process {os.getpid()} of {socket.gethostname()} since {since}"
