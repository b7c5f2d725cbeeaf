# SPDX-License-Identifier: Apache-2.0
"""What is kept of a series says what all of its values would."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.compare.tracks import SeriesTrack


def track(*values: float, step_seconds: float = 10.0) -> SeriesTrack:
    made = SeriesTrack(values[0], 0.0, 1)
    for number, value in enumerate(values[1:], 1):
        made.add(value, number * step_seconds, number + 1)
    return made


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_mean_and_spread_are_those_of_all_values(values: list[float]) -> None:
    made = track(*values)
    assert made.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert made.spread / made.rounds == pytest.approx(statistics.pvariance(values), abs=1e-2)
    assert (made.low, made.high, made.last) == (min(values), max(values), values[-1])
    assert made.rounds == len(values)


def test_a_value_that_was_scraped_twice_counts_once_for_the_noise() -> None:
    assert track(10, 10, 10, 90, 90, 90).noise == 1600 / 2
    assert track(10, 90).noise == 1600 / 2


@pytest.mark.parametrize(
    ("values", "changes", "rate", "step_rate"),
    [
        ((5,), 0, 0.0, 0.0),
        ((5, 5, 5), 0, 0.0, 0.0),
        ((0, 10, 20), 2, 1.0, 0.5),
        ((0, 0, 20), 1, 1.0, 1.0),
        ((100, 110, 4), 2, 0.7, 0.35),  # it began again at zero
    ],
)
def test_a_counters_rate_is_its_increase_over_the_time(
    values: tuple[float, ...], changes: int, rate: float, step_rate: float
) -> None:
    made = track(*values)
    assert (made.changes, made.rate, made.step_rate) == (changes, rate, step_rate)


def test_no_number_is_no_change_as_long_as_it_stays() -> None:
    assert track(math.nan, math.nan).changes == 0
    assert track(math.nan, 1.0).changes == 1
