# SPDX-License-Identifier: Apache-2.0
"""How rounds of the throughput benchmark become a row of its page."""

from __future__ import annotations

import pytest

from tests.bench.throughput import IDLE, NONE, OURS, ZEROS, Case, ratio, row


def test_a_ratio_is_the_geometric_mean_of_the_rounds_own_ratios() -> None:
    """Of 2 and 0.5 that is 1, however fast the machine was in each round."""
    found = ratio({OURS: [200, 5], ZEROS: [100, 10]}, OURS, ZEROS)
    assert found.mean == pytest.approx(1)
    assert found.least < 0.5


def test_the_bound_is_students_with_one_degree_of_freedom_less_than_rounds() -> None:
    """Logarithms 0, 0.1, 0.2, 0.3: mean 0.15, standard error 0.0645, t(3) at 95 % is 2.353."""
    rounds = [2.718281828459045 ** (number / 10) for number in range(4)]
    found = ratio({OURS: rounds, ZEROS: [1.0] * 4}, OURS, ZEROS)
    assert found.least == pytest.approx(2.718281828459045 ** (0.15 - 2.353 * 0.06455), rel=2e-3)


def test_runs_of_one_case_have_a_row_each() -> None:
    speeds = {
        NONE: [400.0, 404.0],
        OURS: [300.0, 303.0],
        ZEROS: [375.0, 378.75],
        IDLE: [300.0, 303.0],
    }
    case = Case(nodes=100, pods=230, rounds=2, runs=2)
    assert row(case, 1, speeds) == (
        *("100 nodes, run 2", "2", "402", "0.75", "0.94", "0.75"),
        *("0.80, at least 0.80", "1.00, at least 1.00"),
    )
