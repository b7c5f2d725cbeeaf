# SPDX-License-Identifier: Apache-2.0
"""Memory and descriptors that the device reader takes, as it reads them itself.

The driver's library may leak, and nobody can take memory back from it but by ending the process.
Only private memory counts: pages of files, such as the library's own, can be dropped.
Sources: proc(5) on /proc/PID/statm (resident less shared is RssAnon of status), /proc/PID/fd and
/proc/PID/oom_score_adj, which anybody may raise for a process of his own.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from discovery.reader.protocol import Grown, ReaderLimits

CHECK_SECONDS: Final = 2.0
FIRST_TO_END: Final = 1000
"""The highest value of oom_score_adj."""
_NEEDED: Final = 2
"""A limit is at least this many times what the reader takes after its first answer. On a large
machine or with another driver that is more than expected, and a lower limit would have the reader
replaced for ever."""

_SELF: Final = Path("/proc/self")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def end_first() -> None:
    """Have the kernel end this process before the agent where memory runs out."""
    with contextlib.suppress(OSError):  # a sandbox without it
        (_SELF / "oom_score_adj").write_text(str(FIRST_TO_END), "ascii")


def private_bytes() -> int | None:
    """Private memory of this process that is resident; None where the kernel does not show it.

    From statm, whose text is shorter than that of status: it is read every two seconds.
    """
    with contextlib.suppress(OSError):
        _, resident, of_files_or_shared, *_ = (_SELF / "statm").read_bytes().split()
        return (int(resident) - int(of_files_or_shared)) * _PAGE_BYTES
    return None


def open_descriptors() -> int | None:
    """Descriptors that this process has open; None where the kernel does not show them."""
    with contextlib.suppress(OSError), os.scandir(_SELF / "fd") as descriptors:
        return sum(1 for _ in descriptors) - 1  # without that of the list itself
    return None


def use_now() -> Mapping[Grown.Resource, int]:
    """Resources that this process takes now, as far as the kernel shows them."""
    amounts = {
        Grown.Resource.MEMORY: private_bytes(),
        Grown.Resource.DESCRIPTORS: open_descriptors(),
    }
    return {resource: amount for resource, amount in amounts.items() if amount is not None}


class OwnUse:
    """Compares what the process takes with its limits. Thread-safe."""

    def __init__(
        self, limits: ReaderLimits, read: Callable[[], Mapping[Grown.Resource, int]] = use_now
    ) -> None:
        self._limits = {
            resource: limit
            for resource, limit in (
                (Grown.Resource.MEMORY, limits.memory_bytes),
                (Grown.Resource.DESCRIPTORS, limits.descriptors),
            )
            if limit is not None
        }
        self._read = read
        self._needs: Mapping[Grown.Resource, int] | None = None
        self._lock = threading.Lock()

    def has_answered(self) -> None:
        """A request was answered; what the process takes at the first one is what it needs."""
        with self._lock:
            if self._needs is None and self._limits:
                self._needs = self._read()

    def exceeded(self) -> Grown | None:
        """The limit that the process exceeds, once; None before it has answered."""
        with self._lock:
            if self._needs is None:
                return None
            now = self._read() if self._limits else {}
            for resource, limit in self._limits.items():
                limit = max(limit, _NEEDED * self._needs.get(resource, 0))
                if now.get(resource, 0) > limit:
                    self._limits = {}
                    return Grown(resource=resource, amount=now[resource], limit=limit)
        return None
