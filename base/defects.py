# SPDX-License-Identifier: Apache-2.0
"""Unexpected exceptions: counted and logged once, and the part that raised them goes on."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 3600.0
"""A defect that lasts is logged again after this time, for logs that were rotated away."""


class Defects:
    """Counts every unexpected exception of a program, and logs it with its traceback. Thread-safe.

    The same part that raises the same kind of exception again is logged once in AGAIN_SECONDS,
    also where it works in between: a tick may raise every second.
    """

    def __init__(
        self,
        count: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``count`` is called for each exception, in the thread that raised it."""
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: dict[tuple[str, type[BaseException]], float] = {}

    def report(self, part: str, error: BaseException) -> None:
        """Count this exception of a part of the program, such as ``tick discover``."""
        self._count()
        if self._is_due(part, type(error)):
            log.error("internal error", exc_info=error, extra={"part": part})

    def _is_due(self, part: str, kind: type[BaseException]) -> bool:
        """Whether to log the exception now: the first time, and again after AGAIN_SECONDS."""
        now = self._clock()
        with self._lock:
            last = self._logged_at.get((part, kind))
            is_due = last is None or now - last >= AGAIN_SECONDS
            if is_due:
                self._logged_at[part, kind] = now
        return is_due

    @contextlib.contextmanager
    def contained(self, part: str) -> Iterator[None]:
        """Report what the block raises; the program goes on behind it."""
        try:
            yield
        except Exception as error:  # whatever it is, the rest must go on
            self.report(part, error)

    @contextlib.contextmanager
    def of_threads(self) -> Iterator[None]:
        """Report what ends any thread, until the block ends."""

        def report(ended: threading.ExceptHookArgs) -> None:
            name = "of unknown name" if ended.thread is None else ended.thread.name
            if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
                self.report(f"thread {name}", ended.exc_value)

        before, threading.excepthook = threading.excepthook, report
        try:
            yield
        finally:
            threading.excepthook = before
