# SPDX-License-Identifier: Apache-2.0
"""A condition that lasts is logged when it begins and when it changes, not at every attempt."""

from __future__ import annotations

from collections.abc import Hashable


class LogOnce:
    """The last logged state of each subject. One thread, or a lock of the caller's."""

    def __init__(self) -> None:
        self._last: dict[Hashable, object] = {}

    def is_new(self, state: object, subject: Hashable = None) -> bool:
        """Whether this differs from the subject's last state; it is the last from now on.

        ``state`` is whatever the line would report, compared by value; ``subject`` keeps several
        conditions of one caller apart.
        """
        is_new = subject not in self._last or self._last[subject] != state
        self._last[subject] = state
        return is_new

    def clear(self, subject: Hashable = None) -> bool:
        """The condition is over: the next state is new. Whether there was one."""
        had_one = subject in self._last
        self._last.pop(subject, None)
        return had_one
