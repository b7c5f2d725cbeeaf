# SPDX-License-Identifier: Apache-2.0
"""The budget of one program's requests to the API server, all of its threads together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from base.bucket import Bucket

LONGEST_HOLD_SECONDS = 300.0


class RequestLimits:
    """A token bucket, which a server that is overloaded can close for a while. Thread-safe."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bucket = Bucket(interval_seconds=1.0 / per_second, burst=burst)
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._closed_until = clock()

    def wait(self) -> None:
        """Take a token, or sleep until one is there; turns go in the order of asking."""
        with self._lock:
            pause = self._bucket.reserve(self._clock())
        if pause > 0:
            self._sleep(pause)

    def close(self, seconds: float) -> None:
        """Let no request through for so long; at most 5 minutes, whatever the server says."""
        with self._lock:
            until = self._clock() + min(seconds, LONGEST_HOLD_SECONDS)
            self._closed_until = max(self._closed_until, until)

    def closed_seconds(self) -> float:
        """Seconds for which no request is let through; zero when the budget is open."""
        with self._lock:
            return max(0.0, self._closed_until - self._clock())
