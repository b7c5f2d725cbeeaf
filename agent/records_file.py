# SPDX-License-Identifier: Apache-2.0
"""The file through which what is known about GPUs outlives the agent's process.

It holds for one boot of the host and one version of the driver: both end what was wrong with a GPU,
and may bring another GPU to a place on the bus. Another driver leaves which GPUs there are, and
another boot how many (:func:`agent.stored_records.restore_records`). So nothing in it has to
survive the loss of power, and a damaged file is no loss that matters: what is known is gathered
anew. Sources: proc(5) on boot_id; /sys/module/nvidia/version is the loaded kernel module's.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agent import stored_records
from agent.gpu_records import GpuRecords
from agent.stored_records import FORMAT, MOST_BYTES, Session, StoredRecords
from base import threads
from base.defects import Defects
from base.errors import BadInput
from base.files import cannot_write, read_bytes, replace_file
from base.log_once import LogOnce
from base.unblocked.bounded_call import NoReturn, bounded

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Time between two comparisons of the records with the file."""
GROWING_SECONDS = 60.0
"""Times that grow with every sample are written no more often than this."""
RETRY_SECONDS = 30.0
"""Time from a failed attempt to write to the next one."""

READ_SECONDS = 3.0
"""At the start everything waits for the file, so long at most."""
LAST_WRITE_SECONDS = 1.0
"""The agent's end waits so long for what has grown since the last write."""

_BOOT_ID = Path("proc/sys/kernel/random/boot_id")
_DRIVER = Path("sys/module/nvidia/version")


def session_below(root: Path) -> Session | None:
    """The boot and the driver of this host now; None where the boot id cannot be read."""
    boot = _line(root / _BOOT_ID)
    return None if boot is None else Session(boot=boot, driver=_line(root / _DRIVER))


def _line(file: Path) -> str | None:
    try:
        return read_bytes(file, most_bytes=4096).decode("ascii", "replace").strip() or None
    except BadInput:
        return None


def restore_from_file(path: Path, root: Path, records: GpuRecords, now: float) -> None:
    """Let ``records`` go on from what the file has and this boot and driver leave of it.

    ``root`` is the host's, ``now`` monotonic. Never raises: a file that cannot be used is logged,
    and one whose file system hangs is waited for READ_SECONDS.
    """
    try:
        stored = bounded(functools.partial(_stored, path), READ_SECONDS, "state-file")
    except NoReturn as error:
        why = f"cannot read the state file {path}: {error}; does its file system hang?"
        log.warning("state file not used", extra={"why": why})
        return
    except BadInput as error:
        log.warning("state file not used", extra={"why": str(error)})
        return
    if stored is None:
        return
    session = session_below(root) or _NO_SESSION
    stored_records.restore_records(records, stored, session, now)
    if stored.session == session:
        log.info("state file read", extra={"path": str(path), "gpus": len(stored.gpus)})
    else:
        log.warning("state file used in part", extra={"why": _kept_part(path, stored, session)})


_NO_SESSION = Session(boot="")
"""The session of a host whose boot id cannot be read: no file is of it."""


def _kept_part(path: Path, stored: StoredRecords, session: Session) -> str:
    if stored.session.boot == session.boot:
        driver = stored.session.driver or "none"
        return f"{path} is of another driver: {driver}; kept is which GPUs the node has"
    return f"{path} is of another boot: kept is the number of GPUs, until it is known for this one"


def _stored(path: Path) -> StoredRecords | None:
    """The file's records; None where there is no file. Raises BadInput."""
    try:
        content = read_bytes(path, "state file", most_bytes=MOST_BYTES, from_pipe=False)
    except BadInput as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    stored = FORMAT.decode(content)
    if stored is None:
        raise BadInput(f"{path} is of another version of gpuscape")
    return stored


class RecordsFile:
    """Writes one file when something has changed."""

    def __init__(
        self,
        path: Path,
        root: Path,
        records: GpuRecords,
        *,
        report: Callable[[bool], None] = lambda _is_good: None,
    ) -> None:
        """``root`` is the host's; ``report`` gets whether the file could be written just now."""
        self._path = path
        self._root = root
        self._records = records
        self._report = report
        self._written: StoredRecords | None = None
        self._written_at = 0.0
        self._failures = LogOnce()

    @contextlib.contextmanager
    def kept(self, defects: Defects) -> Iterator[None]:
        """Keep the file up to date until the block ends, whose end waits a second and no longer.

        It takes a thread of its own, since a disk may hang: nothing else waits for it then.
        Raises NoThread.
        """
        ending = threading.Event()

        def run() -> None:
            seconds = 0.0
            while not ending.wait(seconds):
                seconds = RETRY_SECONDS
                with defects.contained("state file"):
                    seconds = self._again(GROWING_SECONDS)
            with defects.contained("state file"):
                self._again(0.0)

        thread = threads.started(run, "state-file")
        try:
            yield
        finally:
            ending.set()
            thread.join(LAST_WRITE_SECONDS)

    def _again(self, growing_seconds: float) -> float:
        """Write what has changed; the seconds until the next time."""
        with self._records.writing:
            is_kept = self.write_changed(time.monotonic(), growing_seconds)
        return CHECK_SECONDS if is_kept else RETRY_SECONDS

    def write_changed(self, now: float, growing_seconds: float) -> bool:
        """Write the file where it lacks something; times that grow may be missing for so long.

        Whether it has all else now.
        """
        session = session_below(self._root)
        if session is None:
            self._failed(f"cannot write {self._path}: the host has no readable {_BOOT_ID}")
            return False
        stored = stored_records.stored(self._records, session)
        if self._written is not None and stored.without_times == self._written.without_times:
            grown = stored.waste != self._written.waste
            if not grown or now - self._written_at < growing_seconds:
                return True
        return self._write(stored, now)

    def _write(self, stored: StoredRecords, now: float) -> bool:
        try:
            replace_file(self._path, FORMAT.encode(stored), mode=0o600)
        except OSError as error:
            self._failed(cannot_write(self._path, error))
            return False
        self._written, self._written_at = stored, now
        self._report(True)
        self._failures.clear()
        return True

    def _failed(self, why: str) -> None:
        self._report(False)
        if self._failures.is_new(why):
            log.warning("state file not written", extra={"why": why})
