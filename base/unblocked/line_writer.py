# SPDX-License-Identifier: Apache-2.0
"""Writes lines to a descriptor in a thread of its own, so that no caller waits for the reader.

A pipe that nobody empties, a terminal that is stopped or a disk that hangs keeps a writer waiting
for ever. Here the lines wait, up to a bound; beyond it they are dropped and counted.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from base import threads
from base.errors import Transient

MOST_LINES: Final = 2048
MOST_BYTES: Final = 1 << 20
"""All lines that wait together."""
_AT_ONCE_BYTES: Final = 1 << 16


class BlockedOutput(Transient):
    """The lines before have not been read yet."""


class LineWriter:
    """Writes lines to one descriptor; may be used from any thread."""

    def __init__(self, descriptor: int, *, written_again: Callable[[int], None]) -> None:
        """``written_again`` is called, by the writing thread, when lines are written after some
        were dropped, with their number. Raises NoThread. The descriptor stays the caller's.
        """
        self._descriptor = descriptor
        self._written_again = written_again
        self._changed = threading.Condition()
        self._lines = deque[bytes]()
        self._bytes = 0
        self._is_writing = False
        self._dropped = self._unreported = 0
        threads.started(self._run, "lines")

    @property
    def dropped(self) -> int:
        """Lines that were not written, since the start."""
        return self._dropped

    def put(self, line: bytes) -> None:
        """Have this line written, with its end; it is dropped where too many wait."""
        with self._changed:
            if len(self._lines) >= MOST_LINES or self._bytes + len(line) > MOST_BYTES:
                self._drop(1)
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait up to so many seconds until all lines are written; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                lines = self._taken()
                self._is_writing = True
            is_written = self._write(b"".join(lines))
            with self._changed:
                if not is_written:
                    self._drop(len(lines))
                unreported = self._unreported if is_written else 0
                self._unreported -= unreported
            if unreported:
                self._written_again(unreported)

    def _taken(self) -> list[bytes]:
        lines = [self._lines.popleft()]
        while self._lines and sum(map(len, lines)) + len(self._lines[0]) <= _AT_ONCE_BYTES:
            lines.append(self._lines.popleft())
        self._bytes -= sum(map(len, lines))
        return lines

    def _drop(self, lines: int) -> None:
        self._dropped += lines
        self._unreported += lines

    def _write(self, data: bytes) -> bool:
        """Write it, however long that takes; False where nobody can ever read it."""
        with contextlib.suppress(OSError):
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:  # another process with this pipe has made it non-blocking
                    select.select([], [self._descriptor], [])
            return True
        return False


class UnblockedOutput:
    """A text stream on a descriptor, which refuses lines while nobody takes those before them."""

    def __init__(self, descriptor: int, name: str) -> None:
        """``name`` is for messages. Raises NoThread."""
        self._name = name
        self._writer = LineWriter(descriptor, written_again=lambda _lines: None)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Have these lines written. Raises BlockedOutput, and then writes none of them."""
        if not self._writer.flush(0):
            raise BlockedOutput(f"{self._name} is blocked: nobody reads what was written before")
        for line in lines:
            self._writer.put(f"{line}\n".encode())
