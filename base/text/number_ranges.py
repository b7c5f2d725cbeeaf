# SPDX-License-Identifier: Apache-2.0
"""Numbers as a short text: ``0-3,6``."""

from __future__ import annotations

from collections.abc import Iterable


def number_ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers, neighbours as a range; empty where there are none."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{it[0]}-{it[-1]}" if len(it) > 1 else str(it[0]) for it in parts)
