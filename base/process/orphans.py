# SPDX-License-Identifier: Apache-2.0
"""Collects the processes that this one inherits: those whose own parent has ended.

The first process of a container gets them, such as what a shell of ``kubectl exec`` leaves behind.
When they end they stay as zombies, each with a place in the table of processes, until somebody
waits for them. The processes that a program starts itself are :class:`OwnProcess`: whoever started
one gets its exit status, and nobody else. Sources: pid_namespaces(7), prctl(2) on
PR_SET_CHILD_SUBREAPER, proc(5) on /proc/PID/stat.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Final

from base import threads

POLL_SECONDS: Final = 5.0
_GET_CHILD_SUBREAPER: Final = 37

_lock = threading.Lock()
_being_started = 0
_own: weakref.WeakSet[OwnProcess] = weakref.WeakSet()


class OwnProcess(subprocess.Popen[bytes]):
    """A process that this program starts and waits for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start the process, with the arguments of subprocess.Popen."""
        global _being_started
        with _lock:
            _being_started += 1
        try:
            super().__init__(*args, **options)
        finally:
            with _lock:
                _being_started -= 1
                if getattr(self, "pid", None) is not None:
                    _own.add(self)


def collect_inherited() -> int:
    """Collect the inherited processes that have ended, and count them.

    Collects none while a process is being started: it might be that process that has ended.
    """
    with _lock:
        if _being_started or not _has_ended_child():
            return 0
        own = {process.pid for process in _own if process.returncode is None}
        return sum(_collected(pid) for pid in _ended_children() if pid not in own)


def collect_in_background() -> None:
    """Collect inherited processes in a thread from now on, where this process inherits any.

    Where there is no thread for it nothing is collected: a program that needs threads says so.
    """
    if inherits():
        with contextlib.suppress(threads.NoThread):
            threads.started(_run, "orphans")


def inherits() -> bool:
    """Whether processes without a parent come to this one: it is a PID namespace's first process,
    or was made a subreaper."""
    if os.getpid() == 1:
        return True
    import ctypes  # takes memory that a container's first process need not spend

    is_subreaper = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    return bool(is_subreaper.value)


def _run() -> None:
    while True:
        time.sleep(POLL_SECONDS)
        collect_inherited()


def _has_ended_child() -> bool:
    """Whether a child has ended, without collecting it: one call, and usually there is none."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return ended is not None


def _ended_children() -> list[int]:
    """Process ids of all children that have ended and that nobody has waited for."""
    ended = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has gone meanwhile
                state, parent = _state_and_parent(folder)
                if state == b"Z" and parent == os.getpid():
                    ended.append(int(folder.name))
    return ended


def _state_and_parent(folder: Path) -> tuple[bytes, int]:
    """State and parent of a process, which follow the last bracket of its ``stat``.

    The process' name before them may have blanks and brackets too.
    """
    state, parent, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    return state, int(parent)


def _collected(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
