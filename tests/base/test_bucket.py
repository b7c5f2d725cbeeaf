"""Tokens run out and come back."""

from __future__ import annotations

from base.bucket import Bucket


def test_tokens_run_out_and_come_back_one_an_interval() -> None:
    bucket = Bucket(interval_seconds=10, burst=2)

    taken = [bucket.take(now) for now in (100, 100, 100, 109.9, 110, 110, 119.9, 120)]

    assert taken == [True, True, False, False, True, False, False, True]


def test_there_are_never_more_tokens_than_the_burst() -> None:
    bucket = Bucket(interval_seconds=1, burst=2)

    assert [bucket.take(1000) for _ in range(3)] == [True, True, False]
