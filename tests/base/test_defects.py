# SPDX-License-Identifier: Apache-2.0
"""What raises unexpectedly is counted, logged once, and goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from base.background import BackgroundJobs
from base.defects import AGAIN_SECONDS, Defects
from base.runtime import Runtime

SOON = 30.0


class Counted:
    """Defects with a clock that is set by hand."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 0.0
        self.defects = Defects(self._add, clock=lambda: self.now)

    def _add(self) -> None:
        self.count += 1

    def meets(self, part: str, error: Exception) -> None:
        with self.defects.contained(part):
            raise error


@pytest.fixture
def counted() -> Counted:
    return Counted()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Part and kind of exception of each line that was logged."""
    return [
        (getattr(record, "part", ""), record.exc_info[0].__name__)
        for record in caplog.records
        if record.message == "internal error" and record.exc_info and record.exc_info[0]
    ]


def test_the_same_defect_is_counted_each_time_and_logged_once(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        counted.meets("tick a", ValueError(number))
    assert (counted.count, lines(caplog)) == (100, [("tick a", "ValueError")])


def test_another_defect_and_another_part_are_logged_too(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    counted.meets("tick a", ValueError())
    counted.meets("tick b", ValueError())
    counted.meets("tick a", KeyError())
    assert lines(caplog) == [
        ("tick a", "ValueError"),
        ("tick b", "ValueError"),
        ("tick a", "KeyError"),
    ]


@pytest.mark.parametrize("began", [0.0, 0.7 * AGAIN_SECONDS, 12.9 * AGAIN_SECONDS])
def test_a_defect_that_lasts_is_logged_again_an_hour_later(
    counted: Counted, caplog: pytest.LogCaptureFixture, began: float
) -> None:
    for seconds, expected in (
        (0, 1),
        (AGAIN_SECONDS - 1, 1),
        (AGAIN_SECONDS, 2),
        (2 * AGAIN_SECONDS - 1, 2),
        (2 * AGAIN_SECONDS, 3),
    ):
        counted.now = began + seconds
        counted.meets("tick a", ValueError())
        assert len(lines(caplog)) == expected


def test_two_defects_in_turn_are_logged_once_each(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        counted.meets("tick a", ValueError())
        counted.meets("tick a", KeyError())
    assert lines(caplog) == [("tick a", "ValueError"), ("tick a", "KeyError")]


def test_a_job_that_raises_does_not_end_those_after_it(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    done: queue.Queue[int] = queue.Queue()
    jobs = BackgroundJobs("errands", counted.defects)
    jobs.put(lambda: 1 / 0)
    jobs.start()
    jobs.put(lambda: done.put(1))
    jobs.put(lambda: 1 / 0)
    jobs.put(lambda: done.put(2))
    assert [done.get(timeout=SOON), done.get(timeout=SOON)] == [1, 2]
    assert (counted.count, lines(caplog)) == (2, [("thread errands", "ZeroDivisionError")])
    jobs.close()


def test_closing_ends_the_thread_after_the_jobs_that_there_are(counted: Counted) -> None:
    done: queue.Queue[threading.Thread] = queue.Queue()
    jobs = BackgroundJobs("errands", counted.defects)
    jobs.put(lambda: done.put(threading.current_thread()))
    jobs.close()
    jobs.start()
    thread = done.get(timeout=SOON)
    assert (thread.name, thread.daemon) == ("errands", True)
    thread.join(SOON)
    assert not thread.is_alive()


def test_a_tick_that_raises_is_counted_and_logged(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    met = threading.Event()

    def broken(_now: float) -> float:
        met.set()
        raise ValueError

    runtime = Runtime(defects=counted.defects)
    runtime.start({"broken": broken})
    assert met.wait(SOON)
    _until(lambda: lines(caplog) == [("tick broken", "ValueError")])  # counted before
    assert counted.count == 1
    runtime.stop()


def test_a_thread_that_ends_by_an_exception_is_counted_and_logged(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    before = threading.excepthook
    with counted.defects.of_threads():
        for error in (ValueError, SystemExit):
            thread = threading.Thread(target=_raiser(error), name="mine")
            thread.start()
            thread.join()
    assert (counted.count, lines(caplog)) == (1, [("thread mine", "ValueError")])
    assert threading.excepthook is before


def test_a_thread_that_is_gone_is_one_of_unknown_name(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    """As the interpreter reports one that outlived its object."""
    with counted.defects.of_threads():
        ended = threading.ExceptHookArgs((ValueError, ValueError(), None, None))
        threading.excepthook(ended)
        threading.excepthook(threading.ExceptHookArgs((ValueError, None, None, None)))
    assert (counted.count, lines(caplog)) == (1, [("thread of unknown name", "ValueError")])


def test_without_a_count_and_a_clock_a_defect_is_logged_once_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    defects = Defects()
    for _ in range(2):
        with defects.contained("tick a"):
            raise ValueError
    assert lines(caplog) == [("tick a", "ValueError")]


def test_what_ends_a_program_is_not_contained(counted: Counted) -> None:
    with pytest.raises(KeyboardInterrupt), counted.defects.contained("tick a"):
        raise KeyboardInterrupt
    assert counted.count == 0


def _raiser(error: type[BaseException]) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def _until(true: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(int(SOON / 0.05)):
        if true():
            return
        waited.wait(0.05)
    raise AssertionError("it did not come")
