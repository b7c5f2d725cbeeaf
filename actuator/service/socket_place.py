# SPDX-License-Identifier: Apache-2.0
"""The actuator's socket in a folder of its own, which nobody else may write to. Linux.

Whoever could write to the folder could put a socket of his own there, and be asked in our place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from base.errors import BadInput, Transient
from base.files import cannot_write

BACKLOG: Final = 128
_LONGEST_PATH: Final = 107
"""Bytes that an address has room for. Source: unix(7)."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def listening(path: Path, *, open_to_all: bool) -> Iterator[socket.socket]:
    """The socket at ``path``, which accepts connections until the block ends.

    Only this process's user and root can connect; ``open_to_all``: everybody can, and whoever
    serves it has to look who it is. The folder is made if it is missing. Raises BadInput where
    folder or path are not as they must be, and Transient where another process serves it.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise BadInput(f"socket: {path} is longer than {_LONGEST_PATH} bytes: name a shorter one")
    with _folder(path.parent) as folder:
        _clear(path, folder)
        os.fchmod(folder, 0o711 if open_to_all else 0o700)
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        ) as listener:
            # below the open folder: nobody can put another one in between
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            try:
                mode = 0o666 if open_to_all else 0o600
                os.chmod(path.name, mode, dir_fd=folder)  # nobody can connect before it listens
                listener.listen(BACKLOG)
                yield listener
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path.name, dir_fd=folder)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    """The open folder, which no other process that comes this way has meanwhile."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path, _FOLDER)
    except OSError as error:
        if path.is_symlink() or isinstance(error, NotADirectoryError | FileExistsError):
            raise BadInput(
                f"socket: {path}: a link or another file is in its place; name a folder"
            ) from error
        raise BadInput(f"socket: {cannot_write(path, error)}") from error
    try:
        facts = os.fstat(folder)
        if facts.st_uid != os.geteuid():
            raise BadInput(f"socket: {path}: it belongs to another user, {facts.st_uid}")
        if stat.S_IMODE(facts.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            raise BadInput(
                f"socket: {path}: others may write to it; run chmod go-w on it, or name a folder"
                " that is not there yet"
            )
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    except BlockingIOError as error:
        raise Transient(f"socket: {path}: another actuator serves it") from error
    finally:
        os.close(folder)


def _clear(path: Path, folder: int) -> None:
    """Remove the socket of a process that died. Raises BadInput for all else."""
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise BadInput(f"socket: {path}: a link or another file is in its place; remove it")
    os.unlink(path.name, dir_fd=folder)
