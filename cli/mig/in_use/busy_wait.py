# SPDX-License-Identifier: Apache-2.0
"""Waits, within a bound, until nobody is in the way of a change of MIG layouts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from base.settings import setting_kinds as kinds
from base.settings.layers import WrittenValue
from cli import terminal
from cli.failures import REFUSED, CommandFailure
from mig.planner import MigPlan, MigRefusal, ObstacleKind

LOOK_SECONDS: Final = 5.0
"""Between two looks; each one reads all GPUs."""
REMIND_SECONDS: Final = 60.0
"""A line comes at least so often."""

_DURATION: Final = kinds.duration("1s")


def wait_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--wait``; the command gets ``wait``, in seconds: 0 without it."""
    return click.option(
        "--wait",
        metavar="DURATION",
        callback=_read,
        help="Where somebody is in the way, wait up to so long for the end of that, such as 90s or"
        " 2h, and refuse then.  [default: refuse at once]",
    )(function)


def _read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> float:
    del ctx, parameter
    return 0.0 if text is None else WrittenValue(text=text, source="--wait").read(_DURATION)


class BusyWait:
    """The waiting of one command, however often somebody comes in between."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """It begins now; ``clock`` is monotonic."""
        self._clock = clock
        self._sleep = sleep
        self._until = clock() + seconds
        self._shown: tuple[str, float] = ("", 0.0)

    def goes_on(self, found: MigPlan | MigRefusal | None) -> bool:
        """Whether to look again, which it is time for when this returns.

        Only where holders alone are in the way, and there is time left. Who they are is printed on
        standard error when that changes, and once in a while. Raises CommandFailure at Ctrl-C:
        nothing was changed then.
        """
        if not isinstance(found, MigRefusal):
            return False
        if any(one.kind is not ObstacleKind.BUSY for one in found.obstacles):
            return False
        left = self._until - self._clock()
        if left <= 0:
            return False
        names = sorted({str(holder) for one in found.obstacles for holder in one.holders})
        self._show(", ".join(names), left)
        try:
            self._sleep(min(left, LOOK_SECONDS))
        except KeyboardInterrupt:
            raise CommandFailure("not waited any longer: nothing was changed", REFUSED) from None
        return True

    def _show(self, names: str, left: float) -> None:
        shown, when = self._shown
        if names != shown or self._clock() - when >= REMIND_SECONDS:
            self._shown = names, self._clock()
            terminal.note(f"Waiting, {_words(left)} left; in the way: {names}", err=True)


def _words(seconds: float) -> str:
    """``1h05m``, ``2m10s``, ``7s``."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
