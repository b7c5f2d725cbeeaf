# SPDX-License-Identifier: Apache-2.0
"""Times at which failed changes and calls are tried again. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FAILED_SECONDS: Final = (3600.0, 86400.0)
"""Wait before a change that has failed is tried again; first, longest."""
REFUSED_SECONDS: Final = (60.0, 3600.0)
"""Wait after a refusal by the actuator, or when somebody changes a layout back; first, longest."""
ASK_SECONDS: Final = (2.0, 300.0)
"""Wait before an actuator that does not answer, or is busy, is asked again; first, longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When the next request may begin, and why not before."""

    why: str
    not_before: float
    """Start of the next request, by the clock of the steps."""


GIVEN_UP: Final = Retry(
    why="there was no permit in time, so it was given up: to ask again, remove the annotation or"
    " label, wait for idle, and write it again",
    not_before=math.inf,
)
"""No retry for a change that waited too long."""


def ladder(seconds: tuple[float, float], times: int) -> float:
    """Wait after so many failures: 0 without any, then doubled with each up to the longest."""
    first, longest = seconds
    return min(first * 2.0 ** (times - 1), longest) if times else 0.0
