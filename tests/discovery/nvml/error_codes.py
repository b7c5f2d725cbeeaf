# SPDX-License-Identifier: Apache-2.0
"""NVML's error codes, and which of them one run tries."""

from __future__ import annotations

from typing import Final

import pynvml

from tests.conftest import SCALE

CODES: Final = tuple(
    sorted(
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    )
)
_SHARE: Final = 4


def some_codes(number: int) -> tuple[int, ...]:
    """A fourth of them, and all in ``make long``.

    Another fourth for the next number: a list of entry points has each code a dozen times.
    """
    return CODES if SCALE > 1 else CODES[number % _SHARE :: _SHARE]
