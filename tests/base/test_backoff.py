# SPDX-License-Identifier: Apache-2.0
"""Waits after failures in a row grow, are spread, and start again after a success."""

from __future__ import annotations

from base.backoff import Backoff


def highest(_low: float, high: float) -> float:
    """The draw that is worst for whoever waits."""
    return high


def test_waits_are_drawn_from_a_bound_that_doubles_to_a_minute() -> None:
    backoff = Backoff(uniform=highest)
    assert [backoff.failed() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    backoff.succeeded()
    assert backoff.failed() == 1


def test_the_jitter_is_full() -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    backoff = Backoff(uniform=uniform)
    backoff.failed()
    backoff.failed()
    assert drawn == [(0, 1), (0, 2)]


def test_without_jitter_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first_seconds=5, longest_seconds=30, uniform=None)
    assert [backoff.failed() for _ in range(5)] == [5, 10, 20, 30, 30]


def test_a_success_starts_again_with_the_shortest_wait() -> None:
    backoff = Backoff(first_seconds=5, longest_seconds=30, uniform=None)
    backoff.failed()
    backoff.failed()
    backoff.succeeded()
    assert backoff.failed() == 5


def test_what_a_server_asked_for_comes_on_top() -> None:
    assert Backoff(uniform=lambda low, _high: low).failed(7) == 7
    assert Backoff(uniform=highest).failed(7) == 8
    assert Backoff(uniform=highest).failed(None) == 1
