# SPDX-License-Identifier: Apache-2.0
"""A device reader process as the agent holds it: start, ask with a deadline, end."""

from __future__ import annotations

import contextlib
import errno
import queue
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from base import threads
from base.process.orphans import OwnProcess
from discovery.driver_errors import ProtocolViolation
from discovery.reader.protocol import (
    AgentMessage,
    Answer,
    Done,
    Enough,
    Event,
    Grown,
    Proceed,
    Request,
    RequestRefused,
    Start,
    Stop,
    Touching,
    frame,
    from_reader,
)
from discovery.reader.standard_error import ReaderEnds, StandardError

PROGRAM = Path(__file__).parents[2] / "gpuscape" / "reader.py"
"""Program of the process, by its path: an isolated Python may not know where gpuscape is."""

STARTUP_SECONDS = 15.0
"""Allowance for the interpreter before a new child's first frame; no driver call happens in it."""

COLLECT_SECONDS = 10.0
"""How long a process that has closed its standard error is waited for."""

# The agent's threads would stand still until the new process runs its program: Python holds its
# lock through vfork. Source: the documentation of subprocess, "Disabling use of vfork".
subprocess._USE_VFORK = False  # type: ignore[misc]  # documented there


Patience = Callable[[Touching | None, float], float]
"""From the call announced last and the seconds waited to the seconds to wait on; 0: give up.

It may raise Slow.
"""


class Slow(Exception):
    """A GPU takes long for its first answer; :meth:`Child.last_answers` waits on for it."""

    def __init__(self, bus_id: str) -> None:
        super().__init__("a GPU takes long for its first answer")
        self.bus_id = bus_id


class Hung(Exception):
    """No frame came within the deadline. ``call`` was announced last, if one was."""

    def __init__(self, call: Touching | None) -> None:
        super().__init__("no frame within the deadline")
        self.call = call
        self.target = "start" if call is None else call.target
        """Target of the last call: a bus id, ``driver``, or ``start`` where none was announced."""


class Died(Exception):
    """The process ended, or sent nonsense, during a request."""

    def __init__(self, call: Touching | None, why: str) -> None:
        super().__init__(why)
        self.call = call


