# SPDX-License-Identifier: Apache-2.0
"""Requests to leave the GPUs alone, with their causes."""

from __future__ import annotations

import threading


class ReleaseRequests:
    """Collects the causes to leave the GPUs alone. Any thread may call every method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: dict[str, tuple[str, ...]] = {}

    def ask(self, requester: str, causes: tuple[str, ...]) -> bool:
        """Have the GPUs left alone for these causes of ``requester``; without causes no longer.

        True if the GPUs are now to be left alone and were not before, or the other way round.
        """
        with self._lock:
            before = any(self._causes.values())
            self._causes[requester] = causes
            return before != any(self._causes.values())

    @property
    def causes(self) -> tuple[str, ...]:
        """All causes there are, in words for people; empty where nobody has one."""
        with self._lock:
            return tuple(cause for causes in self._causes.values() for cause in causes)
