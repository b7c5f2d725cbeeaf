# SPDX-License-Identifier: Apache-2.0
"""Finds ticks that have stopped: due and not begun, as when their thread is gone, or without end.

It counts only time in which it is asked itself, so that a program that was suspended,
or starved of CPU as a whole, blames no tick for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

START_SECONDS: Final = 30.0
"""Time after which a tick that is due counts as stopped: no thread is left to run it."""

LONGEST_STEP_SECONDS: Final = 10.0
"""Time between two checks that counts at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickProgress:
    """The progress of a tick."""

    steps: int
    """Beginnings and ends of its runs so far."""
    running: bool
    due: bool
    """Its next run should have begun; of no meaning while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A tick that has made no step for a while, though it should."""

    tick: str
    seconds: float
    running: bool
    has_stopped: bool
    """It lasts longer than a tick may take."""


class TickWatch:
    """Compares the progress of all ticks from one check to the next; for one thread."""

    def __init__(
        self,
        progress: Callable[[], Mapping[str, TickProgress]],
        *,
        run_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``run_seconds``: how long one run of a tick may take."""
        self._progress = progress
        self._run_seconds = run_seconds
        self._clock = clock
        self._checked_at = clock()
        self._steps: dict[str, int] = {}
        self._stalled: dict[str, float] = {}

    def check(self) -> Stall | None:
        """The longest stall, among those that have stopped if any; None without a stall.

        To be called every few seconds.
        """
        now = self._clock()
        passed, self._checked_at = min(now - self._checked_at, LONGEST_STEP_SECONDS), now
        stalls = []
        for name, tick in self._progress().items():
            stands = self._steps.get(name) == tick.steps and (tick.running or tick.due)
            seconds = self._stalled.get(name, 0.0) + passed if stands else 0.0
            self._steps[name], self._stalled[name] = tick.steps, seconds
            if stands:
                limit = self._run_seconds if tick.running else START_SECONDS
                stopped = seconds >= limit
                stalls.append(
                    Stall(tick=name, seconds=seconds, running=tick.running, has_stopped=stopped)
                )
        return max(stalls, key=lambda stall: (stall.has_stopped, stall.seconds), default=None)
