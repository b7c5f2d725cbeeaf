# SPDX-License-Identifier: Apache-2.0
"""Ticks run at their times, one at a time, whatever the wall clock does."""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo

import apscheduler.schedulers.base
import pytest

from base.runtime import AFTER_A_DEFECT_SECONDS, Runtime, Tick
from base.threads import NoThread

DAY = 86_400.0
SOON = 30.0
"""For something that happens at once, even where the machine is busy."""


class WallClock:
    """A wall clock that can be set, for the runtime and for apscheduler alike."""

    def __init__(self) -> None:
        self.set_by = 0.0

    def __call__(self) -> float:
        return time.time() + self.set_by


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # as called
            return datetime.now(tz) + timedelta(seconds=clock.set_by)

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Shifted)
    return clock


@pytest.fixture
def start(wall: WallClock) -> Iterator[Callable[..., Runtime]]:
    started: list[Runtime] = []

    def make(**ticks: Tick) -> Runtime:
        runtime = Runtime(wall=wall)
        runtime.start(ticks)
        started.append(runtime)
        return runtime

    yield make
    for runtime in started:
        runtime.stop()


def test_each_tick_runs_at_once_and_again_after_the_seconds_it_asks_for(
    start: Callable[..., Runtime],
) -> None:
    runs: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        runs.put(now)
        return 0.05

    start(look=tick)
    times = [runs.get(timeout=SOON) for _ in range(3)]
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(times))


def test_a_hastened_tick_runs_now_though_it_asked_for_an_hour(
    start: Callable[..., Runtime],
) -> None:
    runs: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        runs.put(now)
        return 3600.0

    runtime = start(look=tick)
    runs.get(timeout=SOON)
    runtime.trigger("look")
    assert runs.get(timeout=SOON) > 0


def test_a_tick_hastened_while_it_runs_runs_once_more_and_never_beside_itself(
    start: Callable[..., Runtime],
) -> None:
    began: queue.Queue[int] = queue.Queue()
    go_on: queue.Queue[None] = queue.Queue()
    inside = 0

    def tick(_now: float) -> float:
        nonlocal inside
        inside += 1
        began.put(inside)
        go_on.get(timeout=SOON)
        inside -= 1
        return 3600.0

    runtime = start(look=tick)
    first = began.get(timeout=SOON)
    runtime.trigger("look")
    runtime.trigger("look")
    go_on.put(None)
    second = began.get(timeout=SOON)
    go_on.put(None)
    assert (first, second) == (1, 1)
    with pytest.raises(queue.Empty):
        began.get(timeout=0.3)


def test_a_tick_hastened_while_its_next_run_is_planned_runs_now() -> None:
    runs: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        runs.put(now)
        return 3600.0

    times = itertools.count()

    def uniform(_low: float, _high: float) -> float:
        if next(times) == 0:
            runtime.trigger("look")
        return 1.0

    runtime = Runtime(uniform=uniform)
    runtime.start({"look": tick})
    try:
        assert runs.get(timeout=SOON) < runs.get(timeout=SOON)
    finally:
        runtime.stop()


def test_a_run_that_is_due_before_the_last_one_has_quite_ended_is_not_dropped(
    start: Callable[..., Runtime],
) -> None:
    runs: queue.Queue[float] = queue.Queue()
    interval = sys.getswitchinterval()

    def tick(now: float) -> float:
        runs.put(now)
        return 0.0

    sys.setswitchinterval(1e-6)  # so that the plan is acted on at once, in another thread
    try:
        start(look=tick)
        for _ in range(500):
            runs.get(timeout=SOON)
    finally:
        sys.setswitchinterval(interval)


