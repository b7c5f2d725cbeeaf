# SPDX-License-Identifier: Apache-2.0
"""Keys that the API server refuses for good: found, left out so that the rest is written, and
tried again seldom.

An admission policy that refuses one key has the whole write refused. Its message often names
the key, as those of our own policies do. Where it does not, halves of the write are tried.
All in all one search costs a bounded number of writes, whatever the answers are.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from kube.api_errors import AdmissionRefused, ApiError, Forbidden

RESTS_SECONDS = (600.0, 1200.0, 2400.0, 3600.0)
"""How long a refused key is left out: at first, when it is refused once more, and so on."""
MOST_REFUSED = 8
"""Refused writes of one search after which what is refused is left out without a further search.

So many find one key in 128. After them each part that was put aside is tried once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    until: float
    times: int
    why: str


class RefusedKeys:
    """Remembers what was refused; belongs to one sink, and to the thread that ticks it."""

    def __init__(self) -> None:
        self._known: dict[str, _Refusal] = {}
        self._aside: list[frozenset[str]] = []
        self._refused = 0  # writes of the search that is on

    def forget(self) -> None:
        """There is a new object: nothing is known of what is refused for it."""
        self._known.clear()
        self._aside.clear()
        self._refused = 0

    @property
    def aside(self) -> frozenset[str]:
        """Keys to leave out of the next write, to be tried after it; empty without a search."""
        return frozenset().union(*self._aside)

    @property
    def searching(self) -> bool:
        """Whether more keys may yet be found to be refused."""
        return self._refused > 0

    @property
    def reasons(self) -> dict[str, str]:
        """All keys that were refused and not taken since, and why."""
        return {key: refusal.why for key, refusal in self._known.items()}

    def left_out(self, now: float) -> frozenset[str]:
        """The keys to leave out of a write now: refused not long ago, or put aside."""
        return self.aside.union(key for key, refusal in self._known.items() if now < refusal.until)

    def taken(self, keys: Collection[str] = ()) -> bool:
        """These keys were written, or nothing had to be; whether that was part of a search."""
        for key in keys:
            self._known.pop(key, None)
        searching = self.searching
        self._next()
        return searching

    def refused(self, keys: Collection[str], error: ApiError, now: float) -> None:
        """A write of these keys was refused for good: leave out some of them, or all."""
        self._refused += 1
        searching = self._refused <= MOST_REFUSED and not isinstance(error, Forbidden)
        message = error.message if isinstance(error, AdmissionRefused) else str(error)
        named = {key for key in keys if searching and _names(message, key)}
        if named:
            self._rest(named, error, now)
            if named == set(keys):
                self._next()
        elif searching and len(keys) > 1:
            self._aside.append(frozenset(sorted(keys)[len(keys) // 2 :]))
        else:
            self._rest(keys, error, now)
            self._next()

    def _rest(self, keys: Collection[str], error: ApiError, now: float) -> None:
        for key in keys:
            times = self._known[key].times + 1 if key in self._known else 0
            rest = RESTS_SECONDS[min(times, len(RESTS_SECONDS) - 1)]
            self._known[key] = _Refusal(until=now + rest, times=times, why=str(error))

    def _next(self) -> None:
        """Let the part that was put aside last be tried; without one the search is over."""
        if self._aside:
            self._aside.pop()
        else:
            self._refused = 0


def _names(message: str, key: str) -> bool:
    """Whether the message has the whole key in it, and not only one that begins like it."""
    part = r"[A-Za-z0-9/_-]"
    return re.search(rf"(?<!{part})(?<!\.){re.escape(key)}(?!{part}|\.{part})", message) is not None
