# SPDX-License-Identifier: Apache-2.0
"""How often a program may send requests to its API server."""

from __future__ import annotations

from kube.request_limits import RequestLimits
from tests.kube.clocks import Clock


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
