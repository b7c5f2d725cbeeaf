# SPDX-License-Identifier: Apache-2.0
"""Time that passes when somebody sleeps, and chance that is known."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Clock:
    """A monotonic clock and its sleep."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds


def highest(low: float, high: float) -> float:
    """The draw of random.uniform that is worst for whoever waits."""
    del low
    return high


def none(low: float, high: float) -> float:
    """A draw of zero, whatever the bounds: nobody waits."""
    del low, high
    return 0.0
