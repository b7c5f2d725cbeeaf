# SPDX-License-Identifier: Apache-2.0
"""Settings of rollouts: how many nodes are changed at once, when, for how long. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from base.settings.setting_kinds import SettingKind
from fleet.drain.drain_plan import DrainSettings
from fleet.mig_node import DrainMode

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW: Final = re.compile(
    rf"(?:({'|'.join(_DAYS)})(?:-({'|'.join(_DAYS)}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)"
)
_DAY_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Times of the week, UTC, in which changes may begin."""

    days: frozenset[int]
    """0 is Monday; of a window that passes midnight the day on which it opens."""
    opens: int
    """Minutes since midnight."""
    closes: int
    """Not after ``opens``: on the next day."""

    def is_open(self, now: float) -> bool:
        """Whether a change may begin at this second since 1970."""
        moment = datetime.fromtimestamp(now, UTC)
        minute, today = moment.hour * 60 + moment.minute, moment.weekday()
        if self.closes > self.opens:
            return today in self.days and self.opens <= minute < self.closes
        yesterday = (today - 1) % 7
        return (today in self.days and minute >= self.opens) or (
            yesterday in self.days and minute < self.closes
        )


def parse_windows(text: str) -> tuple[Window, ...]:
    """Parse ``mon-fri 22:00-05:00, sun 00:00-24:00``; without days it is every day."""
    return tuple(_window(part.strip().lower()) for part in text.split(",") if part.strip())


def _window(text: str) -> Window:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise ValueError(text)
    first = _DAYS.index(match[1]) if match[1] else 0
    last = _DAYS.index(match[2]) if match[2] else first if match[1] else 6
    span = (last - first) % 7 + 1
    opens, closes = (int(match[group]) * 60 + int(match[group + 1]) for group in (3, 5))
    if int(match[4]) > 59 or int(match[6]) > 59 or opens >= _DAY_MINUTES or closes > _DAY_MINUTES:
        raise ValueError(text)
    days = frozenset((first + after) % 7 for after in range(span))
    return Window(days=days, opens=opens, closes=closes)


def _show_windows(windows: tuple[Window, ...]) -> str:
    def show(window: Window) -> str:
        days = " ".join(_DAYS[day] for day in sorted(window.days))
        opens, closes = divmod(window.opens, 60), divmod(window.closes, 60)
        return f"{days} {opens[0]:02}:{opens[1]:02}-{closes[0]:02}:{closes[1]:02}"

    return ", ".join(map(show, windows))


WINDOWS = SettingKind(
    metavar="DAYS HH:MM-HH:MM,…",
    expects="days and times such as 'mon-fri 22:00-05:00', with commas between",
    parse=parse_windows,
    show=_show_windows,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """Settings of rollouts. Times are seconds."""

    slots: int = 1
    """Nodes in change at once; 0: none begins."""
    drain: DrainMode = DrainMode.WAIT
    """How pods leave where the Node has no annotation of its own."""
    evictions: DrainSettings = field(default_factory=DrainSettings)
    """Rules for evictions, and how long all pods may take to leave."""
    canary_seconds: float = 600.0
    """Time from a rollout's first success to its second node."""
    failures_in_row: int = 2
    """Nodes: a rollout with so many stops for :attr:`row_seconds`."""
    failures_in_all: int = 3
    """Nodes: a rollout with so many stops until a person resumes it."""
    row_seconds: float = 120.0
    """How long such a rollout stops; doubled with each further node that fails in the row."""
    most_away: int = 5
    """A rollout stops while more of its nodes are not available."""
    windows: tuple[Window, ...] = ()
    """Times at which changes may begin; empty: at any time."""
    settle_seconds: float = 5.0
    """Time from the cordon to the second look: pods that are being bound show up meanwhile."""
    most_cordoned: int = 0
    """Nodes that may wait behind a cordon for their pods."""
    cordoned_seconds: float = 86400.0
    """How long such a node waits; then all is undone, and it stays as it is for as long again."""
    hold_seconds: float = 120.0
    """How long a cordoned node waits to be idle again, and for its permit; then all is undone."""
    end_seconds: float = 900.0
    """Time from go to the request's end; then the change counts as failed, and the node stays."""
    register_seconds: float = 60.0
    """Time from a restart of the device plugin to what it is to offer."""
    restarts: int = 3
    called_off_seconds: float = 3600.0
    """Time from a change that a person called off to the node's next."""
    retry_seconds: float = 60.0
    """Time from an undone attempt to the node's next; it doubles up to an hour."""
    long_wait_seconds: float = 86400.0
    """A node that waits longer for its change raises an alert; nothing else comes of it."""

    def is_open(self, now: float) -> bool:
        """Whether the maintenance windows let changes begin at this second since 1970."""
        return not self.windows or any(window.is_open(now) for window in self.windows)

    @property
    def slot_seconds(self) -> float:
        """Time from the permit to proceed until the slot is free for others."""
        return self.end_seconds / 3


PAUSED: Final = "paused-for-mig-change"
"""Value of the GPU operator's labels while a part of it is paused, as NVIDIA's MIG manager has
it. Source: NVIDIA mig-parted, cmd/nvidia-mig-manager."""
GUARD: Final = "true"
"""Value of the autoscalers' annotations that keep a node."""
USAGE_SECONDS: Final = 10.0
"""GPU use of a node that was read longer ago is not acted upon."""
LONGEST_RETRY_SECONDS: Final = 3600.0
