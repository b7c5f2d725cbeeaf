"""A token bucket: how often something may happen."""

from __future__ import annotations


class Bucket:
    """Tokens that come back with time; one thread takes them."""

    def __init__(self, *, interval_seconds: float, burst: int) -> None:
        """One comes back each interval, and there are never more than ``burst``: all at first."""
        self._interval_seconds = interval_seconds
        self._depth_seconds = burst * interval_seconds
        self._full_at = 0.0

    def take(self, now: float) -> bool:
        """Whether there was a token; ``now`` is monotonic."""
        full_at = max(self._full_at, now) + self._interval_seconds
        if full_at - now > self._depth_seconds:
            return False
        self._full_at = full_at
        return True
