# SPDX-License-Identifier: Apache-2.0
"""The kernel log as a source of errors: XIDs that NVML does not deliver, and those of NVSwitches.

NVML delivers no XID while its calls hang, and knows nothing of switches; the driver writes all of
them to the kernel log.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from agent.gpu_errors.kernel_records import SxidSeen, seen_in
from base.log_once import LogOnce
from base.log_pace import LogPace
from discovery.reader.protocol import EventsLost, XidSeen

log = logging.getLogger(__name__)

PATH = Path("dev/kmsg")
"""Path of the kernel log below the host root."""

RECORD_BYTES = 16384
"""Twice what a record can have; a reader with less room gets EINVAL for ever."""
MOST_RECORDS = 4096
MOST_EVENTS = 256
"""Events of a call at most: further records wait for the next call, further events are dropped."""
AGAIN_SECONDS = 60.0
"""Time from a failed attempt to open the log to the next one."""

_ADVICE = {
    errno.ENOENT: "mount the host's /dev/kmsg there",
    errno.EACCES: "it belongs to root: run as uid 0",
    errno.EPERM: "a container has to be privileged to open it, and where kernel.dmesg_restrict is"
    " 1 it takes CAP_SYSLOG too",
}


def open_at_end(path: Path) -> int:
    """A descriptor that never waits and gives what is logged from now on. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class KernelLog:
    """Reads the kernel log from where it was at the first call."""

    def __init__(
        self,
        path: Path,
        *,
        open_log: Callable[[Path], int] = open_at_end,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        """``path`` is /dev/kmsg as this process sees it; nothing is opened yet."""
        self._path = path
        self._open_log = open_log
        self._read = read
        self._descriptor: int | None = None
        self._again_at = 0.0
        self._failures = LogOnce()
        self._pace = LogPace()
        self.overruns = 0
        """How often the kernel overwrote records before they were read."""

    def events(self, now: float) -> tuple[XidSeen | SxidSeen | EventsLost, ...]:
        """The errors logged since the last call, at this monotonic time. Never waits or raises.

        Where some are missing, the last one is EventsLost.
        """
        overruns = self.overruns
        if self._descriptor is None and not self._open(now):
            return ()
        events: list[XidSeen | SxidSeen | EventsLost] = []
        for _ in range(MOST_RECORDS):
            record = self._next_record(now)
            if record is None:
                break
            if (event := seen_in(record)) is not None:
                events.append(event)
        if len(events) > MOST_EVENTS:
            left_out = self._pace.take(None, now)
            if left_out is not None:
                facts = {"errors": len(events) - MOST_EVENTS}
                more = {"left_out": left_out} if left_out else {}
                log.warning("kernel log errors dropped", extra=facts | more)
        lost: tuple[EventsLost, ...] = ()
        if len(events) > MOST_EVENTS or self.overruns > overruns:
            lost = (EventsLost(text="records of the kernel log were lost"),)
        return (*events[:MOST_EVENTS], *lost)

    def close(self) -> None:
        """Close the log; the next call opens it again, at its end."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, now: float) -> bool:
        if now < self._again_at:
            return False
        try:
            self._descriptor = self._open_log(self._path)
        except OSError as error:
            self._failed(error, now)
            return False
        log.info("kernel log opened", extra={"path": str(self._path)})
        self._failures.clear()
        return True

    def _next_record(self, now: float) -> bytes | None:
        """The next record, empty where the kernel overwrote some; None where there is none."""
        if self._descriptor is None:
            return None
        try:
            return self._read(self._descriptor, RECORD_BYTES) or None
        except BlockingIOError:
            return None
        except BrokenPipeError:  # the next read gives the oldest record there is
            self.overruns += 1
            if self.overruns == 1:
                log.warning("kernel log records lost")
            return b""
        except OSError as error:
            self.close()
            self._failed(error, now)
            return None

    def _failed(self, error: OSError, now: float) -> None:
        """Log each reason once, and try again later."""
        self._again_at = now + AGAIN_SECONDS
        reason = error.strerror or str(error)
        if self._failures.is_new(reason):
            advice = _ADVICE.get(error.errno or 0, "none: XIDs come from NVML alone")
            facts = {"path": str(self._path), "why": reason, "action": advice}
            log.warning("kernel log not readable", extra=facts)
