# SPDX-License-Identifier: Apache-2.0
"""Aims of nodes, and their levels within a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.placement_aims import Aims
from scheduler.rank_levels import LEVELS, ranks, shortfall

BEST = Aims(taken=100, linked=100, job=2, product=1, speed=30_000, slowest=2, nic=40, kept=-10)


def beside_the_best(**less: int) -> int:
    """The rank of a node that is the best one but for this."""
    return ranks([BEST, BEST._replace(**less)])[1]


def test_only_the_best_have_ten() -> None:
    assert ranks([BEST._replace(kept=-11), BEST, BEST]) == [8, 10, 10]


@pytest.mark.parametrize(
    ("less", "rank"),
    [
        ({"kept": -1000}, 8),
        ({"nic": 0}, 7),
        ({"slowest": 0}, 6),
        ({"speed": 29_999}, 5),
        ({"speed": 15_000}, 5),
        ({"speed": 14_999}, 4),
        ({"speed": 0}, 4),
        ({"product": 0, "speed": -30_000}, 3),
        ({"job": 1}, 2),
        ({"job": 0}, 2),
        ({"linked": 0}, 1),
        ({"taken": 99}, 1),
    ],
)
def test_the_rest_go_by_the_first_aim_in_which_they_fall_short(
    less: dict[str, int], rank: int
) -> None:
    assert beside_the_best(**less) == rank


def test_no_data_and_no_set_are_nothing() -> None:
    assert ranks([None, BEST, None]) == [0, 10, 0]
    assert ranks([None, None]) == [0, 0]
    assert ranks([]) == []


def test_every_aim_has_a_level_and_a_weightier_one_no_higher_one() -> None:
    assert list(LEVELS) == list(Aims._fields)
    assert list(LEVELS.values()) == sorted(LEVELS.values())


aims = st.builds(Aims, *[st.integers(-3, 3)] * len(Aims._fields))


@given(st.lists(st.none() | aims, max_size=20))
def test_ranks_are_whole_numbers_from_0_to_10_and_only_the_best_have_10(
    found: list[Aims | None],
) -> None:
    given_ranks = ranks(found)
    assert all(type(rank) is int and 0 <= rank <= 10 for rank in given_ranks)
    best = max(filter(None, found), default=None)
    for own, rank in zip(found, given_ranks, strict=True):
        assert (rank == 10) == (own is not None and own == best)
        assert (rank == 0) == (own is None)
        if own and best and own != best:
            assert rank in (LEVELS[shortfall(own, best)], 4, 5)
