# SPDX-License-Identifier: Apache-2.0
"""One agent's turn: what it asks, what it makes of the answer, and when it may begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cluster.startup_spread import (
    AT_ONCE,
    DONE_SECONDS,
    FIRST_SECONDS,
    LARGEST,
    PATIENCE_SECONDS,
    UNKNOWN_SECONDS,
    StartupSpread,
    moments_for,
    moments_within,
)
from api import names
from kube.api import DAEMON_SETS
from kube.api_errors import ApiError, Busy, Forbidden, Unauthorized, Unreachable
from tests.fakes.api import FakeApi
from tests.log_lines import log_lines

NAMESPACE = "gpuscape"


class Scene:
    """An agent that starts at 100 s, draws the latest of everything, and its API server."""

    def __init__(self, *, agents: int | None, spread: float | None = None) -> None:
        self.now = 100.0
        self.api = FakeApi()
        if agents is not None:
            body = {
                "metadata": {"name": names.AGENT_DAEMON_SET},
                "status": {"desiredNumberScheduled": agents},
            }
            self.api.server.create(DAEMON_SETS, body, NAMESPACE, manager="controller")
        self.turn = StartupSpread(
            self.api,
            namespace=NAMESPACE,
            spread_seconds=spread,
            clock=lambda: self.now,
            uniform=lambda _low, high: high,
        )

    def ask(self, seconds: float = 0.0) -> float:
        """Let time pass, then run the tick."""
        self.now += seconds
        return self.turn.ask(self.now)

    def waits(self) -> tuple[float, float, float]:
        """For watch, policies and write."""
        turn, now = self.turn, self.now
        return turn.until_watch(), turn.until_confine(now), turn.until_write(now)


def test_it_asks_once_and_has_its_moments_by_the_number() -> None:
    scene = Scene(agents=100)
    assert scene.ask() == FIRST_SECONDS
    assert scene.api.calls == []
    assert scene.waits() == (UNKNOWN_SECONDS,) * 3
    assert scene.ask(FIRST_SECONDS) == DONE_SECONDS
    (call,) = scene.api.calls
    assert (call.verb, call.resource, call.name, call.namespace) == (
        "get",
        DAEMON_SETS,
        "gpuscape-agent",
        NAMESPACE,
    )
    assert scene.waits() == pytest.approx((0.0, 2.5, 2.5))
    scene.now += 1.5
    assert scene.waits() == pytest.approx((0.0, 1.0, 1.0))
    scene.now += 5.0
    assert scene.waits() == (0.0, 0.0, 0.0)
    assert scene.ask() == DONE_SECONDS
    assert len(scene.api.calls) == 1


def test_the_number_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    Scene(agents=7).ask(FIRST_SECONDS)
    assert log_lines(caplog) == [("INFO", "start spread chosen", {"agents": 7})]


@pytest.mark.parametrize("spread", [0.0, 30.0, 90.0])
def test_where_the_spread_is_set_nothing_is_asked(spread: float) -> None:
    scene = Scene(agents=5000, spread=spread)
    assert scene.ask(FIRST_SECONDS) == DONE_SECONDS
    assert scene.api.calls == []
    scene.now = 100.0
    assert scene.waits() == (0.0, min(spread, 45.0), spread)


@pytest.mark.parametrize(
    "error",
    [
        Busy("429", retry_after_seconds=1.0),
        Busy("500"),
        Unreachable("no route"),
        Unauthorized("401"),
    ],
)
def test_a_server_that_cannot_answer_is_asked_again_with_backoff(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(agents=3)
    scene.api.fail("get", error, times=3)
    asked_after = error.retry_after_seconds or 0.0
    scene.ask(FIRST_SECONDS)
    for wait in (1.0, 2.0, 4.0):
        assert scene.ask() == pytest.approx(wait + asked_after)
        assert scene.waits() == (UNKNOWN_SECONDS,) * 3
        scene.now += wait + asked_after
    assert scene.ask() == DONE_SECONDS
    assert len(scene.api.calls) == 4
    assert caplog.messages.count("agents not counted") == 1


def test_after_a_minute_without_an_answer_it_goes_by_the_largest_cluster() -> None:
    scene = Scene(agents=3)
    scene.api.fail("get", Unreachable("no route"), times=None)
    start = scene.now
    while (wait := scene.ask()) < DONE_SECONDS:
        assert wait > 0
        scene.now += wait
    assert scene.now == start + PATIENCE_SECONDS
    assert scene.waits() == pytest.approx((90.0, 125.0, 125.0))


@pytest.mark.parametrize("missing", ["right", "object"])
def test_without_the_right_or_the_object_it_goes_by_the_largest_at_once(
    missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(agents=3 if missing == "right" else None)
    if missing == "right":
        scene.api.fail("get", Forbidden("403"), times=None)
    assert scene.ask(FIRST_SECONDS) == DONE_SECONDS
    assert scene.waits() == pytest.approx((90.0, 125.0, 125.0))
    assert caplog.messages == ["agents not counted"]


def test_a_number_that_is_not_there_yet_is_no_number_and_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(agents=0)
    assert scene.ask(FIRST_SECONDS) == 1.0
    body = {"status": {"desiredNumberScheduled": 2}}
    scene.api.server.patch(
        DAEMON_SETS, names.AGENT_DAEMON_SET, body, NAMESPACE, manager="controller"
    )
    assert scene.ask(1.0) == DONE_SECONDS
    assert scene.waits()[2] == pytest.approx(0.05)
    assert caplog.messages == []


@given(
    agents=st.integers(1, 20_000),
    draw=st.floats(0.0, 1.0),
)
def test_watch_and_policies_come_before_the_write_whatever_is_drawn(
    agents: int, draw: float
) -> None:
    found = moments_for(agents, 100.0, lambda low, high: low + (high - low) * draw)
    assert 100.0 <= found.watch <= found.write + 1e-9 <= 100.0 + min(agents, LARGEST) * 0.025 + 2e-9
    assert 100.0 <= found.confine <= found.write + 1e-9
    if agents <= AT_ONCE:
        assert found.watch == 100.0


def test_nobody_begins_early_in_a_large_fleet_and_few_do_within_a_time_that_is_set() -> None:
    early = moments_for(5000, 0.0, lambda low, _high: low)
    assert (early.watch, early.write) == pytest.approx((20.0, 30.0))
    draws = iter([0.0, 0.25])
    assert moments_within(90.0, 0.0, lambda _low, high: high * next(draws)).write == 45.0
