# SPDX-License-Identifier: Apache-2.0
"""When what has failed is tried again. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from api.mig_status_annotation import RequestEnd

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


GIVEN_UP: Final = Retry(
    why="there was no leave in time, so it was given up: to ask again, remove the annotation or"
    " label, wait for idle, and write it again",
    at=math.inf,
)
"""Of a change that waited for too long."""


def retry_of(end: str, now: float, failed_for_seconds: float) -> Retry | None:
    """When what a Node shows to have ended so is tried again; None: it need not wait.

    ``failed_for_seconds``: how long ago that was, as far as it is known.
    """
    if end == RequestEnd.PREVIOUS:
        left = max(FAILED_SECONDS[0] - failed_for_seconds, 0.0)
        return Retry(why="the change before failed", at=now + left)
    if end == RequestEnd.REFUSED:
        return Retry(why="the actuator refused", at=now + REFUSED_SECONDS[0])
    return GIVEN_UP if end == RequestEnd.EXPIRED else None


def ladder(seconds: tuple[float, float], times: int) -> float:
    """Nothing before the first time; doubled with each further one."""
    first, longest = seconds
    return min(first * 2.0 ** (times - 1), longest) if times else 0.0
