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


class SocketPlace:
    """The socket at a path, which can be bound anew where somebody removes it. One thread."""

    def __init__(self, path: Path, *, open_to_all: bool) -> None:
        """Listen. Raises as :func:`listening`."""
        self._path = path
        self._open_to_all = open_to_all
        with contextlib.ExitStack() as undo:
            self._folder = undo.enter_context(_folder(path.parent))
            self.listener = self._bound(self._folder)
            """Accepts connections, and is non-blocking; another one after :meth:`bind_again`."""
            self._keeps_folder = undo.pop_all()

    def why_unreachable(self) -> str | None:
        """Why nobody who connects at the path reaches this process; None where they do."""
        try:
            found = self._path.stat(follow_symlinks=False)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        if not os.path.samestat(found, self._socket):
            return f"{self._path}: another file is in its place"
        return None

    def bind_again(self) -> socket.socket:
        """Listen at the path anew; the former listener, which the caller closes.

        Raises as :func:`listening`; then all stays as it was.
        """
        former = self.listener
        if self._has_folder():
            self.listener = self._bound(self._folder)
            return former
        with contextlib.ExitStack() as undo:
            folder = undo.enter_context(_folder(self._path.parent))
            self.listener = self._bound(folder)
            self._keeps_folder.close()
            self._folder, self._keeps_folder = folder, undo.pop_all()
        return former

    def close(self) -> None:
        """Listen no longer, and remove the socket."""
        self.listener.close()
        if self._has_folder() and self.why_unreachable() is None:
            with contextlib.suppress(OSError):
                os.unlink(self._path.name, dir_fd=self._folder)
        self._keeps_folder.close()

    def _has_folder(self) -> bool:
        """Whether the folder at the path is the one that is open here, and locked."""
        with contextlib.suppress(OSError):
            return os.path.samestat(
                self._path.parent.stat(follow_symlinks=False), os.fstat(self._folder)
            )
        return False

    def _bound(self, folder: int) -> socket.socket:
        """A new listener in this folder; what else has the socket's name there must be a socket."""
        _clear(self._path, folder)
        os.fchmod(folder, 0o711 if self._open_to_all else 0o700)
        name, mode = self._path.name, 0o666 if self._open_to_all else 0o600
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(
                socket.socket(
                    socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                )
            )
            # below the open folder: nobody can put another one in between
            listener.bind(f"/proc/self/fd/{folder}/{name}")
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            os.chmod(name, mode, dir_fd=folder)  # nobody can connect before it listens
            listener.listen(BACKLOG)
            undo.pop_all()
        self._socket = found
        return listener


@contextlib.contextmanager
def listening(path: Path, *, open_to_all: bool) -> Iterator[SocketPlace]:
    """The socket at ``path``, which accepts connections until the block ends.

    Only this process's user and root can connect; ``open_to_all``: everybody can, and whoever
    serves it has to look who it is. The folder is made if it is missing. Raises BadInput where
    folder or path are not as they must be, and Transient where another process serves it.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise BadInput(f"socket: {path} is longer than {_LONGEST_PATH} bytes: name a shorter one")
    with contextlib.closing(SocketPlace(path, open_to_all=open_to_all)) as place:
        yield place


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
