# SPDX-License-Identifier: Apache-2.0
"""Intervals hold what they promise, and a difference within its error is none."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from scheduler.simulation.estimates import (
    LEAST_PODS,
    LEAST_SAMPLES,
    Figure,
    Verdict,
    compared,
    half_interval,
    student,
    with_errors,
)
from scheduler.simulation.fleet_replay import Summary

EMPTY = Summary(
    pods=0,
    lost=0,
    ideal_ratio=None,
    speed_ratio=None,
    mean_wait_seconds=0.0,
    longest_wait_seconds=0.0,
)


def of(best: float | None, wait: float = 0.0, speed: float | None = None) -> Summary:
    return replace(
        EMPTY, pods=LEAST_PODS, ideal_ratio=best, speed_ratio=speed, mean_wait_seconds=wait
    )


def best_sets(*values: float) -> list[Summary]:
    return [of(each) for each in values]


@pytest.mark.parametrize(
    ("confidence", "freedom", "errors"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 4, 2.776),
        (0.95, 7, 2.365),
        (0.95, 9, 2.262),
        (0.95, 30, 2.042),
        (0.95, 1000, 1.962),
        (0.99, 7, 3.499),
        (0.999, 7, 5.408),
        (0.90, 1, 6.314),
        (0.998, 2, 22.327),
    ],
)
def test_so_many_standard_errors_as_in_tables_of_students_distribution(
    confidence: float, freedom: int, errors: float
) -> None:
    """Source: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2."""
    assert student(confidence, freedom) == pytest.approx(errors, abs=0.0006)


def test_the_interval_is_of_the_mean() -> None:
    """Four values with deviations of one: the error of the mean is 2/sqrt(3)/2."""
    assert half_interval([1, 1, 3, 3]) == pytest.approx(student(0.95, 3) / math.sqrt(3))
    assert half_interval([5, 5]) == 0


def test_95_of_100_intervals_hold_the_truth() -> None:
    chance = Random(7)  # noqa: S311  # has to repeat
    held = 0
    for _ in range(2000):
        values = [chance.gauss(3.0, 2.0) for _ in range(6)]
        held += abs(sum(values) / 6 - 3.0) <= half_interval(values)
    assert 0.94 <= held / 2000 <= 0.96


def test_a_summary_gets_the_half_intervals_of_its_samples() -> None:
    samples = [of(0.5 + at / 10, 10.0 * at, 0.7) for at in range(LEAST_SAMPLES)]
    found = with_errors(of(0.6, 25.0, 0.7), samples)
    assert (found.ideal_ratio, found.mean_wait_seconds) == (0.6, 25.0)
    deviation = math.sqrt(2.5)  # of 0, 1, 2, 3, 4
    error = deviation / math.sqrt(5) * student(0.95, 4)
    assert found.ideal_ratio_error == pytest.approx(error / 10)
    assert found.mean_wait_error_seconds == pytest.approx(10 * error)
    assert found.speed_ratio_error == pytest.approx(0)


def test_few_samples_have_no_error() -> None:
    """Also where they are equal: it would look like certainty."""
    found = with_errors(of(0.6), best_sets(*[0.6] * (LEAST_SAMPLES - 1)))
    assert (found.ideal_ratio_error, found.mean_wait_error_seconds) == (None, None)


def test_a_figure_that_a_sample_does_not_have_has_no_error() -> None:
    """A sample without pods of several GPUs has no share of best sets, one without pods no wait."""
    several = best_sets(*[0.5] * 6)
    found = with_errors(of(0.6), [*several, of(None)])
    assert (found.ideal_ratio_error, found.mean_wait_error_seconds) == (None, 0)
    assert with_errors(of(0.6), [*several, EMPTY]).mean_wait_error_seconds is None


def test_samples_are_compared_pair_by_pair() -> None:
    """They vary by far more than they differ, but always together."""
    theirs = [0.1, 0.9, 0.3, 0.8, 0.2, 0.6]
    ours = [each + gain for each, gain in zip(theirs, [0.04, 0.06] * 3, strict=True)]
    (found,) = compared(best_sets(*ours), {"pack": best_sets(*theirs)})[:1]
    assert (found.other, found.figure) == ("pack", Figure.BEST_SETS)
    assert found.difference == pytest.approx(0.05)
    assert found.verdict is Verdict.MORE
    assert 0.01 < found.error < 0.03
    assert found.larger == pytest.approx(sum(ours) / 6)


def test_less_is_said_of_what_is_less() -> None:
    found = compared(best_sets(*[0.1, 0.11] * 3), {"pack": best_sets(*[0.5, 0.52] * 3)})
    assert found[0].verdict is Verdict.LESS
    assert found[0].larger == pytest.approx(0.51)


def test_a_difference_within_the_error_is_none() -> None:
    gains = [0.3, -0.1, 0.2, 0.0, 0.3, -0.1]
    ours = best_sets(*(0.5 + each for each in gains))
    (found,) = compared(ours, {"pack": best_sets(*[0.5] * 6)})[:1]
    assert found.difference == pytest.approx(0.1)
    assert found.verdict is Verdict.NO_DIFFERENCE


def test_two_that_are_equal_do_not_differ() -> None:
    same = best_sets(*[0.5] * 6)
    for found in compared(same, {"pack": same}):
        assert (found.difference, found.error) == (0, 0)
        assert found.verdict is Verdict.NO_DIFFERENCE


def test_every_figure_is_compared_with_every_other_scheduler() -> None:
    ours = [of(0.5, 10.0, 0.4)] * 5
    found = compared(ours, {"spread": ours, "pack": ours})
    assert [(each.other, each.figure) for each in found] == [
        (name, figure) for name in ("spread", "pack") for figure in Figure
    ]


def test_too_few_samples_are_not_compared() -> None:
    few = best_sets(*[0.5] * (LEAST_SAMPLES - 1))
    assert compared(few, {"pack": few}) == ()
    assert compared(few[:0], {"pack": []}) == ()


def test_samples_of_too_few_pods_are_not_compared() -> None:
    enough = best_sets(*[0.5] * 6)
    assert compared(enough, {"pack": enough})
    one_small = [*enough[1:], replace(enough[0], pods=LEAST_PODS - 1)]
    assert compared(one_small, {"pack": one_small}) == ()


def test_a_figure_that_one_sample_does_not_have_is_not_compared() -> None:
    ours = [*[of(0.5)] * 5, of(None)]
    assert [each.figure for each in compared(ours, {"pack": [of(0.5)] * 6})] == [Figure.MEAN_WAIT]
    assert [each.figure for each in compared([of(0.5)] * 6, {"pack": ours})] == [Figure.MEAN_WAIT]


def test_of_schedulers_that_are_alike_19_of_20_runs_find_no_difference_at_all() -> None:
    """Nine comparisons are made at once; the figures of one run are independent here."""
    chance = Random(11)  # noqa: S311  # has to repeat

    def drawn() -> list[Summary]:
        return [of(chance.gauss(0, 1), chance.gauss(0, 1), chance.gauss(0, 1)) for _ in range(8)]

    wrong = 0
    for _ in range(1000):
        found = compared(drawn(), {name: drawn() for name in "abc"})
        assert len(found) == 9
        wrong += any(each.verdict is not Verdict.NO_DIFFERENCE for each in found)
    assert 0.02 <= wrong / 1000 <= 0.06
