# SPDX-License-Identifier: Apache-2.0
"""Jobs of several classes that take turns in one thread, so that no class keeps others waiting."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

Job = Callable[[], object]


class Turns:
    """Hands jobs on so that of classes that have some each runs one at a time. Thread-safe."""

    def __init__(self, later: Callable[[Job], object]) -> None:
        """``later``: runs jobs one by one off the caller's path."""
        self._later = later
        self._jobs: OrderedDict[str, deque[Job]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, gen: str, job: Job) -> None:
        """Have a class's job run when the class has its turn."""
        with self._lock:
            self._jobs.setdefault(gen, deque()).append(job)
        self._later(self._next)

    def drop(self, gen: str) -> None:
        """Forget the jobs of a class that is not there any more."""
        with self._lock:
            self._jobs.pop(gen, None)

    def _next(self) -> None:
        """Run a job of the class whose turn it is; the class then waits for all others."""
        with self._lock:
            if not self._jobs:
                return  # dropped meanwhile
            gen, jobs = self._jobs.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._jobs[gen] = jobs
        job()
