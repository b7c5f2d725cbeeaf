# SPDX-License-Identifier: Apache-2.0
"""Durations as programs in Go write them: ``1m30s``, ``.5s``, ``-2h``. Pure.

Source: Go's package time, ``ParseDuration``.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

MOST_NANOSECONDS: Final = (1 << 63) - 1
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign
    "μs": 10**3,  # the Greek letter
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MOST_CHARACTERS: Final = 1000
"""Longer texts are refused: Python takes the square of a number's length for its digits."""
_DURATION: Final = re.compile(rf"([-+]?)(?:0|((?:{_PART.pattern})+))")


def go_nanoseconds(text: str) -> int:
    """The nanoseconds of a duration; fractions of a nanosecond are dropped.

    Raises ValueError for another text, and for more than Go's 64 bits hold.
    """
    if len(text) > _MOST_CHARACTERS or (match := _DURATION.fullmatch(text)) is None:
        raise ValueError(text)
    sign, parts = match[1], match[2] or ""
    total = sum(int(Fraction(_number(number)) * _UNITS[unit]) for number, unit in _parts(parts))
    if total > MOST_NANOSECONDS + (sign == "-"):
        raise ValueError(text)
    return -total if sign == "-" else total


def _parts(text: str) -> list[tuple[str, str]]:
    return _PART.findall(text)


def _number(digits: str) -> str:
    whole, _, fraction = digits.partition(".")
    return f"{whole or 0}.{fraction or 0}"
