# SPDX-License-Identifier: Apache-2.0
"""A view that refreshes in place: the terminal's other screen, and the terminal as it was at the
end.

Plain ANSI: each frame is written at once over the one before, line by line, so that nothing
flickers. Lines are the caller's, no wider than :attr:`LiveScreen.columns`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from enum import StrEnum
from types import FrameType
from typing import Any, Final

from base import threads
from base.process import process_signals

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Other screen, no cursor, no wrapping. Source: XTerm Control Sequences, DECSET."""
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"
"""A frame: synchronised where the terminal knows it, from the first line, nothing left below."""
_REST_OF_LINE: Final = "\x1b[K"
_QUIT: Final = frozenset("qQ\x03\x04")
_SMALLEST: Final = os.terminal_size((20, 5))
_ALSO: Final = (signal.SIGWINCH, signal.SIGTSTP)
_KEY_BYTES: Final = 1024


class ScreenEvent(StrEnum):
    """Why a wait ended."""

    QUIT = "quit"
    REDRAW = "redraw"
    """The terminal has another size, or is back from being suspended."""
    NEWS = "news"
    TIME = "time"


class LiveScreen:
    """The terminal of standard input and output, taken over until :func:`live_screen` ends."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[ScreenEvent] = queue.SimpleQueue()
        self._suspend = threading.Event()
        self._before: list[Any] | None = None

    @property
    def size(self) -> os.terminal_size:
        """Size of the terminal now; a terminal that names no size counts as 80 by 24."""
        try:
            terminal_size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            terminal_size = os.terminal_size((0, 0))
        columns, lines = terminal_size.columns or 80, terminal_size.lines or 24
        return os.terminal_size((max(_SMALLEST.columns, columns), max(_SMALLEST.lines, lines)))

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, from the top; those that have no room are left out."""
        shown = lines[: self.size.lines]
        _write(_BEGIN + "\r\n".join(f"{line}{_REST_OF_LINE}" for line in shown) + _END)

    def news(self) -> None:
        """Have the wait end; from any thread."""
        self._events.put(ScreenEvent.NEWS)

    def wait(self, seconds: float) -> ScreenEvent:
        """Wait for the next event; TIME when none came within so many seconds."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return ScreenEvent.TIME
        if self._suspend.is_set():
            self._suspend.clear()
            self.leave()
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell has the terminal until SIGCONT
            self.enter()
        return event

    def enter(self) -> None:
        """Take the terminal over: keys come one by one and are not shown."""
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        _write(_ENTER)

    def leave(self) -> None:
        """Give the terminal back as it was."""
        with contextlib.suppress(OSError):  # it may be gone
            _write(_LEAVE)
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def take_signal(self, number: signal.Signals) -> None:
        """Handle a signal, in the thread of signals."""
        if number == signal.SIGTSTP:
            self._suspend.set()
        is_end = number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._events.put(ScreenEvent.QUIT if is_end else ScreenEvent.REDRAW)

    def read_keys(self) -> None:
        """Take keys until there are no more; in a thread of its own, which never ends the program.

        A terminal that is gone ends the view.
        """
        while True:
            try:
                keys = os.read(sys.stdin.fileno(), _KEY_BYTES)
            except OSError:
                keys = b""
            if not keys or _QUIT.intersection(keys.decode("ascii", "replace")):
                self._events.put(ScreenEvent.QUIT)
            if not keys:
                return


@contextlib.contextmanager
def live_screen() -> Iterator[LiveScreen]:
    """The terminal for a live view. q, Ctrl-C and signals that end a program end the wait with
    QUIT; whatever happens in the block, the terminal is as it was afterwards."""
    screen = LiveScreen()
    with process_signals.delivered_signals(screen.take_signal):
        before = {number: signal.signal(number, _noted) for number in _ALSO}
        screen.enter()
        try:
            if sys.stdin.isatty():
                threads.started(screen.read_keys, "keys")
            yield screen
        finally:
            screen.leave()
            for number, handler in before.items():
                signal.signal(number, handler)


def is_live_terminal() -> bool:
    """Whether standard output is a terminal that can be written over."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def refreshes(screen: LiveScreen, seconds: float) -> Iterator[None]:
    """Yield for each frame: at first, at every event, at least every ``seconds``; until QUIT."""
    yield
    while screen.wait(seconds) is not ScreenEvent.QUIT:
        yield


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: Python wakes the thread of signals before it calls a handler."""
