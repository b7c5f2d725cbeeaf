# SPDX-License-Identifier: Apache-2.0
"""Settings of rollouts: how many nodes are changed at once, when, for how long. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from base.settings import setting_kinds as kinds
from base.settings.common_settings import duration, flag
from base.settings.option import fixed, setting
from base.settings.setting_kinds import SettingKind
from fleet.drain.drain_plan import DrainSettings
from fleet.mig_node import DrainMode
from fleet.slot_lease import MOST_SLOTS

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

    slots: int = setting(
        1,
        kinds.count_kind(MOST_SLOTS),
        "Nodes in change at the same time; 0: no change begins, and running ones end.",
        subject="Rollouts",
    )
    canary_seconds: float = duration(
        600.0, "0s", "Time from a rollout's first success until its other nodes may begin."
    )
    failures_in_row: int = setting(
        2,
        kinds.count_kind(1000),
        "A rollout stops for 2 minutes when this many of its nodes have failed in a row; then one"
        " node is tried alone.",
    )
    failures_in_all: int = setting(
        3, kinds.count_kind(1000), "A rollout stops when this many of its nodes have failed."
    )
    most_away: int = setting(
        5,
        kinds.count_kind(100_000),
        "A rollout stops while more than this many of its nodes are not ready, cordoned by others,"
        " upgraded or rebooted; up to this number they are skipped.",
        name="unavailable-limit",
    )
    windows: tuple[Window, ...] = setting(
        (),
        WINDOWS,
        "Days and times, UTC, at which changes may begin.",
        unset="at any time",
        name="window",
    )
    drain: DrainMode = setting(
        DrainMode.WAIT,
        kinds.member_kind(DrainMode),
        "How pods leave before a change, unless the Node's annotation gpuscape.io/drain sets it.",
    )
    ignore_autoscaler_marks: bool = flag(
        "Evict also pods that an autoscaler must not evict: with karpenter.sh/do-not-disrupt, or"
        " with cluster-autoscaler.kubernetes.io/safe-to-evict: false."
    )
    most_cordoned: int = setting(
        0,
        kinds.count_kind(MOST_SLOTS),
        "Nodes that may wait for their pods while cordoned, with drain set to cordon; each has a"
        " slot meanwhile.",
        name="cordoned-nodes",
    )

    settle_seconds: float = duration(
        5.0,
        "100ms",
        "Time from the cordon to the second check of the node's pods.",
        subject="Times of one change",
    )
    hold_seconds: float = duration(
        120.0,
        "10s",
        "How long a cordoned node waits to be idle again; then everything is reverted.",
        name="hold-deadline",
    )
    cordoned_seconds: float = duration(
        86400.0,
        "1m",
        "How long a cordoned node waits for its pods; then everything is reverted, and the node is"
        " not cordoned again for the same time.",
        name="cordoned-deadline",
    )
    end_seconds: float = duration(
        900.0,
        "1m",
        "Time from the permit to proceed until the agent reports the outcome. After it the change"
        " counts as failed, and the node stays as it is until the report comes. The slot is free"
        " after a third of it, for one such node of a rollout at a time.",
        name="change-deadline",
    )
    boot_seconds: float = duration(
        9000.0,
        "1m",
        "Further time for a change that waits for a boot of its node, which keeps its slot"
        " meanwhile. Keep it longer than the actuator's mig-reboot-deadline and a boot together.",
        name="boot-deadline",
    )
    register_seconds: float = duration(
        60.0,
        "5s",
        "Time from a restart of the device plugin until the node offers its resources; it is"
        " restarted up to three times.",
        name="register-deadline",
    )
    retry_seconds: float = duration(
        60.0,
        "1s",
        "Time between a node's first and second attempt for the same layout; it doubles up to an"
        " hour.",
    )
    long_wait_seconds: float = duration(
        86400.0,
        "1m",
        "A node that waits longer than this for its change raises an alert; this has no other"
        " effect.",
    )

    restarts: int = fixed(3)
    """Restarts of the device plugin after one change."""
    row_seconds: float = fixed(120.0)
    """How long a rollout stops by failures in a row; doubled with each further node in it."""
    called_off_seconds: float = fixed(3600.0)
    """Time from a change that a person called off to the node's next."""
    drain_seconds: float = fixed(900.0)
    """How long all pods may take to leave."""

    @property
    def evictions(self) -> DrainSettings:
        """Rules for evictions."""
        marks, deadline = self.ignore_autoscaler_marks, self.drain_seconds
        return DrainSettings(ignore_autoscaler_marks=marks, deadline_seconds=deadline)

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