def test_a_defect_in_one_tick_does_not_end_the_others(
    start: Callable[..., Runtime], caplog: pytest.LogCaptureFixture
) -> None:
    runs: queue.Queue[float] = queue.Queue()

    def broken(_now: float) -> float:
        raise RuntimeError("defect")

    def sound(now: float) -> float:
        runs.put(now)
        return 0.01

    start(broken=broken, sound=sound)
    for _ in range(5):
        runs.get(timeout=SOON)
    assert "internal error" in caplog.text


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_setting_the_clock_by_a_day_neither_stops_nor_hurries_the_ticks(
    start: Callable[..., Runtime], wall: WallClock, step: float
) -> None:
    runs: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        runs.put(now)
        return 0.2

    start(look=tick)
    runs.get(timeout=SOON)
    wall.set_by += step
    times = [runs.get(timeout=SOON) for _ in range(5)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps[1:]) >= 0.2, gaps  # a run that was waiting when the clock was set may be early


def test_waits_are_varied_by_the_given_share(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(jitter_ratio=0.1, uniform=lambda low, _: low)
    planned: list[float] = []
    monkeypatch.setattr(runtime, "_ticks", {"look": lambda _now: 100.0})
    monkeypatch.setattr(runtime, "_plan", lambda _name, seconds: planned.append(seconds))
    runtime._run("look")
    assert planned == [90.0]


def test_a_tick_hastened_before_the_start_is_run_by_the_start_once() -> None:
    """As parts trigger each other's ticks while the program is put together."""
    runs: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        runs.put(now)
        return DAY

    runtime = Runtime()
    runtime.trigger("look")
    runtime.start({"look": tick})
    try:
        runs.get(timeout=SOON)
        runtime.trigger("look")
        runs.get(timeout=SOON)
        assert runs.empty()
    finally:
        runtime.stop()


def test_a_stop_in_the_middle_of_a_round_ends_no_thread_by_an_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    for number in range(100):
        runtime = Runtime()
        runtime.start(dict.fromkeys("abcd", lambda _now: 0.0))
        time.sleep(number / 10_000)
        runtime.stop()
    assert not ended


def test_a_wall_clock_that_was_set_is_logged_with_its_step_and_one_that_was_adjusted_is_not(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    compared = threading.Semaphore(0)
    monkeypatch.setattr("base.runtime.COMPARE_SECONDS", 0.001)
    set_by = 0.0

    def wall() -> float:
        compared.release()
        return time.time() + set_by

    def compare() -> None:
        """Wait until the clocks were read, and read again."""
        while compared.acquire(blocking=False):
            pass
        for _ in range(3):
            assert compared.acquire(timeout=SOON)

    runtime = Runtime(wall=wall)
    runtime.start({"look": lambda _now: DAY})
    try:
        for step in (0.5, DAY, 0.0, -2.0):
            compare()
            set_by += step
        compare()
        assert "clock" in {thread.name for thread in threading.enumerate()}
    finally:
        runtime.stop()
    steps = [vars(each)["step_seconds"] for each in caplog.records
             if each.message == "wall clock changed"]  # fmt: skip
    assert steps == pytest.approx([DAY, -2.0], abs=0.5)


def test_nothing_runs_after_the_stop_and_a_run_in_progress_can_be_waited_for() -> None:
    began, go_on = queue.Queue[float](), threading.Event()

    def tick(now: float) -> float:
        began.put(now)
        go_on.wait(SOON)
        return 0.0

    runtime = Runtime()
    runtime.start({"look": tick})
    began.get(timeout=SOON)
    runtime.stop()
    runtime.trigger("look")
    assert not runtime.wait_until_idle(0.0)
    assert runtime.progress()["look"].running
    go_on.set()
    assert runtime.wait_until_idle(SOON)
    assert began.empty()
    progress = runtime.progress()["look"]
    assert (progress.steps, progress.running) == (2, False)


def test_a_runtime_that_was_not_started_can_be_stopped_and_has_no_progress() -> None:
    runtime = Runtime()
    runtime.stop()
    assert runtime.wait_until_idle(0.0)
    assert runtime.progress() == {}


def test_a_tick_that_waits_is_not_due_before_its_time() -> None:
    ran = threading.Event()
    ahead = 0.0

    def tick(_now: float) -> float:
        ran.set()
        return DAY

    runtime = Runtime(clock=lambda: time.monotonic() + ahead)
    runtime.start({"look": tick})
    try:
        assert ran.wait(SOON)
        while runtime.progress()["look"].steps < 2:
            time.sleep(0.01)
        assert not runtime.progress()["look"].due
        ahead = DAY - 60
        assert not runtime.progress()["look"].due
        ahead = DAY
        assert runtime.progress()["look"].due
    finally:
        runtime.stop()


def test_a_tick_gets_the_monotonic_time() -> None:
    times: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        times.put(now)
        return DAY

    runtime = Runtime(clock=lambda: 1234.5)
    runtime.start({"look": tick})
    try:
        assert times.get(timeout=SOON) == 1234.5
    finally:
        runtime.stop()


@pytest.mark.parametrize(("ratio", "bounds"), [(0.25, (0.75, 1.25)), (0.0, (1.0, 1.0))])
def test_both_bounds_of_the_variation_are_as_wide(
    ratio: float, bounds: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return 1.0

    runtime = Runtime(jitter_ratio=ratio, uniform=uniform)
    monkeypatch.setattr(runtime, "_ticks", {"look": lambda _now: DAY})
    monkeypatch.setattr(runtime, "_plan", lambda _name, _seconds: None)
    runtime._run("look")
    assert drawn == [bounds]


def test_a_tick_that_raises_runs_again_after_its_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[float] = []

    def broken(_now: float) -> float:
        raise RuntimeError("defect")

    runtime = Runtime()
    monkeypatch.setattr(runtime, "_ticks", {"look": broken})
    monkeypatch.setattr(runtime, "_plan", lambda _name, seconds: planned.append(seconds))
    runtime._run("look")
    assert planned == [AFTER_A_DEFECT_SECONDS]


def test_a_run_that_comes_due_in_the_middle_of_another_follows_it_once(
    start: Callable[..., Runtime],
) -> None:
    began: queue.Queue[float] = queue.Queue()
    go_on: queue.Queue[None] = queue.Queue()

    def tick(now: float) -> float:
        began.put(now)
        go_on.get(timeout=SOON)
        return DAY

    runtime = start(look=tick)
    began.get(timeout=SOON)
    for _ in range(3):
        runtime._run("look")
    go_on.put(None)
    began.get(timeout=SOON)
    go_on.put(None)
    runtime.stop()
    assert runtime.wait_until_idle(SOON)
    assert began.empty()


def test_a_tick_that_is_hastened_is_planned_for_now_in_place_of_its_time(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        ran.put(now)
        return DAY

    runtime = start(look=tick)
    for _ in range(3):
        ran.get(timeout=SOON)
        while runtime.progress()["look"].running:
            time.sleep(0.01)
        assert len(runtime._scheduler.get_jobs()) == 1
        runtime.trigger("look")
    ran.get(timeout=SOON)
    while runtime.progress()["look"].running:
        time.sleep(0.01)
    planned: list[tuple[str, float]] = []
    monkeypatch.setattr(runtime, "_plan", lambda name, seconds: planned.append((name, seconds)))
    runtime.trigger("look")
    assert planned == [("look", 0.0)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_ticks_are_planned_for_the_same_instant_in_every_time_zone(
    zone: str, start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: queue.Queue[float] = queue.Queue()

    def tick(now: float) -> float:
        ran.put(now)
        return DAY

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        runtime = start(look=tick)
        ran.get(timeout=SOON)
        while runtime.progress()["look"].running:
            time.sleep(0.01)
        (job,) = runtime._scheduler.get_jobs()
        assert job.next_run_time.timestamp() == pytest.approx(time.time() + DAY, abs=60)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("refused", "named"),
    [("clock", "clock"), ("ThreadPoolExecutor", "ticks"), ("APScheduler", "ticks")],
)
def test_a_start_without_a_thread_for_each_tick_is_refused_and_can_be_stopped(
    refused: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        start(thread)

    def tick(now: float) -> float:
        ran.append(now)
        return DAY

    ran: list[float] = []
    runtime = Runtime()
    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(NoThread, match=f"cannot start the thread '{named}': "):
        runtime.start({"look": tick})
    runtime.stop()
    assert not ran
