"""A failing source is asked again after 5 to 30 seconds."""

from __future__ import annotations

from agent.backoff import Backoff


def test_waits_double_up_to_thirty_seconds() -> None:
    backoff = Backoff()
    assert [backoff.failed() for _ in range(5)] == [5, 10, 20, 30, 30]


def test_a_success_starts_again_with_the_shortest_wait() -> None:
    backoff = Backoff()
    backoff.failed()
    backoff.failed()
    backoff.succeeded()
    assert backoff.failed() == 5
