# SPDX-License-Identifier: Apache-2.0
"""Numbers as a short text: ``0-3,6``."""

from __future__ import annotations

from collections.abc import Iterable


def number_ranges(numbers: Iterable[int], *, separator: str = ",") -> str:
    """The numbers in ascending order, neighbours as a range; empty where there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return separator.join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
