# SPDX-License-Identifier: Apache-2.0
"""Scores as one number, and their levels within a call."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.score import (
    BROKEN,
    FILLED,
    FULL_SPEED,
    KEPT_WHOLE,
    Aims,
    aims,
    completed_score,
    score,
    with_speed,
)
from scheduler.rank_levels import ranks

BEST = Aims(
    taken=100, linked=100, speed=FULL_SPEED, whole=FILLED, share=5, clique=1, nic=40, kept=2000
)


def beside_the_best(**less: int) -> int:
    """The rank of an outcome that is the best one's but for this."""
    return ranks([score(BEST), score(replace(BEST, **less))])[1]


def test_only_the_best_have_ten() -> None:
    worse = replace(BEST, kept=1999)
    assert ranks([score(worse), score(BEST), score(BEST)]) == [8, 10, 10]


@pytest.mark.parametrize(
    ("less", "rank"),
    [
        ({"kept": 0}, 8),
        ({"nic": 0}, 7),
        ({"clique": 0}, 6),
        ({"share": 0}, 5),
        ({"whole": KEPT_WHOLE}, 4),
        ({"whole": BROKEN}, 4),
        ({"speed": FULL_SPEED - 1}, 3),
        ({"speed": FULL_SPEED // 2}, 2),
        ({"speed": 0}, 1),
        ({"linked": 0}, 1),
        ({"taken": 99}, 1),
    ],
)
def test_the_rest_go_by_the_first_aim_in_which_they_fall_short(
    less: dict[str, int], rank: int
) -> None:
    assert beside_the_best(**less) == rank


def test_no_data_and_no_set_are_nothing() -> None:
    assert ranks([None, score(BEST), 0]) == [0, 10, 0]
    assert ranks([None, 0]) == [0, 0]
    assert ranks([]) == []


scores = st.lists(st.none() | st.integers(0, 2**53 - 1), max_size=20)


@given(scores)
def test_ranks_are_whole_numbers_from_0_to_10_in_the_order_of_the_scores(
    given_scores: list[int | None],
) -> None:
    found = ranks(given_scores)
    ordered = [rank for _, rank in sorted(zip([s or 0 for s in given_scores], found, strict=True))]
    assert ordered == sorted(ordered)
    assert all(type(rank) is int and 0 <= rank <= 10 for rank in found)
    assert max(found, default=10) == (10 if any(given_scores) else max(found, default=10))


@given(st.integers(0, 2**53 - 1))
def test_a_score_is_its_aims(number: int) -> None:
    assert score(aims(number)) == number


@given(st.integers(0, 2**53 - 1))
def test_what_is_of_the_fleet_changes_nothing_else(number: int) -> None:
    table = score(replace(aims(number), share=0, clique=0))
    assert aims(completed_score(table, share=3, in_clique=True)) == replace(
        aims(table), share=3, clique=1
    )
    assert aims(completed_score(table, share=0, in_clique=False)) == aims(table)


@given(st.integers(0, 2**53 - 1), st.integers(0, FULL_SPEED))
def test_another_speed_changes_nothing_else(number: int, speed: int) -> None:
    assert aims(with_speed(number, speed)) == replace(aims(number), speed=speed)


def test_an_aim_that_is_weightier_outweighs_all_that_come_after() -> None:
    names = [field.name for field in fields(Aims)]
    for at, name in enumerate(names):
        low = Aims(**dict.fromkeys(names, 0) | dict.fromkeys(names[at + 1 :], 10**9))
        high = Aims(**dict.fromkeys(names, 0) | {name: 1})
        assert score(low) < score(high), name


def test_an_aim_outside_of_its_field_counts_as_the_nearest() -> None:
    assert aims(score(replace(BEST, kept=-5, speed=10**9))) == replace(
        BEST, kept=0, speed=2**16 - 1
    )
