"""How often a program may ask, and how long it waits after failures."""

from __future__ import annotations

import pytest

from base.backoff import Backoff
from kube.api_errors import Busy, Unreachable
from kube.request_limits import RequestLimits
from tests.kube.clocks import Clock, highest, none


def limits(clock: Clock) -> RequestLimits:
    """Those of the agent."""
    return RequestLimits(per_second=2, burst=5, clock=clock, sleep=clock.sleep)


def test_a_burst_passes_and_then_two_a_second() -> None:
    clock = Clock()
    gate = limits(clock)
    for _ in range(7):
        gate.wait()
    assert clock.slept == [0.5, 0.5]


def test_the_burst_grows_back_with_time_and_no_further() -> None:
    clock = Clock()
    gate = limits(clock)
    for _ in range(5):
        gate.wait()
    clock.now += 1.0
    for _ in range(3):
        gate.wait()
    assert clock.slept == [0.5]

    clock.now += 3600
    for _ in range(6):
        gate.wait()
    assert clock.slept == [0.5, 0.5]


def test_threads_that_ask_together_get_turns_of_their_own() -> None:
    """Each reserves its turn before it sleeps: two that wait do not wake together."""
    clock = Clock()
    pauses: list[float] = []
    gate = RequestLimits(per_second=2, burst=1, clock=clock, sleep=pauses.append)
    for _ in range(4):
        gate.wait()
    assert pauses == [0.5, 1.0, 1.5]


def test_a_closed_gate_opens_with_time() -> None:
    clock = Clock()
    gate = limits(clock)
    gate.close(10)
    gate.close(3)
    assert gate.closed_seconds() == 10
    clock.now += 10
    assert gate.closed_seconds() == 0


def test_no_server_closes_the_gate_for_more_than_five_minutes() -> None:
    gate = limits(Clock())
    gate.close(86400)
    assert gate.closed_seconds() == 300


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


@pytest.mark.parametrize(
    ("error", "least"),
    [(Busy("429", retry_after_seconds=7), 7), (Busy("500"), 0), (Unreachable("away"), 0)],
)
def test_what_the_server_asked_for_is_the_least(error: Busy | Unreachable, least: float) -> None:
    assert Backoff(uniform=none).failed(error) == least
    assert Backoff(uniform=highest).failed(error) == least + 1
