# SPDX-License-Identifier: Apache-2.0
"""The actuator's socket in a folder of its own, which nobody else may write to. Linux.

A program that could write to the folder could put its own socket there, and get the requests.
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
        """Listen at the path. Raises as :func:`listening_unix_socket`."""
        self._path = path
        self._open_to_all = open_to_all
        with contextlib.ExitStack() as undo:
            self._folder = undo.enter_context(_folder(path.parent))
            self.listener = self._bound(self._folder)
            """Accepts connections, and is non-blocking; another one after :meth:`bind_again`."""
            self._keeps_folder = undo.pop_all()

    def why_unreachable(self) -> str | None:
        """Why clients that connect at the path do not reach this process; None if they do."""
        try:
            status = self._path.stat(follow_symlinks=False)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        if not os.path.samestat(status, self._socket):
            return f"{self._path}: another file is in its place"
        return None

    def bind_again(self) -> socket.socket:
        """Listen at the path anew; the former listener, which the caller closes.

        Raises as :func:`listening_unix_socket`; then all stays as it was.
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
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            os.chmod(name, mode, dir_fd=folder)  # nobody can connect before it listens
            listener.listen(BACKLOG)
            undo.pop_all()
        self._socket = status
        return listener


@contextlib.contextmanager
def listening_unix_socket(path: Path, *, open_to_all: bool) -> Iterator[SocketPlace]:
    """The socket at ``path``, which accepts connections until the block ends.

    Only this process's user and root can connect; ``open_to_all``: everybody can, and the
    server has to check each client. The folder is made if it is missing. Raises BadInput where
    folder or path are not as they must be, and Transient where another process serves it.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise BadInput(f"socket: {path} is longer than {_LONGEST_PATH} bytes: name a shorter one")
    with contextlib.closing(SocketPlace(path, open_to_all=open_to_all)) as place:
        yield place


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    """The open folder, locked against other actuators until the block ends."""
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
        status = os.fstat(folder)
        if status.st_uid != os.geteuid():
            raise BadInput(f"socket: {path}: it belongs to another user, {status.st_uid}")
        if stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
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
    """Remove the socket of a process that died. Raises BadInput for any other file."""
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise BadInput(f"socket: {path}: a link or another file is in its place; remove it")
    os.unlink(path.name, dir_fd=folder)