class Child:
    """A device reader with the receiving end of its socket; used by one asker at a time."""

    def __init__(
        self,
        start: Start,
        on_event: Callable[[Child, Event | Grown], None],
        ends: ReaderEnds | None = None,
    ) -> None:
        """``ends`` logs how it ended. Raises OSError where no process or thread can be had.

        It may take long, as where the disk of the program hangs: call it without any lock.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            self._error = StandardError()
            undo.callback(self._error.close)
            undo.enter_context(self._error.writer)
            # an empty environment and one descriptor: hygiene, so that nothing of the agent leaks
            self._process = OwnProcess(
                [sys.executable, "-I", PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._error.writer,
                env={},
                close_fds=True,
                process_group=0,  # a terminal's Ctrl-C is for the agent, which ends its readers
            )
            # callbacks run in reverse order: kill first, then collect
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)  # it has called no driver yet
            self.skips = start.skip
            self.returned: set[str | None] = set()
            """GPUs that it has open, since calls on them have returned; None: the driver."""
            self._connection = ours
            self._on_event = on_event
            self._ends = ends or ReaderEnds()
            self._arrived: queue.SimpleQueue[Answer | str] = queue.SimpleQueue()
            self._request = 0
            self._last_call: Touching | None = None
            self._waits_since = 0.0
            self._begun_at = time.monotonic()
            self.start_seconds: float | None = None
            """How long it took to its first frame, in which it calls no driver."""
            self._stop_requested = False
            self._send(start)
            try:
                threads.started(self._receive, "reader")
            except threads.NoThread as error:
                raise OSError(errno.EAGAIN, str(error)) from error
            undo.pop_all()
            self._error.writer.close()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """The process is gone; collects it."""
        return self._process.poll() is not None

    def ask(self, message: Request, patience: Patience) -> Iterator[Answer]:
        """The frames that answer one request, the last one Done or Refused.

        Raises Hung when ``patience`` for one frame ends, Died when the process ends or
        sends what the protocol does not allow, and Slow where ``patience`` does.
        """
        self._request, self._last_call = message.request, None
        self._waits_since = time.monotonic() + (
            STARTUP_SECONDS if self.start_seconds is None else 0.0
        )
        self._send(message)
        return self._answers(patience, goes_on=True)

    def go_on(self, patience: Patience) -> Iterator[Answer]:
        """The rest of an answer that raised Slow, of all GPUs. Raises as :meth:`ask`."""
        return self._answers(patience, goes_on=True)

    def last_answers(self, patience: Patience) -> Iterator[Answer]:
        """The rest of an answer that raised Slow: the frames of the slow GPU, and the end.

        Raises as :meth:`ask`. The child touches no other GPU, and keeps open what it has open.
        """
        return self._answers(patience, goes_on=False)

    def _answers(self, patience: Patience, *, goes_on: bool) -> Iterator[Answer]:
        while True:
            arrived = self._next(patience)
            if isinstance(arrived, str):
                raise Died(self._last_call, arrived)
            if self.start_seconds is None:
                self.start_seconds = time.monotonic() - self._begun_at
            # the next frame shows that the announced call has returned
            if self._last_call is not None:
                self.returned.add(self._last_call.bus_id)
            if arrived.request != self._request:
                continue  # rest of an earlier answer that nobody waited for
            if isinstance(arrived, Touching):
                # Enough ends the answer here: another child reads the GPUs that are left
                if arrived.asks:
                    self._send(Proceed() if goes_on else Enough())
                if goes_on or not arrived.asks:
                    self._last_call = arrived
                continue
            yield arrived
            if isinstance(arrived, Done | RequestRefused):
                return

    def _next(self, patience: Patience) -> Answer | str:
        while (seconds := patience(self._last_call, time.monotonic() - self._waits_since)) > 0:
            with contextlib.suppress(queue.Empty):
                arrived = self._arrived.get(timeout=seconds)
                self._waits_since = time.monotonic()
                return arrived
        raise Hung(self._last_call)

    def stop(self) -> None:
        """Ask it to close its NVML handles and end."""
        self._stop_requested = True
        self._send(Stop())

    def terminate(self) -> None:
        """SIGTERM, and nobody to answer to: when its driver call returns, it ends either way."""
        self._stop_requested = True
        self._process.terminate()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """SIGKILL: the last resort, since a driver call cut short may wedge the GPU."""
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it came within that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.ended

    def _send(self, message: AgentMessage) -> None:
        with contextlib.suppress(OSError):  # its end shows where the answer is awaited
            self._connection.sendall(frame(message))

    def _receive(self) -> None:
        """Take what it sends until its socket closes, and what it prints until it ends."""
        try:
            why = "a defect of the agent; the log has it"
            try:
                with self._connection:
                    why = self._receive_messages()
            finally:
                self._arrived.put(why)  # whoever asks waits for it
            # the socket has closed, but the driver's library may still write its last words
            readable = select.poll()
            readable.register(self._error, select.POLLIN)
            while self._error.read():
                readable.poll()
        finally:
            self._error.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(COLLECT_SECONDS)
        status = self._process.returncode
        expected = self._stop_requested and status in (0, -signal.SIGTERM)
        self._ends.log(self.pid, status, self._error, expected=expected)

    def _receive_messages(self) -> str:
        """Why there are no more of them."""
        framer, readable = from_reader(), select.poll()
        readable.register(self._connection, select.POLLIN)
        readable.register(self._error, select.POLLIN)
        try:
            while True:
                ready = dict(readable.poll())
                # read all along: the pipe loses what is written while it is full
                if self._error.fileno() in ready and not self._error.read():
                    readable.unregister(self._error)
                if self._connection.fileno() not in ready:
                    continue
                data = self._connection.recv(1 << 16)
                if not data:
                    return "it closed its socket"
                for message in framer.feed(data):
                    if isinstance(message, Event | Grown):
                        self._on_event(self, message)
                    else:
                        self._arrived.put(message)
        except ProtocolViolation as violation:
            return str(violation)
        except OSError as error:
            return str(error)
