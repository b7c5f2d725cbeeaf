# SPDX-License-Identifier: Apache-2.0
"""A tick that has stopped is found, whatever stopped it, and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from base.runtime import Runtime
from base.tick_watch import LONGEST_STEP_SECONDS, START_SECONDS, Stall, TickProgress, TickWatch

pytestmark = pytest.mark.filterwarnings(
    # a scheduler's thread that dies is meant here
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)

RUN_SECONDS = 100.0
SOON = 30.0


class Ticks:
    """Progress as a test sets it, and a watch over it with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.progress: dict[str, TickProgress] = {}
        self.watch = TickWatch(
            lambda: self.progress, run_seconds=RUN_SECONDS, clock=lambda: self.now
        )

    def stand(self, *, steps: int, running: bool, due: bool) -> None:
        self.progress["read"] = TickProgress(steps=steps, running=running, due=due)

    def check(self, after_seconds: float) -> Stall | None:
        self.now += after_seconds
        return self.watch.check()


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.mark.parametrize(("running", "limit"), [(True, RUN_SECONDS), (False, START_SECONDS)])
def test_a_tick_without_progress_has_stopped_after_the_limit_and_stalls_before(
    ticks: Ticks, running: bool, limit: float
) -> None:
    ticks.stand(steps=3, running=running, due=True)
    assert ticks.check(5.0) is None
    for passed in range(5, int(limit), 5):
        stall = ticks.check(5.0)
        assert stall == Stall(tick="read", seconds=passed, running=running, has_stopped=False)
    stall = ticks.check(5.0)
    assert stall == Stall(tick="read", seconds=limit, running=running, has_stopped=True)


def test_a_tick_that_waits_for_its_time_stalls_never(ticks: Ticks) -> None:
    ticks.stand(steps=3, running=False, due=False)
    assert [ticks.check(10.0) for _ in range(50)] == [None] * 50


def test_each_step_counts_anew(ticks: Ticks) -> None:
    for steps in range(50):
        ticks.stand(steps=steps, running=True, due=True)
        assert ticks.check(10.0) is None
        assert ticks.check(10.0) == Stall(
            tick="read", seconds=10.0, running=True, has_stopped=False
        )


def test_time_in_which_the_whole_program_stood_still_blames_no_tick(ticks: Ticks) -> None:
    ticks.stand(steps=3, running=False, due=True)
    ticks.check(5.0)
    stall = ticks.check(3600.0)
    assert stall is not None
    assert (stall.seconds, stall.has_stopped) == (LONGEST_STEP_SECONDS, False)


def test_one_that_has_stopped_comes_before_one_that_runs_for_longer(ticks: Ticks) -> None:
    ticks.stand(steps=3, running=True, due=True)
    for _ in range(6):
        ticks.check(10.0)
    ticks.progress["watch"] = TickProgress(steps=0, running=False, due=True)
    stalls = [ticks.check(10.0) for _ in range(4)]
    assert [stall and (stall.tick, stall.has_stopped) for stall in stalls] == [
        ("read", False),
        ("read", False),
        ("read", False),
        ("watch", True),
    ]


# over a real runtime


@pytest.fixture
def start() -> Iterator[Callable[..., Runtime]]:
    started: list[Runtime] = []

    def make(**ticks: Callable[[float], float]) -> Runtime:
        started.append(Runtime())
        started[-1].start(ticks)
        return started[-1]

    yield make
    for runtime in started:
        runtime.stop()


def stopped(runtime: Runtime) -> str | None:
    """The tick that a watch finds after minutes, checking every second of a clock that runs on."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    watch = TickWatch(runtime.progress, run_seconds=RUN_SECONDS, clock=clock)
    found = None
    for _ in range(200):
        stall = watch.check()
        found = stall.tick if stall is not None and stall.has_stopped else None
    return found


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_a_tick_whose_thread_ends_has_stopped(start: Callable[..., Runtime]) -> None:
    def die(_now: float) -> float:
        raise SystemExit

    runtime = start(die=die, live=lambda _now: 3600.0)
    until(lambda: stopped(runtime) == "die")
    assert runtime.progress()["die"].running is False
    assert runtime.wait_until_idle(SOON)


def test_a_tick_that_does_not_end_has_stopped(start: Callable[..., Runtime]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(_now: float) -> float:
        begun.set()
        go_on.wait()
        return 3600.0

    runtime = start(hang=hang, live=lambda _now: 3600.0)
    begun.wait(SOON)
    try:
        until(lambda: stopped(runtime) == "hang")
    finally:
        go_on.set()
    until(lambda: stopped(runtime) is None)


def test_ticks_whose_scheduler_has_died_have_stopped(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start(live=lambda _now: 0.2)
    until(lambda: stopped(runtime) is None)

    def die() -> float:
        raise MemoryError

    monkeypatch.setattr(runtime._scheduler, "_process_jobs", die)
    until(lambda: stopped(runtime) == "live")


def test_a_tick_that_fails_is_run_again_and_has_not_stopped(
    start: Callable[..., Runtime],
) -> None:
    def fail(_now: float) -> float:
        raise RuntimeError("defect")

    runtime = start(fail=fail)
    until(lambda: runtime.progress()["fail"].steps == 2)
    assert stopped(runtime) is None
