# SPDX-License-Identifier: Apache-2.0
"""A token bucket: how often something may happen."""

from __future__ import annotations


class Bucket:
    """A token bucket: tokens come back one by one with time. Threads need a lock around it.

    ``now`` is the caller's monotonic clock in seconds, from any start.
    """

    def __init__(self, *, interval_seconds: float, burst: int) -> None:
        """A token comes back each interval, up to ``burst``; the bucket starts full."""
        self._interval_seconds = interval_seconds
        self._depth_seconds = burst * interval_seconds
        self._full_at = float("-inf")

    def take(self, now: float) -> bool:
        """Take a token; False where there is none."""
        if self.wait_seconds(now) > 0:
            return False
        self.reserve(now)
        return True

    def wait_seconds(self, now: float, *, borrowed: int = 0) -> float:
        """Seconds until there is a token, 0 for now; ``borrowed`` future tokens count as there."""
        full_at = max(self._full_at, now) + self._interval_seconds
        depth_seconds = self._depth_seconds + borrowed * self._interval_seconds
        return max(0.0, full_at - depth_seconds - now)

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._full_at -= self._interval_seconds

    def reserve(self, now: float) -> float:
        """Take the next token, even a future one; seconds until it is there."""
        wait = self.wait_seconds(now)
        self._full_at = max(self._full_at, now) + self._interval_seconds
        return wait
