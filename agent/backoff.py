"""How long to wait before a source that failed is asked again."""

from __future__ import annotations

FIRST_SECONDS = 5.0
LONGEST_SECONDS = 30.0


class Backoff:
    """5, 10, 20, then 30 seconds while a source goes on failing: short enough to see its return."""

    def __init__(self, first_seconds: float = FIRST_SECONDS) -> None:
        self._first = first_seconds
        self._next = first_seconds

    def failed(self) -> float:
        """Seconds to wait now; twice as long the next time."""
        wait = self._next
        self._next = min(2 * wait, max(self._first, LONGEST_SECONDS))
        return wait

    def succeeded(self) -> None:
        """The next failure starts again with the shortest wait."""
        self._next = self._first
