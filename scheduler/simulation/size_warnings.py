# SPDX-License-Identifier: Apache-2.0
"""Warnings about simulations that are too small for a statement. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from scheduler.simulation.estimates import (
    LEAST_PODS,
    LEAST_SAMPLES,
    Figure,
    FigureDifference,
    Verdict,
)

LEAST_LIVES: Final = 5
"""Mean lives of pods that a run has to last, for the time of filling to be a small part of it."""
_RATIO: Final = 0.05
_OF_WAIT: Final = 0.25
_WAIT_SECONDS: Final = 1.0
"""Differences that a run should show: of ratios, and of waits as a part of them, or in seconds
where they are short."""
_WORDS: Final[Mapping[Figure, str]] = MappingProxyType(
    {
        Figure.BEST_SETS: "best sets",
        Figure.SPEED: "speed",
        Figure.MEAN_WAIT: "mean wait",
    }
)


def warnings(
    comparisons: Sequence[FigureDifference],
    *,
    samples: Sequence[int],
    advice: str,
    lives: float | None = None,
) -> Iterator[str]:
    """Sentences about what a run is too small for; ``advice`` says how to get a larger one.

    ``samples``: the number of pods in each. ``lives``: how many mean lives of a pod each lasts,
    where pods are drawn.
    """
    if len(samples) < LEAST_SAMPLES or min(samples) < LEAST_PODS:
        yield (
            f"too small to say anything: {sum(samples)} pods in {len(samples)} samples, of at "
            f"least {LEAST_SAMPLES} with {LEAST_PODS} pods each, so all differences may be chance; "
            f"{advice}"
        )
    elif not comparisons:
        yield f"too small to compare schedulers: no figure is known of every sample; {advice}"
    if lives is not None and lives < LEAST_LIVES:
        yield (
            f"too short: the fleet begins empty, and the pods of a seed last for {lives:.1f} mean "
            f"lives of a pod, of at least {LEAST_LIVES}; draw more --pods"
        )
    for figure in Figure:
        hidden = [
            difference.error
            for difference in comparisons
            if difference.figure is figure and _hides(difference)
        ]
        if hidden:
            yield (
                f"too small to say much about {_WORDS[figure]}: a difference of "
                f"{_amount(figure, max(hidden))} would not show; {advice}"
            )


def _hides(difference: FigureDifference) -> bool:
    """Whether a difference that matters may be within the error."""
    if difference.verdict is not Verdict.NO_DIFFERENCE:
        return False
    if difference.figure is Figure.MEAN_WAIT:
        return difference.error > max(_OF_WAIT * difference.larger, _WAIT_SECONDS)
    return difference.error > _RATIO


def _amount(figure: Figure, amount: float) -> str:
    return f"{amount:.1f} s" if figure is Figure.MEAN_WAIT else f"{amount * 100:.1f} %"
