# SPDX-License-Identifier: Apache-2.0
"""Threads that are not to be had are refused in one sentence, and leave nothing behind."""

from __future__ import annotations

import threading

import pytest

from base import threads
from base.runtime import Runtime
from base.threads import NoThread
from tests.fakes.thread_limit import allow_threads


def test_a_started_thread_runs_under_its_name_and_keeps_no_program_alive() -> None:
    found: list[tuple[str, bool]] = []

    def run() -> None:
        found.append((threading.current_thread().name, threading.current_thread().daemon))

    threads.started(run, "mine").join()

    assert found == [("mine", True)]


def test_the_sentence_names_the_thread_the_limits_and_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow_threads(monkeypatch, 0)

    with pytest.raises(NoThread, match=r"thread 'mine': .*raise .*RLIMIT_NPROC.*pids\.max") as met:
        threads.started(print, "mine")
    assert isinstance(met.value.__cause__, RuntimeError)


def test_as_many_threads_as_there_are_can_be_made_sure_of_and_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = threading.active_count()
    allow_threads(monkeypatch, 5)
    threads.make_sure(5)
    allow_threads(monkeypatch, 5)
    with pytest.raises(NoThread):
        threads.make_sure(6)

    assert threading.active_count() == before


@pytest.mark.parametrize("number", range(4))
def test_ticks_that_get_no_threads_leave_none_behind(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The clock's, one for each of two ticks, the scheduler's."""
    before = set(threading.enumerate())
    runtime = Runtime()
    allow_threads(monkeypatch, number)
    with pytest.raises(NoThread):
        runtime.start({"a": lambda _now: 1.0, "b": lambda _now: 1.0})
    runtime.stop()

    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_all_threads_of_ticks_are_there_once_they_have_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is to be had later, and yet all ticks run side by side."""
    together = threading.Barrier(3, timeout=60)

    def meet(_now: float) -> float:
        together.wait()
        return 3600.0

    runtime = Runtime()
    allow_threads(monkeypatch, 5)
    runtime.start({"a": meet, "b": meet, "c": meet})
    try:
        while any(tick.steps < 2 for tick in runtime.progress().values()):
            assert not together.broken
    finally:
        runtime.stop()
