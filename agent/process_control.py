# SPDX-License-Identifier: Apache-2.0
"""Requests that signals make to the agent's process, and its end, which waits for nobody.

The end has an order and a time: the device readers first, since a process that is killed while it
holds NVML may wedge a GPU; then whatever else is to be closed; and when the time is over the
process is gone, whatever its threads wait for: a file, a pipe, a server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum

from base import log as logs
from base import threads
from base.process import process_signals

EXIT_OK = 0

END_SECONDS = 4.0
"""Time from the beginning of the end to the last resort; 5 seconds are promised."""


class SignalRequest(StrEnum):
    """Request that a signal makes."""

    END = "end"
    RELOAD = "reload"
    RELEASE = "release"
    RESUME = "resume"


_REQUESTS = {
    signal.SIGTERM: SignalRequest.END,
    signal.SIGINT: SignalRequest.END,
    signal.SIGHUP: SignalRequest.RELOAD,
    signal.SIGUSR1: SignalRequest.RELEASE,
    signal.SIGUSR2: SignalRequest.RESUME,
}
_OPPOSITE = {
    SignalRequest.RELEASE: SignalRequest.RESUME,
    SignalRequest.RESUME: SignalRequest.RELEASE,
}


class ProcessControl:
    """Requests that wait for the main thread, and the end of the process. Thread-safe."""

    def __init__(self, leave: Callable[[int], object] = os._exit) -> None:
        """``leave`` ends the process with a status, at once."""
        self._leave = leave
        self._changed = threading.Condition()
        self._waiting: dict[SignalRequest, None] = {}
        self._closings: dict[object, Callable[[], None]] = {}
        self._status: int | None = None
        self._begun = threading.Event()
        # made now: when the end comes there may be no thread to be had
        threads.started(self._end_in_time, "end")

    def take(self, number: signal.Signals) -> None:
        """Do what this signal asks for; the end begins here, whatever the main thread does."""
        request = _REQUESTS[number]
        if request is SignalRequest.END:
            self.end(EXIT_OK)
        else:
            self.ask(request)

    def ask(self, request: SignalRequest) -> None:
        """Have the main thread do this; once, however often it is asked for."""
        with self._changed:
            # a resume takes back a release that is still waiting, and the other way round
            self._waiting.pop(_OPPOSITE.get(request, request), None)
            self._waiting.setdefault(request)
            self._changed.notify()

    def next(self, timeout_seconds: float) -> SignalRequest | None:
        """The request that is to be met now, the end before all others; None: none came in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, timeout_seconds)
            if not self._waiting:
                return None
            end = SignalRequest.END
            request = end if end in self._waiting else next(iter(self._waiting))
            del self._waiting[request]
            return request

    @contextlib.contextmanager
    def closed_first(self, close: Callable[[], None]) -> Iterator[None]:
        """Have this closed before all else when the end begins; it may come while that lasts.

        ``close`` runs in any thread, takes 2 seconds at most, and logs nothing: standard error
        may be blocked. It is called when the block ends, too.
        """
        key = object()
        with self._changed:
            self._closings[key] = close
        try:
            if self.ending:
                close()
            yield
        finally:
            close()
            with self._changed:
                del self._closings[key]

    @property
    def ending(self) -> bool:
        """Whether the end has begun."""
        return self._status is not None

    def end(self, status: int) -> None:
        """Begin the end: close what is closed first, and be gone in time with this exit status.

        What begins the end decides on the status.
        """
        with self._changed:
            if self._status is not None:
                return
            self._status = status
            closings = tuple(self._closings.values())
        self._begun.set()  # the time runs from here: what is closed next may hang
        self.ask(SignalRequest.END)
        for close in closings:
            close()

    def leave(self, status: int) -> None:
        """End the process now, without waiting for threads, but for a moment for the log."""
        logs.flush()
        self._leave(status if self._status is None else self._status)

    def _end_in_time(self) -> None:
        self._begun.wait()
        time.sleep(END_SECONDS)
        self.leave(EXIT_OK)


@contextlib.contextmanager
def under_signals() -> Iterator[ProcessControl]:
    """The control of this process, which takes its signals until the block ends."""
    control = ProcessControl()
    with process_signals.delivered_signals(control.take):
        yield control
