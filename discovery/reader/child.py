# SPDX-License-Identifier: Apache-2.0
"""One device reader process as the agent holds it: start, ask with a deadline, end."""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from discovery.driver_errors import ProtocolViolation
from discovery.reader.protocol import (
    Answer,
    Discover,
    Done,
    Event,
    RequestRefused,
    Sample,
    Start,
    Stop,
    Touching,
    frame,
    from_reader,
)

PROGRAM = Path(__file__).parents[2] / "gpuscape" / "reader.py"
"""What the process runs, by its path: an isolated Python may not know where gpuscape is."""

STARTUP_SECONDS = 15.0
"""Allowance for the interpreter before a new child's first frame; no driver call happens in it."""


class Hung(Exception):
    """No frame came within the deadline. ``doing`` was the last announcement, if there was one."""

    def __init__(self, doing: Touching | None) -> None:
        super().__init__("no frame within the deadline")
        self.doing = doing


class Died(Exception):
    """The process ended, or sent nonsense, during a request."""

    def __init__(self, doing: Touching | None, why: str) -> None:
        super().__init__(why)
        self.doing = doing


class Child:
    """A device reader with the receiving end of its socket; used by one asker at a time."""

    def __init__(self, start: Start, on_event: Callable[[Event], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            # an empty environment and one descriptor: hygiene, so that nothing of the agent leaks
            self._process = subprocess.Popen(  # noqa: S603  # a program of our own
                [sys.executable, "-I", PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                close_fds=True,
            )
            undo.pop_all()
        self.skips = start.skip
        self._connection = ours
        self._on_event = on_event
        self._arrived: queue.SimpleQueue[Answer | str] = queue.SimpleQueue()
        self._spoke = False
        self._send(start)
        threading.Thread(target=self._receive, name="reader", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """The process is gone; collects it."""
        return self._process.poll() is not None

    def ask(self, message: Discover | Sample, deadline_seconds: float) -> Iterator[Answer]:
        """The frames that answer one request, the last one Done or Refused.

        Raises Hung when one frame takes longer than the deadline, Died when the
        process ends or sends what the protocol does not allow.
        """
        doing: Touching | None = None
        self._send(message)
        while True:
            try:
                arrived = self._arrived.get(
                    timeout=deadline_seconds + (0 if self._spoke else STARTUP_SECONDS)
                )
            except queue.Empty:
                raise Hung(doing) from None
            if isinstance(arrived, str):
                raise Died(doing, arrived)
            self._spoke = True
            if arrived.request != message.request:
                continue  # rest of an earlier answer that nobody waited for
            if isinstance(arrived, Touching):
                doing = arrived
                continue
            yield arrived
            if isinstance(arrived, Done | RequestRefused):
                return

    def stop(self) -> None:
        """Ask it to close its NVML handles and end."""
        self._send(Stop())

    def terminate(self) -> None:
        """SIGTERM, and nobody to answer to: when its driver call returns, it ends either way."""
        self._process.terminate()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """SIGKILL: the last resort, since a driver call cut short may wedge the GPU."""
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Whether it ended within that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.ended

    def _send(self, message: Start | Discover | Sample | Stop) -> None:
        with contextlib.suppress(OSError):  # its end shows where the answer is awaited
            self._connection.sendall(frame(message))

    def _receive(self) -> None:
        framer = from_reader()
        why = "it closed its socket"
        with self._connection:
            try:
                while data := self._connection.recv(1 << 16):
                    for message in framer.feed(data):
                        if isinstance(message, Event):
                            self._on_event(message)
                        else:
                            self._arrived.put(message)
            except ProtocolViolation as violation:
                why = str(violation)
            except OSError as error:
                why = str(error)
        self._arrived.put(why)
