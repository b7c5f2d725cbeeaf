# SPDX-License-Identifier: Apache-2.0
"""What is dear to start is lent from test to test, and started anew after one that failed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

Lent = TypeVar("Lent")


class Counting(Protocol):
    """A pytest session, as far as it is asked."""

    @property
    def testsfailed(self) -> int:
        """Tests and fixtures that have failed so far."""


class Reused(Generic[Lent]):
    """One that runs, for the tests of a module.

    A test that fails may leave anything behind: pods, stopped programs, a changed DaemonSet. So
    the next one gets another cluster; only one that could not be started is not tried again.
    """

    def __init__(self, start: Callable[[], contextlib.AbstractContextManager[Lent]]) -> None:
        """Nothing is started before the first test asks."""
        self._start = start
        self._running = contextlib.ExitStack()
        self._lent: list[Lent] = []
        self._failure: BaseException | None = None

    @contextlib.contextmanager
    def lent(self, session: Counting) -> Iterator[Lent]:
        """It, for one test. Raises what its start has raised."""
        failed_before = session.testsfailed
        if self._failure is not None:
            raise self._failure
        if not self._lent:
            try:
                self._lent.append(self._running.enter_context(self._start()))
            except BaseException as error:  # pytest's time limit too
                self._failure = error
                raise
        yield self._lent[0]
        if session.testsfailed > failed_before:
            self.close()

    def close(self) -> None:
        """End it, if it runs."""
        self._lent.clear()
        self._running.close()
