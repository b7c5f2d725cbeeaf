# SPDX-License-Identifier: Apache-2.0
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


def test_the_wait_is_until_the_next_token_and_asking_takes_none() -> None:
    bucket = Bucket(interval_seconds=10, burst=2)
    fresh = bucket.wait_seconds(100)
    bucket.take(100)
    bucket.take(104)

    assert (fresh, bucket.wait_seconds(104), bucket.wait_seconds(104)) == (0, 6, 6)
    assert bucket.wait_seconds(200) == 0


def test_a_borrowed_token_is_there_at_once_and_its_time_is_lent_from_the_next() -> None:
    bucket = Bucket(interval_seconds=10, burst=1)
    bucket.take(100)

    borrowed = bucket.wait_seconds(100, borrowed=1)
    bucket.reserve(100)

    assert borrowed == 0
    assert (bucket.wait_seconds(100, borrowed=1), bucket.wait_seconds(100)) == (10, 20)


def test_a_token_that_is_given_back_is_there_again() -> None:
    bucket = Bucket(interval_seconds=10, burst=2)
    for _ in range(2):
        bucket.take(100)
    bucket.give_back()

    assert [bucket.take(100) for _ in range(2)] == [True, False]


def test_reserved_tokens_come_one_after_the_other() -> None:
    bucket = Bucket(interval_seconds=10, burst=1)

    assert [bucket.reserve(100) for _ in range(3)] == [0, 10, 20]
    assert bucket.reserve(130) == 0
