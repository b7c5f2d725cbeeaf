# SPDX-License-Identifier: Apache-2.0
"""Jobs that would keep their caller waiting, run one by one in a thread of their own."""

from __future__ import annotations

import queue
from collections.abc import Callable

from base import threads
from base.defects import Defects


class BackgroundJobs:
    """Runs jobs in their order; one that raises is reported, and the next one runs."""

    def __init__(self, name: str, defects: Defects) -> None:
        """``name`` is the thread's. Jobs may be put at once; they run from :meth:`start` on."""
        self._name = name
        self._defects = defects
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the thread; it does not keep the program alive. Raises NoThread."""
        threads.started(self._run, self._name)

    def put(self, job: Callable[[], object]) -> None:
        """Have this job run after those before it, from any thread."""
        self._jobs.put(job)

    def close(self) -> None:
        """Let the thread end after the jobs that it has; it is not waited for."""
        self._jobs.put(None)

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            with self._defects.contained(f"thread {self._name}"):
                job()
