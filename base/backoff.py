"""How long to wait after a failed request: jittered, so that a fleet never comes back at once."""

from __future__ import annotations

import random
from collections.abc import Callable

from base.errors import GpuscapeError
from kube.api_errors import Busy

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0


class Backoff:
    """Full jitter: each wait is drawn from zero to a bound that doubles from 1 s to 60 s.

    What the server asked for by Retry-After comes on top, since a fleet that was told
    the same number would otherwise return in the same instant.
    """

    def __init__(
        self,
        *,
        first_seconds: float = FIRST_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = self._bound = first_seconds
        self._longest = longest_seconds
        self._uniform = uniform

    def failed(self, error: GpuscapeError | None = None) -> float:
        """Seconds to wait before the next try."""
        jitter = self._uniform(0.0, self._bound)
        self._bound = min(2 * self._bound, self._longest)
        asked = error.retry_after_seconds if isinstance(error, Busy) else None
        return jitter + (asked or 0.0)

    def succeeded(self) -> None:
        """The next failure starts again with the shortest bound."""
        self._bound = self._first
