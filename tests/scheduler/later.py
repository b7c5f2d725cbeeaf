# SPDX-License-Identifier: Apache-2.0
"""Work that is put off, and done when a test says so."""

from __future__ import annotations

from collections.abc import Callable


class Later:
    """What a table or tables are given as ``later``."""

    def __init__(self) -> None:
        self._jobs: list[Callable[[], object]] = []

    def __call__(self, job: Callable[[], object]) -> None:
        self._jobs.append(job)

    def first(self, count: int) -> int:
        """Do so many of what is due; how many jobs that was."""
        jobs, self._jobs = self._jobs[:count], self._jobs[count:]
        for job in jobs:
            job()
        return len(jobs)

    def run(self) -> int:
        """Do all that is due; how many jobs that was."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job()
        return len(jobs)
