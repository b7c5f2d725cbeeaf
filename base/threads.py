# SPDX-License-Identifier: Apache-2.0
"""Threads that are started, or refused in one sentence that names the limit and the fix."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Callable, Iterator

from base.errors import Permanent


class NoThread(Permanent):
    """No further thread can be started in this process."""


@contextlib.contextmanager
def starting(name: str) -> Iterator[None]:
    """Raise NoThread where the block, which starts a thread of this name, gets none.

    Source: pthread_create(3), EAGAIN; Python raises RuntimeError for it.
    """
    try:
        yield
    except RuntimeError as error:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
        processes = "unlimited" if soft == resource.RLIM_INFINITY else soft
        raise NoThread(
            f"cannot start the thread {name!r}: none is to be had; raise the limit of processes "
            f"and threads that holds here: RLIMIT_NPROC (ulimit -u, now {processes}), pids.max of "
            "the cgroup (podPidsLimit of the kubelet, TasksMax of systemd), or memory"
        ) from error


def started(run: Callable[[], object], name: str) -> threading.Thread:
    """A running thread, which does not keep the program alive. Raises NoThread."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    with starting(name):
        thread.start()
    return thread


def make_sure(number: int) -> None:
    """Raise NoThread unless so many more threads can be had now."""
    go_on, spare_threads = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(number):
            thread = started(go_on.wait, "spare")
            spare_threads.append(thread)
    finally:
        go_on.set()
        for thread in spare_threads:
            thread.join()
