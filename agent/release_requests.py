# SPDX-License-Identifier: Apache-2.0
"""Who wants the GPUs left alone, and why."""

from __future__ import annotations

import threading


class ReleaseRequests:
    """The GPUs are left alone while anybody wants that. Any thread may call every method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: dict[str, tuple[str, ...]] = {}

    def ask(self, who: str, causes: tuple[str, ...]) -> bool:
        """What ``who`` wants from now on; without causes, nothing any more.

        True if the GPUs are now to be left alone and were not before, or the other way round.
        """
        with self._lock:
            before = any(self._causes.values())
            self._causes[who] = causes
            return before != any(self._causes.values())

    @property
    def causes(self) -> tuple[str, ...]:
        """All causes there are, in words for people; empty when nobody wants it."""
        with self._lock:
            return tuple(cause for causes in self._causes.values() for cause in causes)
