# SPDX-License-Identifier: Apache-2.0
"""What tests leave behind ends with the one that fails, and nothing else is started anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.reused import Reused


@dataclass(slots=True)
class Session:
    """One whose tests fail as they are told to."""

    testsfailed: int = 0


@dataclass(slots=True)
class Clusters:
    """Which were started, and which run; from ``broken`` on none starts."""

    broken: int = 9
    failure: type[BaseException] = OSError
    started: int = 0
    running: set[int] = field(default_factory=set)

    @contextlib.contextmanager
    def start(self) -> Iterator[int]:
        self.started += 1
        if self.started >= self.broken:
            raise self.failure(f"start {self.started}")
        number = self.started
        self.running.add(number)
        try:
            yield number
        finally:
            self.running.remove(number)


def outcomes(clusters: Clusters, *fails: bool) -> list[int]:
    """Which cluster each of so many tests got."""
    session, found = Session(), []
    reused = Reused(clusters.start)
    for fail in fails:
        with reused.lent(session) as number:
            assert clusters.running == {number}
            found.append(number)
            session.testsfailed += fail
    reused.close()
    return found


def test_tests_share_one_until_one_of_them_fails() -> None:
    clusters = Clusters()

    assert outcomes(clusters, False, False, True, False, True, True) == [1, 1, 1, 2, 2, 3]
    assert clusters.running == set()


def test_nothing_is_started_before_it_is_needed_or_after_the_last() -> None:
    clusters = Clusters()
    Reused(clusters.start).close()
    assert clusters.started == 0
    outcomes(clusters, False, True)
    assert clusters.started == 1


@pytest.mark.parametrize("failure", [OSError, pytest.fail.Exception])
def test_one_that_does_not_start_is_not_tried_by_every_test(failure: type[BaseException]) -> None:
    """As a rule it takes minutes to fail, and may end by the time limit of the test."""
    clusters, session = Clusters(broken=1, failure=failure), Session()
    reused = Reused(clusters.start)
    for _ in range(3):
        with pytest.raises(failure, match="1"), reused.lent(session):
            pass
    assert clusters.started == 1
