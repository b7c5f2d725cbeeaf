# SPDX-License-Identifier: Apache-2.0
"""Limits of threads: in this process, and real ones of another."""

from __future__ import annotations

import resource
import threading

import pytest

STACK_BYTES = 1 << 30
_PROGRAM_BYTES = STACK_BYTES * 9 // 10
"""More than a program of ours has mapped next to the stacks of its threads."""
_START = threading.Thread.start


def limits_of(threads: int) -> dict[int, int]:
    """Limits of a process, by their numbers in :mod:`resource`, that allow it so many threads.

    Each thread's stack takes a GiB of address space then, of which the process has so many. That
    holds for every user, and pthread_create fails as at the machine's other limits: EAGAIN.
    """
    return {
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_AS: threads * STACK_BYTES + _PROGRAM_BYTES,
    }


def allow_threads(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let so many threads start in this process from now on, as Python does at a limit."""
    left = iter(range(number))

    def start(self: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        _START(self)

    monkeypatch.setattr(threading.Thread, "start", start)
