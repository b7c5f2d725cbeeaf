# SPDX-License-Identifier: Apache-2.0
"""The folder that keeps changes of MIG layouts, however the process ends. POSIX files.

When :meth:`Journal.write` returns, its content is on the disk. One process has the folder at a
time. The folder must belong to this user alone: whoever can write to it decides the layouts that
GPUs are rolled back to. So a folder that others may write to, or a link in the place of a file, is
refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from actuator.change_record import (
    HISTORY,
    JOURNAL,
    STUCK,
    VERSION,
    ChangeHistory,
    ChangeRecord,
    StuckChanges,
)
from actuator.verified_layouts import VERIFIED, VerifiedLayout, VerifiedLayouts
from api.versioned import VersionedFormat
from base.errors import BadInput, Permanent, Transient
from base.files import cannot_write

log = logging.getLogger(__name__)

CHANGE: Final = "change.json"
STUCK_FILE: Final = "stuck.json"
FORMER_STUCK_FILE: Final = "held.json"
PAST: Final = "history.json"
SEEN: Final = "verified.json"
LOCK: Final = "lock"
MOST_PAST: Final = 50
"""Ended changes that the history keeps at most."""

T = TypeVar("T", bound=msgspec.Struct)

# O_NONBLOCK: to open a named pipe in the place of a file would wait for its writer
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class JournalBusy(Transient):
    """Another process has the journal."""


class JournalUnusable(Permanent):
    """The journal cannot be trusted or kept; nothing may be changed."""


class Journal:
    """The open and locked folder of changes."""

    def __init__(self, path: Path, *, lock: bool = True) -> None:
        """Open the folder, made if it is missing, and lock it.

        Without the lock it can be read while another process writes to it: each file is there
        whole, and no method that writes may be called.
        Raises JournalBusy, and JournalUnusable where it cannot be made, is a link, or is not this
        user's alone.
        """
        self.path = path
        with _as_unusable(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._folder = os.open(path, flags)
        try:
            self._check_owner()
            self._lock = self._own_lock() if lock else None
        except BaseException:
            os.close(self._folder)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder and its lock."""
        if self._lock is not None:
            os.close(self._lock)
        os.close(self._folder)

    def need_no_change(self, gpus: Collection[str]) -> None:
        """Check that no change is open, and that none is stuck on these GPUs.

        Raises JournalUnusable if there is one, and as :meth:`load`.
        """
        unended = self.load()
        if unended is not None:
            raise JournalUnusable(
                f"{self.path}: the change to {unended.origin} has not ended;"
                " run gpuscape mig restore"
            )
        for record in self.stuck_changes():
            stuck = ", ".join(sorted(record.concerns.intersection(gpus)))
            if stuck:
                raise JournalUnusable(
                    f"{self.path}: the change to {record.origin} is stuck on GPU {stuck};"
                    " run gpuscape mig restore, or give the GPU up with --give-up"
                )

    def load(self) -> ChangeRecord | None:
        """The open change: it goes on, or was interrupted; None if there is none.

        A change in the history has ended, also where its process died before this file was gone:
        ending it again could give another outcome. Raises JournalUnusable if it is damaged or of a
        newer version: nothing is guessed.
        """
        record = self._last_written()
        if record is None or self._has_ended(record):
            return None
        return record

    def stuck_changes(self) -> tuple[ChangeRecord, ...]:
        """The stuck changes, each on GPUs of its own. Raises as :meth:`load`."""
        if self._read(FORMER_STUCK_FILE, STUCK.most_length) is not None:
            raise JournalUnusable(
                f"{self.path / FORMER_STUCK_FILE}: a version before 0.1.0 left a stuck change; end"
                " it with that version, or remove the file"
            )
        stored = self._decoded(STUCK_FILE, STUCK)
        changes = () if stored is None else stored.changes
        return tuple(record for record in changes if not self._has_ended(record))

    def write(self, record: ChangeRecord) -> None:
        """Store the open change in place of the one before. Raises JournalUnusable."""
        self._replace(CHANGE, JOURNAL.encode(record))

    def keep_stuck(self, record: ChangeRecord) -> None:
        """Keep a stuck change, apart from the next one. Raises JournalUnusable.

        A process that dies in between finds it open, and keeps it again.
        """
        self._write_stuck(
            (*(other for other in self.stuck_changes() if other.change != record.change), record)
        )
        self._end_open(record)

    def end(self, record: ChangeRecord) -> None:
        """Move a change that has ended to the history. Raises JournalUnusable.

        Once the history has it, it has ended, whatever a process that dies leaves in other files.
        """
        earlier = tuple(ended for ended in self.history() if ended.change != record.change)
        past = ChangeHistory(v=VERSION, changes=(*earlier, record)[-MOST_PAST:])
        self._replace(PAST, HISTORY.encode(past))
        self._write_stuck(self.stuck_changes())
        self._end_open(record)

    def _has_ended(self, record: ChangeRecord) -> bool:
        return any(ended.change == record.change for ended in self.history())

    def _end_open(self, record: ChangeRecord) -> None:
        """Remove the open change, if it is this one."""
        last = self._last_written()
        if last is None or last.change != record.change:
            return
        with _as_unusable(self.path / CHANGE), contextlib.suppress(FileNotFoundError):
            os.unlink(CHANGE, dir_fd=self._folder)
            os.fsync(self._folder)

    def _write_stuck(self, changes: tuple[ChangeRecord, ...]) -> None:
        if changes:
            return self._replace(STUCK_FILE, STUCK.encode(StuckChanges(v=VERSION, changes=changes)))
        with _as_unusable(self.path / STUCK_FILE), contextlib.suppress(FileNotFoundError):
            os.unlink(STUCK_FILE, dir_fd=self._folder)
            os.fsync(self._folder)
        return None

    def _last_written(self) -> ChangeRecord | None:
        return self._decoded(CHANGE, JOURNAL)

    def _decoded(self, name: str, form: VersionedFormat[T]) -> T | None:
        """The content of a file; None if there is no file. Raises JournalUnusable."""
        content = self._read(name, form.most_length)
        if content is None:
            return None
        try:
            decoded = form.decode(content)
        except BadInput as error:
            raise JournalUnusable(f"{self.path / name}: {error}") from error
        if decoded is None:
            raise JournalUnusable(
                f"{self.path / name}: another version of gpuscape began this change; run that one"
            )
        return decoded

    def history(self) -> tuple[ChangeRecord, ...]:
        """The changes that have ended, the newest last; a damaged history is none."""
        content = self._read(PAST, HISTORY.most_length)
        try:
            stored = None if content is None else HISTORY.decode(content)
        except BadInput:
            stored = None
        return () if stored is None else stored.changes

    def verified(self) -> Mapping[str, VerifiedLayout]:
        """The layouts that changes have reached, by GPU UUID; a damaged file has none."""
        content = self._read(SEEN, VERIFIED.most_length)
        try:
            stored = None if content is None else VERIFIED.decode(content)
        except BadInput as error:
            log.warning("verified MIG layouts not read", extra={"why": str(error)})
            stored = None
        return {} if stored is None else stored.gpus

    def verify(self, layouts: Mapping[str, VerifiedLayout]) -> None:
        """Replace the verified layouts. Raises JournalUnusable."""
        self._replace(SEEN, VERIFIED.encode(VerifiedLayouts(gpus=dict(layouts))))

    def locked(self, name: str) -> int | None:
        """Lock a file of the folder, made if it is missing; the descriptor that holds the lock.

        None where another process has it. Raises JournalUnusable.
        """
        with _as_unusable(self.path / name):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            lock = self._open(name, flags)
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            os.close(lock)
            raise JournalUnusable(f"{self.path / name}: not a regular file")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _own_lock(self) -> int:
        lock = self.locked(LOCK)
        if lock is None:
            raise JournalBusy(f"{self.path}: another process changes MIG on this node")
        return lock

    def _check_owner(self) -> None:
        # of the open folder: another one may be in the path's place by now
        status = os.fstat(self._folder)
        if status.st_uid != os.geteuid():
            raise JournalUnusable(f"{self.path}: it belongs to another user, {status.st_uid}")
        if stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            raise JournalUnusable(f"{self.path}: others may write to it; run chmod go-w on it")

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, 0o600, dir_fd=self._folder)

    def _read(self, name: str, max_bytes: int) -> bytes | None:
        """A file's content, one byte more than ``max_bytes`` at most; None if there is no file."""
        with _as_unusable(self.path / name):
            try:
                file = self._open(name, _READ)
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise JournalUnusable(f"{self.path / name}: not a regular file")
                return opened.read(max_bytes + 1)

    def _replace(self, name: str, content: bytes) -> None:
        """Replace a file: after a crash the old or the new one is there, whole."""
        new = f".{name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _as_unusable(self.path / name):
            # a process that died left it; O_EXCL below follows no link that somebody puts there
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=self._folder)
            try:
                with os.fdopen(self._open(new, flags), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                os.fsync(self._folder)  # the new name too must outlive a power cut
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new, dir_fd=self._folder)
                raise


@contextlib.contextmanager
def _as_unusable(path: Path) -> Iterator[None]:
    """Turn OSError into JournalUnusable with the file, the cause and the fix."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
            raise JournalUnusable(f"{path}: a link or another file is in its place") from error
        raise JournalUnusable(cannot_write(path, error)) from error
