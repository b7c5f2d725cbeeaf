# SPDX-License-Identifier: Apache-2.0
"""Log lines that could come many times a second: one a minute, with a count of the rest. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

PACE_SECONDS: Final = 60.0
MOST_SUBJECTS: Final = 256
"""Kinds of lines with a pace of their own, at most; further kinds share one pace."""


class LogPace:
    """Allows one line of each subject in PACE_SECONDS. One thread, or a lock of the caller's."""

    def __init__(self) -> None:
        self._logged_at: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def take(self, subject: Hashable, now: float) -> int | None:
        """Whether a line may be logged at this monotonic second: how many were left out before it.

        None where it is left out too.
        """
        if subject not in self._logged_at and len(self._logged_at) >= MOST_SUBJECTS:
            subject = None
        last = self._logged_at.get(subject)
        if last is not None and now - last < PACE_SECONDS:
            self._left_out[subject] = self._left_out.get(subject, 0) + 1
            return None
        self._logged_at[subject] = now
        return self._left_out.pop(subject, 0)

    def overdue(self, now: float) -> Iterator[tuple[Hashable, int]]:
        """Subjects whose minute is over, with how many lines were left out in it; then forgotten.

        So that the last ones are logged too, though nothing follows.
        """
        for subject, last in list(self._logged_at.items()):
            if now - last >= PACE_SECONDS:
                del self._logged_at[subject]
                if left_out := self._left_out.pop(subject, 0):
                    yield subject, left_out
