# SPDX-License-Identifier: Apache-2.0
"""Calls that are made at once."""

from __future__ import annotations

import threading

import pytest

from base.concurrent_calls import concurrently
from tests.fakes.thread_limit import allow_threads

SOON = 30.0


def test_results_come_in_the_order_in_which_calls_end() -> None:
    first_may_end = threading.Event()

    def slow() -> str:
        assert first_may_end.wait(SOON)
        return "slow"

    results = concurrently([slow, lambda: "quick"], "test")
    assert next(results) == "quick"
    first_may_end.set()
    assert list(results) == ["slow"]


def test_what_a_call_raises_is_raised_where_its_result_is_taken() -> None:
    def fail() -> str:
        raise OSError("defect")

    with pytest.raises(OSError, match="defect"):
        list(concurrently([fail], "test"))


def test_without_threads_the_calls_are_made_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow_threads(monkeypatch, 0)
    assert list(concurrently([lambda: 1, lambda: 2], "test")) == [1, 2]


def test_calls_are_made_in_threads_of_the_name_that_keep_no_program_alive() -> None:
    def seen() -> tuple[str, bool]:
        thread = threading.current_thread()
        return thread.name, thread.daemon

    assert list(concurrently([seen, seen], "answers")) == [("answers", True)] * 2


def test_all_calls_are_begun_before_a_result_is_taken() -> None:
    together = threading.Barrier(3)

    def meet() -> int:
        return together.wait(SOON)

    assert sorted(concurrently([meet] * 3, "test")) == [0, 1, 2]


def test_no_calls_have_no_results() -> None:
    assert list(concurrently([], "test")) == []
