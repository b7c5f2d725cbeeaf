# SPDX-License-Identifier: Apache-2.0
"""When what has failed is tried again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FAILED_SECONDS: Final = (3600.0, 86400.0)
"""Before a change that has failed is tried again: the first time, and at most."""
REFUSED_SECONDS: Final = (60.0, 3600.0)
"""The same of one that the actuator has refused, and of a layout that somebody changes back."""
ASK_SECONDS: Final = (2.0, 300.0)
"""The same of an actuator that does not answer, or has no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When the next request may begin, and why not before."""

    why: str
    at: float
    """By the clock of the steps."""


def ladder(seconds: tuple[float, float], times: int) -> float:
    """Nothing before the first time; doubled with each further one."""
    first, longest = seconds
    return min(first * 2.0 ** (times - 1), longest) if times else 0.0
