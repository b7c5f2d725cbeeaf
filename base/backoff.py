# SPDX-License-Identifier: Apache-2.0
"""The wait before the next try, after failures in a row."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0


class Backoff:
    """A bound that doubles with each failure until one try succeeds; each wait is drawn below it.

    With full jitter, the default, a wait is anything from zero to the bound, so that a fleet
    whose server went away never comes back at once.
    """

    def __init__(
        self,
        *,
        first_seconds: float = FIRST_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
        uniform: Callable[[float, float], float] | None = random.uniform,
    ) -> None:
        """``uniform`` draws a wait between two bounds; None waits for the whole bound each time."""
        self._first = self._bound = first_seconds
        self._longest = longest_seconds
        self._uniform = uniform

    def failed(self, asked_seconds: float | None = None) -> float:
        """Seconds to wait before the next try.

        ``asked_seconds``, the time in a server's Retry-After, comes on top: clients that
        were all sent the same number would otherwise return in the same instant.
        """
        wait = self._bound if self._uniform is None else self._uniform(0.0, self._bound)
        self._bound = min(2 * self._bound, self._longest)
        return wait + (asked_seconds or 0.0)

    def succeeded(self) -> None:
        """Reset after a success: the next failure starts again with the shortest bound."""
        self._bound = self._first
