# SPDX-License-Identifier: Apache-2.0
"""Standard error of device readers: bounded, and logged when one of them ends.

The driver's library writes there before it ends a process, and so does Python.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from base.log_pace import LogPace
from base.text.safe_text import safe_line

log = logging.getLogger(__name__)

KEPT_BYTES: Final = 4096
"""Bytes that are kept, the last ones; a traceback of Python has about 2 KiB."""
KEPT_LINES: Final = 20


class StandardError:
    """The reading end of a pipe that never keeps its writer waiting, and the last that came."""

    def __init__(self) -> None:
        self._descriptor, writes_to = os.pipe()
        self.writer = os.fdopen(writes_to, "wb", buffering=0)
        """Writing end for the new process; to be closed here once that has its own."""
        for descriptor in (self._descriptor, writes_to):
            os.set_blocking(descriptor, False)  # where it is full, what is written is lost
        self._kept = b""

    def fileno(self) -> int:
        """Descriptor on which to wait until there is something to read."""
        return self._descriptor

    def read(self) -> bool:
        """Take what is there; False once all writers are gone."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return True
        self._kept = (self._kept + data)[-KEPT_BYTES:]
        return bool(data)

    def close(self) -> None:
        """Close the reading end."""
        os.close(self._descriptor)

    @property
    def last_lines(self) -> str:
        """The last KEPT_LINES lines, joined by `` | ``; what is not printable is escaped."""
        lines = self._kept.decode("utf-8", "backslashreplace").splitlines()[-KEPT_LINES:]
        return " | ".join(safe_line(line) for line in lines if line.strip())


class ReaderEnds:
    """Logs how device readers ended or timed out, each way once a minute. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pace = LogPace()

    def log(self, pid: int, status: int | None, error: StandardError, *, expected: bool) -> None:
        """Log the end of a reader; ``status`` as :attr:`subprocess.Popen.returncode` has it.

        One that was ``expected`` is logged only where the reader wrote something.
        """
        lines, how = error.last_lines, exit_text(status)
        if expected and not lines:
            return
        if (more := self.paced(how)) is not None:
            facts = {"reader": pid, "how": how, "stderr": lines or "empty"}
            log.warning("device reader ended", extra=facts | more)

    def log_timeout(self, pid: int, target: str, seconds: float) -> None:
        """Log that a reader did not answer within its deadline a call on ``target``."""
        if (more := self.paced(target)) is not None:
            facts = {"reader": pid, "what": target, "seconds": seconds}
            log.warning("device reader timed out", extra=facts | more)

    def paced(self, subject: str) -> dict[str, int] | None:
        """How many lines of this subject were left out before this one; None: so is this one."""
        with self._lock:
            left_out = self._pace.take(subject, self._clock())
        return None if left_out is None else {"left_out": left_out} if left_out else {}


def exit_text(status: int | None) -> str:
    """How a process ended; ``status`` as :attr:`subprocess.Popen.returncode` has it."""
    if status is None:
        return "not known"
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
