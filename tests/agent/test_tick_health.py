# SPDX-License-Identifier: Apache-2.0
"""A tick that stands is shown in metrics, and one that has stopped ends the process with a line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.tick_health import TickHealth
from base.tick_watch import START_SECONDS, TickProgress, TickWatch
from exporters.gpuscape.agent_metrics import AgentMetrics
from tests.log_lines import log_lines

RUN_SECONDS = 20.0
STEP_SECONDS = 5.0


class Ticks:
    """One tick that makes no step any more, checked every five seconds."""

    def __init__(self, *, running: bool, due: bool) -> None:
        self._now = 1000.0
        self._progress = {"sample": TickProgress(steps=3, running=running, due=due)}
        watch = TickWatch(lambda: self._progress, run_seconds=RUN_SECONDS, clock=lambda: self._now)
        self._own = AgentMetrics("0", lambda: self._now)
        self._health = TickHealth(watch, self._own)
        assert not self._health.has_stopped()

    def checks(self) -> Iterator[tuple[bool, str]]:
        """Whether it has stopped and what the metric shows, check by check."""
        while True:
            self._now += STEP_SECONDS
            stopped = self._health.has_stopped()
            lines = self._own.render_now().decode().splitlines()
            (shown,) = (it for it in lines if it.startswith("gpuscape_tick_stalled_seconds "))
            yield stopped, shown.rpartition(" ")[2]


@pytest.mark.parametrize(
    ("running", "limit", "why"),
    [
        (True, RUN_SECONDS, "its run does not end"),
        (False, START_SECONDS, "it is due and no thread runs it"),
    ],
)
def test_a_tick_that_stands_is_shown_and_has_stopped_after_its_limit(
    running: bool, limit: float, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = int(limit / STEP_SECONDS)
    checks = Ticks(running=running, due=not running).checks()
    found = [next(checks) for _ in range(steps)]
    assert [stopped for stopped, _ in found] == [False] * (steps - 1) + [True]
    assert [shown for _, shown in found] == [str(STEP_SECONDS * (at + 1)) for at in range(steps)]
    fields = {"tick": "sample", "seconds": limit, "why": why}
    assert log_lines(caplog) == [("ERROR", "tick stopped", fields)]


def test_a_tick_that_waits_for_its_time_stands_for_no_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checks = Ticks(running=False, due=False).checks()
    assert [next(checks) for _ in range(20)] == [(False, "0.0")] * 20
    assert log_lines(caplog) == []
