# SPDX-License-Identifier: Apache-2.0
"""Waits, up to a deadline, until no program or pod blocks a change of MIG layouts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import click

from base.settings import setting_kinds as kinds
from base.settings.layers import WrittenValue
from cli import terminal
from cli.failures import REFUSED, CommandFailure
from mig.planner import MigPlan, MigRefusal, ObstacleKind

RETRY_SECONDS: Final = 5.0
"""Wait between two plans; each one reads all GPUs."""
REMIND_SECONDS: Final = 60.0
"""Longest time without a line about the waiting."""

_DURATION: Final = kinds.duration_kind("1s")


def _read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> float:
    del ctx, parameter
    return 0.0 if text is None else WrittenValue(text=text, source="--wait").read(_DURATION)


wait_option: Final = click.option(
    "--wait",
    metavar="DURATION",
    callback=_read,
    help="Wait at most this long, such as 90s or 2h, until no device user is in the way; then"
    " refuse.  [default: refuse at once]",
)
"""Option of commands that get ``wait``, in seconds: 0 without it."""


class BusyWait:
    """Waiting of a command for GPUs in use, up to one deadline for all its tries."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin to wait now, for ``seconds`` at most; ``clock`` is monotonic."""
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock() + seconds
        self._shown: tuple[str, float] = ("", 0.0)

    def wait_again(self, plan_or_refusal: MigPlan | MigRefusal | None) -> bool:
        """Sleep until it is time to plan again; False, at once, where waiting is over or no use.

        It waits only where GPUs in use are the one obstacle, and before the deadline. Who uses
        them is printed on standard error when that changes, and once a minute. Raises
        CommandFailure at Ctrl-C: nothing was changed then.
        """
        if not isinstance(plan_or_refusal, MigRefusal):
            return False
        if any(obstacle.kind is not ObstacleKind.BUSY for obstacle in plan_or_refusal.obstacles):
            return False
        remaining = self._deadline - self._clock()
        if remaining <= 0:
            return False
        users = (user for obstacle in plan_or_refusal.obstacles for user in obstacle.users)
        names = sorted(set(map(str, users)))
        self._show(", ".join(names), remaining)
        try:
            self._sleep(min(remaining, RETRY_SECONDS))
        except KeyboardInterrupt:
            raise CommandFailure("not waited any longer: nothing was changed", REFUSED) from None
        return True

    def _show(self, names: str, remaining: float) -> None:
        shown_names, shown_time = self._shown
        if names != shown_names or self._clock() - shown_time >= REMIND_SECONDS:
            self._shown = names, self._clock()
            terminal.note(
                f"Waiting, {_duration_text(remaining)} left; in the way: {names}", err=True
            )


def _duration_text(seconds: float) -> str:
    """``1h05m``, ``2m10s``, ``7s``."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
