# SPDX-License-Identifier: Apache-2.0
"""A run that is too small says so, and of what."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler.simulation.estimates import Figure, FigureDifference, Verdict
from scheduler.simulation.size_warnings import warnings

ALIKE = Verdict.NO_DIFFERENCE


def comparison(
    figure: Figure, error: float, verdict: Verdict = ALIKE, larger: float = 1.0
) -> FigureDifference:
    return FigureDifference(
        other="pack", figure=figure, difference=0.0, error=error, larger=larger, verdict=verdict
    )


def said(
    *found: FigureDifference, samples: Sequence[int] = (20,) * 8, lives: float | None = None
) -> list[str]:
    return list(warnings(found, samples=samples, advice="do more", lives=lives))


@pytest.mark.parametrize(
    ("found", "hidden"),
    [
        (comparison(Figure.BEST_SETS, 0.051), "best sets: a difference of 5.1 %"),
        (comparison(Figure.BEST_SETS, 0.05), None),
        (comparison(Figure.SPEED, 0.2), "speed: a difference of 20.0 %"),
        (comparison(Figure.SPEED, 0.2, Verdict.MORE), None),
        (comparison(Figure.SPEED, 0.2, Verdict.LESS), None),
        (comparison(Figure.MEAN_WAIT, 26.0, larger=100.0), "mean wait: a difference of 26.0 s"),
        (comparison(Figure.MEAN_WAIT, 24.0, larger=100.0), None),
        (comparison(Figure.MEAN_WAIT, 0.9, larger=0.1), None),
        (comparison(Figure.MEAN_WAIT, 1.1, larger=0.1), "mean wait: a difference of 1.1 s"),
    ],
)
def test_a_difference_that_matters_and_would_not_show_is_said(
    found: FigureDifference, hidden: str | None
) -> None:
    expected = [f"too small to say much about {hidden} would not show; do more"] if hidden else []
    assert said(found) == expected


def test_of_several_the_largest_that_would_not_show_is_said_once() -> None:
    (line,) = said(comparison(Figure.SPEED, 0.1), comparison(Figure.SPEED, 0.3))
    assert "30.0 %" in line


@pytest.mark.parametrize(
    ("samples", "is_few"),
    [
        ([], True),
        ([100] * 4, True),
        ([20] * 5, False),
        ([20, 20, 19, 20, 20, 20], True),
    ],
)
def test_samples_that_are_too_few_or_too_small_are_said(samples: list[int], is_few: bool) -> None:
    expected = [
        f"too small to say anything: {sum(samples)} pods in {len(samples)} samples, of at least 5"
        " with 20 pods each, so all differences may be chance; do more"
    ]
    found = [] if is_few else [comparison(Figure.SPEED, 0.0)]
    assert said(*found, samples=samples) == (expected if is_few else [])


def test_enough_samples_in_which_no_figure_is_known_are_said() -> None:
    assert said() == [
        "too small to compare schedulers: no figure is known of every sample; do more"
    ]


@pytest.mark.parametrize(("lives", "is_short"), [(4.9, True), (5.0, False), (None, False)])
def test_a_run_that_mostly_fills_the_fleet_is_said(lives: float | None, is_short: bool) -> None:
    found = said(comparison(Figure.SPEED, 0.0), lives=lives)
    assert [line.startswith("too short: the fleet begins empty") for line in found] == (
        [True] if is_short else []
    )
