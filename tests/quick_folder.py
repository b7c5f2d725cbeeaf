# SPDX-License-Identifier: Apache-2.0
"""Where a run of the tests writes: in memory, where the machine has a file system for that.

A simulated machine is up to 3,000 small files, and a run makes thousands of machines; on a disk
that is a third of its processor time, and gigabytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_PREFIX: Final = "gs-tests-"
"""Short: below it are sockets, whose paths end at 107 bytes."""
_ROOM_BYTES: Final = 8 << 30
"""What must be free there; a run needs less than half of it."""
_FORBIDDEN: Final = os.ST_NOEXEC | os.ST_NODEV
"""Tests start programs from there and make device nodes."""


@dataclass
class QuickFolder:
    """A run's folder; ``keep`` leaves it for people to look into, until the next run."""

    path: Path
    keep: bool = False


@contextmanager
def quick_folder(memory: Path = MEMORY) -> Iterator[QuickFolder]:
    """Make a run's folder, and remove those of runs that have ended."""
    place = memory if _is_fit(memory) else Path(tempfile.gettempdir())
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left)
    folder = QuickFolder(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place)))
    folder.path.chmod(0o1777)  # it is a run's /tmp, for every user that a test becomes
    with _locked(folder.path):
        yield folder
        if not folder.keep:
            shutil.rmtree(folder.path, ignore_errors=True)


def _is_fit(memory: Path) -> bool:
    try:
        status = os.statvfs(memory)
    except OSError:
        return False
    free = status.f_bavail * status.f_frsize
    return free >= _ROOM_BYTES and not status.f_flag & _FORBIDDEN and os.access(memory, os.W_OK)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError where another run holds it."""
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)
