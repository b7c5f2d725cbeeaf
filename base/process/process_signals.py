# SPDX-License-Identifier: Apache-2.0
"""Signals of a program that obeys them for as long as it lives: none is lost, none is deadly.

From :func:`hold` on they wait in the kernel, and :func:`delivered` has them delivered; in the image
they wait from before Python starts (``tools/image_root.py``). Python runs its own handlers in the
main thread, which may be waiting for a file or a server; so a thread that does nothing else takes
them here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from base import threads

OBEYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals whose default ends a process; a container's first process loses them by default."""

_ENDING = (signal.SIGTERM, signal.SIGINT)
_CHUNK_BYTES = 4096


def hold_signals() -> None:
    """Have signals wait until :func:`delivered`; for the first lines of a program.

    Source: signal(7); a blocked signal stays pending also where it would be ignored.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, OBEYED)


def release_signals() -> None:
    """Have signals wait no longer; for a program with handlers of its own, or without any."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OBEYED)


@contextlib.contextmanager
def delivered_signals(take: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call ``take`` with each signal, in a thread of its own, until the block ends.

    For the main thread. Several signals of one number that come together may count once.
    """
    sending = _receive(take)
    wakeup = signal.set_wakeup_fd(sending, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _written_to_pipe) for number in OBEYED}
    release_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(sending)


def end_event() -> threading.Event:
    """Make an event that SIGTERM and SIGINT set, from now on for as long as the process lives.

    For the main thread. A handler must not set an event: it runs in the main thread, and where that
    is within ``wait()`` and holds the event's lock, it would wait for itself for ever. Two signals
    that come together are enough for that, as Ctrl-C in a terminal and a SIGTERM after it.
    """
    ended = threading.Event()
    signal.set_wakeup_fd(_receive(lambda _number: ended.set()), warn_on_full_buffer=False)
    for number in _ENDING:
        signal.signal(number, _written_to_pipe)
    release_signals()
    return ended


def _receive(take: Callable[[signal.Signals], None]) -> int:
    """Start the receiving thread; the descriptor to write signals to, and to close at the end."""
    receiving, sending = os.pipe()
    os.set_blocking(sending, False)
    threads.started(functools.partial(_deliver, receiving, take), "signals")
    return sending


def _written_to_pipe(_number: int, _frame: FrameType | None) -> None:
    """Python has written the number to the pipe when this is called."""


def _deliver(receiving: int, take: Callable[[signal.Signals], None]) -> None:
    with open(receiving, "rb", buffering=0) as pipe:
        while numbers := pipe.read(_CHUNK_BYTES):
            for number in dict.fromkeys(numbers):
                take(signal.Signals(number))
