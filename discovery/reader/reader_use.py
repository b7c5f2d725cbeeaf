# SPDX-License-Identifier: Apache-2.0
"""Whether the reader that works has taken more than it may, or has lived for so long."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from discovery.reader.protocol import Grown

log = logging.getLogger(__name__)


class ReaderUse:
    """Age and growth of the reader that works; its user holds a lock."""

    def __init__(self, age_seconds: float, paced: Callable[[str], dict[str, int] | None]) -> None:
        """``paced``: whether a line of this subject may be logged now, and what it says of those
        that were left out; None: it may not."""
        self._age_seconds = age_seconds
        self._paced = paced
        self._since = 0.0
        self.grown: Grown | None = None
        """Report of the reader that works, where it takes more than it may."""
        self.replaced = Counter[str]()
        """Readers that were used up, by ``memory``, ``descriptors`` or ``age``."""

    def begin(self, now: float) -> None:
        """Another reader works from now on."""
        self._since, self.grown = now, None

    def is_used_up(self, pid: int, now: float) -> bool:
        """Whether the reader is to be replaced now; logs and counts it."""
        age, grown = now - self._since, self.grown
        if grown is not None:
            why, amount, limit = grown.resource.value, grown.amount, grown.limit
        elif age >= self._age_seconds:
            why, amount, limit = "age", round(age), round(self._age_seconds)
        else:
            return False
        self.replaced[why] += 1
        facts = {"reader": pid, "why": why, "amount": amount, "limit": limit}
        if (more := self._paced(f"replaced {why}")) is not None:
            log.warning("device reader replaced", extra=facts | more)
        return True
