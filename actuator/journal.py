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
from typing import Final, Self

from actuator.change_record import (
    HISTORY,
    JOURNAL,
    ChangeRecord,
    ChangeRecords,
    RecordedChanges,
    newest_requests,
)
from actuator.verified_layouts import VERIFIED, VerifiedLayout, VerifiedLayouts
from api.mig_outcome import Outcome
from base.errors import BadInput, Permanent, Transient
from base.files import cannot_write, why_not_private

log = logging.getLogger(__name__)

CHANGE: Final = "change.json"
FORMER_FILES: Final = ("held.json", "stuck.json")
"""Files of stuck changes of earlier versions: their GPUs are not known here."""
PAST: Final = "history.json"
SEEN: Final = "verified.json"
LOCK: Final = "lock"

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: to open a named pipe in the place of a file would wait for its writer
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


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
            self._folder = os.open(path, FOLDER_FLAGS)
        try:
            self._check_owner()
            self._lock = self._own_lock() if lock else None
        except BaseException:
            os.close(self._folder)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder and its lock."""
        if self._lock is not None:
            os.close(self._lock)
        os.close(self._folder)

    def need_no_change(self, gpus: Collection[str]) -> None:
        """Raise JournalUnusable where a change of one of these GPUs has not ended."""
        for record in self.content().on(gpus):
            state = "is stuck on" if record.outcome is Outcome.STUCK else "has not ended on"
            raise JournalUnusable(
                f"{self.path}: the change to {record.origin} {state} GPU {record.gpu};"
                " run gpuscape mig restore, or give the GPU up with --give-up"
            )

    def content(self) -> RecordedChanges:
        """All entries. Raises JournalUnusable where those that have not ended cannot be read.

        It is damaged then, or of another version: nothing is guessed.
        """
        # read first: an entry that ends meanwhile is then in at least one of them
        unended = self._last_written()
        return RecordedChanges.read(unended, self._history())

    def write(self, *records: ChangeRecord) -> None:
        """Store entries that have not ended, in place of those before. Raises JournalUnusable."""
        keys = {record.key for record in records}
        others = (other for other in self.content().unended if other.key not in keys)
        self._replace(CHANGE, JOURNAL.encode(ChangeRecords(changes=(*others, *records))))

    def end(self, record: ChangeRecord) -> None:
        """Move an entry that has ended to the history. Raises JournalUnusable.

        Once the history has it, it has ended, whatever a process that dies leaves in other files.
        """
        earlier = (ended for ended in self._history() if ended.key != record.key)
        past = newest_requests((*earlier, record))
        self._replace(PAST, HISTORY.encode(ChangeRecords(changes=past)))
        self._drop_ended()

    def _drop_ended(self) -> None:
        """Remove the entries that the history has from those that have not ended."""
        unended = self.content().unended
        if unended:
            return self._replace(CHANGE, JOURNAL.encode(ChangeRecords(changes=unended)))
        with _as_unusable(self.path / CHANGE), contextlib.suppress(FileNotFoundError):
            os.unlink(CHANGE, dir_fd=self._folder)
            os.fsync(self._folder)
        return None

    def _last_written(self) -> tuple[ChangeRecord, ...]:
        """Content of the file of entries that have not ended. Raises JournalUnusable."""
        for name in FORMER_FILES:
            if self._read(name, 1) is not None:
                raise JournalUnusable(
                    f"{self.path / name}: a version before 0.1.0 left a stuck change; end it with"
                    " that version, or remove the file"
                )
        content = self._read(CHANGE, JOURNAL.most_length)
        if content is None:
            return ()
        try:
            decoded = JOURNAL.decode(content)
        except BadInput as error:
            raise JournalUnusable(f"{self.path / CHANGE}: {error}") from error
        if decoded is None:
            raise JournalUnusable(
                f"{self.path / CHANGE}: another version of gpuscape began this change; run that one"
            )
        return decoded.changes

    def _history(self) -> tuple[ChangeRecord, ...]:
        """The entries that have ended, the newest last; a damaged history is none."""
        stored = HISTORY.readable(self._read(PAST, HISTORY.most_length))
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
            if os.path.samestat(os.fstat(lock), os.stat(name, dir_fd=self._folder)):
                return lock
        except (BlockingIOError, FileNotFoundError):  # another process has or has replaced it
            pass
        os.close(lock)
        return None

    def _own_lock(self) -> int:
        lock = self.locked(LOCK)
        if lock is None:
            raise JournalBusy(f"{self.path}: another process changes MIG on this node")
        return lock

    def _check_owner(self) -> None:
        if why := why_not_private(self._folder):
            raise JournalUnusable(f"{self.path}: {why}")

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, 0o600, dir_fd=self._folder)

    def _read(self, name: str, max_bytes: int) -> bytes | None:
        """A file's content, one byte more than ``max_bytes`` at most; None if there is no file."""
        with _as_unusable(self.path / name):
            try:
                file = self._open(name, FILE_FLAGS)
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


def abandon_lock(folder: Path) -> None:
    """Let another process have the journal although one that was killed still has its lock.

    Only for a process that hangs in the kernel: it keeps its files, and runs nothing any more.
    """
    with contextlib.suppress(OSError):
        (folder / LOCK).unlink()


@contextlib.contextmanager
def _as_unusable(path: Path) -> Iterator[None]:
    """Turn OSError into JournalUnusable with the file, the cause and the fix."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
            raise JournalUnusable(f"{path}: a link or another file is in its place") from error
        raise JournalUnusable(cannot_write(path, error)) from error
