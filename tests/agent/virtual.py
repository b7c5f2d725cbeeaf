# SPDX-License-Identifier: Apache-2.0
"""Runs ticks in virtual time: an hour of an agent in a second, in one thread."""

from __future__ import annotations

from collections.abc import Mapping

from base.runtime import Tick


class VirtualRuntime:
    """Like :class:`base.runtime.Runtime`, with a clock that only :meth:`run` moves on."""

    def __init__(self, ticks: Mapping[str, Tick], *, now: float = 1000.0) -> None:
        self._ticks = ticks
        self._due = dict.fromkeys(ticks, now)
        self.now = now

    def clock(self) -> float:
        """Monotonic seconds."""
        return self.now

    def trigger(self, name: str) -> None:
        """Run a tick as soon as the one that runs now has ended."""
        self._due[name] = self.now

    def run(self, seconds: float) -> None:
        """Run every tick that is due within this time, each when it is."""
        end = self.now + seconds
        while (due := min(self._due.values())) <= end:
            name = min(name for name, at in self._due.items() if at == due)
            self.now = max(self.now, due)
            self._due[name] = float("inf")  # a tick that hastens itself is run again
            following = self.now + self._ticks[name](self.now)
            self._due[name] = min(self._due[name], following)
        self.now = end
