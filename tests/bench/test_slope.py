# SPDX-License-Identifier: Apache-2.0
"""The slope of measurements, and how sure it is."""

from __future__ import annotations

import random

import pytest

from tests.bench.slope import slope


def test_a_straight_line_has_its_slope_and_no_doubt() -> None:
    found = slope([(x, 3 + 2 * x) for x in range(10)])

    assert found.estimate == pytest.approx(2)
    assert found.upper == pytest.approx(2)


def test_the_bound_is_what_one_finds_by_hand() -> None:
    """Residuals 0.1, -0.6, 0.7, 0, -0.2: their squares sum to 0.9; x spreads by 10; t is 3.182."""
    found = slope([(1, 2), (2, 3), (3, 6), (4, 7), (5, 8.5)])

    assert found.estimate == pytest.approx(1.7)
    assert found.upper == pytest.approx(1.7 + 3.182 * (0.9 / 3 / 10) ** 0.5, rel=0.01)


def test_the_bound_holds_in_as_many_cases_as_it_says() -> None:
    chance = random.Random(1)  # noqa: S311  # has to repeat
    runs = [slope([(x, x + chance.gauss(0, 5)) for x in range(12)]).upper for _ in range(2000)]

    above = sum(upper >= 1 for upper in runs) / len(runs)

    assert above == pytest.approx(0.975, abs=0.01)
