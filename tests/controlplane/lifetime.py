# SPDX-License-Identifier: Apache-2.0
"""Processes that end when the one that started them does, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(how: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Make a ``preexec_fn`` that has the kernel send ``how`` when the parent ends.

    The kernel means the thread that forked: start such a process from a thread that lives as
    long as it shall. Source: prctl(2), PR_SET_PDEATHSIG; it survives execve.
    """
    parent = os.getpid()

    def prepare() -> None:
        signal_at_end_of_parent(how)
        if os.getppid() != parent:  # it ended before the kernel was asked
            os.kill(os.getpid(), how)

    return prepare


def signal_at_end_of_parent(how: signal.Signals) -> None:
    """Have the kernel send this process ``how`` when its parent ends, if it has not yet."""
    _libc.prctl(_PR_SET_PDEATHSIG, how)
