# SPDX-License-Identifier: Apache-2.0
"""Rows of tables on what arms made of the same changes: sums over all of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.bench.mig_changes.arms import ArmOutcome

Outcomes = Mapping[str, ArmOutcome]
"""By the name of the arm."""


def row_of(
    name: str,
    among: Sequence[tuple[Any, Outcomes]],
    figure: Callable[[ArmOutcome], int],
    best: str = "",
    *,
    arms: Sequence[str],
) -> tuple[str, ...]:
    """The sum of a figure of each arm over these changes, and the least that it can be."""
    cells = (sum(figure(found[arm]) for _, found in among) for arm in arms)
    return (name, *map(str, cells), best)
