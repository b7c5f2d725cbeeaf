# SPDX-License-Identifier: Apache-2.0
"""Events and log lines on the desired MIG layout of a Node."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from api.mig_status_annotation import MigPhase, MigStatusAnnotation, desired_words

log = logging.getLogger(__name__)

_UNDER_WAY: Final = (MigPhase.WAITING, MigPhase.CHANGING, MigPhase.REBOOTING)
_PROBLEMS: Final = (MigPhase.FAILED, MigPhase.STUCK, MigPhase.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEvent:
    """An Event about the Node that is still to be sent."""

    reason: str
    """The Event's reason, in CamelCase."""
    note: str
    warning: bool


class LayoutEvents:
    """Events since they were taken last. One thread queues and takes them."""

    def __init__(self) -> None:
        self._queued: list[LayoutEvent] = []
        self._last_change: tuple[str, str] | None = None
        """Phase and request of the newest status with a request; None before the first."""

    def take(self) -> list[LayoutEvent]:
        """Events since the last call."""
        events, self._queued = self._queued, []
        return events

    def go_on_from(self, shown: MigStatusAnnotation) -> None:
        """Take the status that the Node showed at the start: no Event repeats it."""
        if self._last_change is None:
            self._last_change = shown.phase, shown.request

    def evaluated(self, status: MigStatusAnnotation) -> None:
        """Queue an Event about a new evaluation."""
        facts = {"phase": status.phase, "desired": status.desired, "why": status.reason}
        is_refused = status.phase == MigPhase.REFUSED
        level = logging.WARNING if is_refused else logging.INFO
        log.log(level, "MIG layout evaluated", extra=facts)
        self._queue("MigLayout", status, warning=is_refused)

    def changing(self, status: MigStatusAnnotation) -> None:
        """Queue an Event about a change under way; its success is reported as an evaluation."""
        change = status.phase, status.request
        if not status.request or change == self._last_change:
            return
        self._last_change = change
        if status.phase in (*_UNDER_WAY, *_PROBLEMS):
            self._queue("MigChange", status, warning=status.phase in _PROBLEMS)

    def _queue(self, subject: str, status: MigStatusAnnotation, *, warning: bool) -> None:
        why = status.reason or f"{status.phase}"
        note = f"{desired_words(status)}{why}" if status.source else why
        reason = f"{subject}{str(status.phase).capitalize()}"
        self._queued.append(LayoutEvent(reason=reason, note=note, warning=warning))
