# SPDX-License-Identifier: Apache-2.0
"""Files that people name: their text within bounds, and what to do when one cannot be written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import sys
import time
from pathlib import Path
from typing import Final

from base.errors import BadInput

MOST_BYTES: Final = 1 << 20
"""Size of a file at most; a ConfigMap holds no more."""

PIPE_SECONDS: Final = 5.0
"""Time to read a named pipe to its end."""

_MENDS = {
    errno.ENOSPC: "free some space, or name another place",
    errno.EDQUOT: "free some space, or name another place",
    errno.EFBIG: "name another place",
    errno.EROFS: "name another place",
    errno.EACCES: "let this user write there, or name another place",
    errno.EPERM: "let this user write there, or name another place",
    errno.ENOENT: "create the folder, or name another place",
    errno.ENOTDIR: "name another place",
    errno.EISDIR: "name a file in it",
    errno.ENAMETOOLONG: "name another place",
    errno.EIO: "the kernel log says what is wrong with the device",
}

ONLY_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors that only writing has, never reading."""


def cannot_write(target: Path | str, error: OSError) -> str:
    """A sentence that names the target, the cause and, where it is known, the fix."""
    reason = error.strerror or str(error)
    mend = _MENDS.get(error.errno or 0)
    return f"cannot write {target}: {reason}" + (f": {mend}" if mend else "")


def why_not_private(folder: int) -> str:
    """Why an open folder is not this user's alone; empty where it is. Raises OSError."""
    # of the open folder: another one may be in the path's place by now
    status = os.fstat(folder)
    if status.st_uid != os.geteuid():
        return f"it belongs to another user, {status.st_uid}"
    others_write = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return "others may write to it; run chmod go-w on it" if others_write else ""


def replace_file(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file in one step: a reader gets the old or the new content, and all of it.

    Raises OSError; the old file is then untouched. The new one is made next to it, under a name
    that begins with a dot and that this process uses again.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def read_text(path: Path, kind: str = "", *, most_bytes: int = MOST_BYTES) -> str:
    """A file's text. Raises BadInput as :func:`read_bytes`, and for what is not UTF-8."""
    content = read_bytes(path, kind, most_bytes=most_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"cannot read {_name(path, kind)}: it is not UTF-8 text") from error


def read_bytes(
    path: Path, kind: str = "", *, most_bytes: int = MOST_BYTES, from_pipe: bool = True
) -> bytes:
    """A file's content; messages call it a ``kind``, such as "machine file".

    Raises BadInput that names the file where it cannot be read or is larger than ``most_bytes``. A
    named pipe is read to its end, as a shell's ``<(command)`` needs it, and refused where that
    does not come within PIPE_SECONDS; without ``from_pipe`` it is refused at once.
    """
    try:
        # without waiting for whoever opens the other end of a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                content = _from_pipe(descriptor, most_bytes + 1, PIPE_SECONDS if from_pipe else 0.0)
            else:
                content = read_at_most(file, most_bytes + 1)
    except TimeoutError as error:
        raise BadInput(
            f"cannot read {_name(path, kind)}: it is a named pipe, and its end does not come; name"
            " a file"
        ) from error
    except OSError as error:
        raise BadInput(f"cannot read {_name(path, kind)}: {error.strerror}") from error
    if len(content) > most_bytes:
        raise too_large(str(path), most_bytes)
    return content


def read_at_most(file: io.FileIO, most_bytes: int) -> bytes:
    """The content of an open file up to so many bytes. Raises OSError."""
    content = b""
    while len(content) < most_bytes and (data := file.read(most_bytes - len(content))):
        content += data
    return content


def _from_pipe(descriptor: int, most_bytes: int, seconds: float) -> bytes:
    """The content until the last writer closes its end. Raises TimeoutError where none does."""
    content, readable = b"", select.poll()
    readable.register(descriptor, select.POLLIN)
    ends = time.monotonic() + seconds
    while len(content) < most_bytes:
        if not readable.poll(max(0.0, ends - time.monotonic()) * 1000):
            raise TimeoutError
        data = os.read(descriptor, min(1 << 16, most_bytes - len(content)))
        if not data:
            break
        content += data
    if not content:
        raise TimeoutError
    return content


def read_stdin(*, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of standard input. Raises BadInput where it is larger than ``most_bytes``."""
    content = sys.stdin.buffer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise too_large("standard input", most_bytes)
    return content


def _name(path: Path, kind: str) -> str:
    return f"the {kind} {path}" if kind else str(path)


def too_large(file: str, most_bytes: int) -> BadInput:
    """The error for a file of more than so many bytes."""
    return BadInput(f"{file}: larger than {most_bytes >> 20} MiB: is it the right file?")
