"""What a sink says of itself to people: each thing once, and not at every try."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

log = logging.getLogger(__name__)

MOST_NAMED = 10


class SinkReports:
    """Log lines, Events and counts of one sink."""

    def __init__(
        self,
        of: str,
        *,
        event: Callable[[str, str], None] = lambda _reason, _note: None,
        wrote: Callable[[], None] = lambda: None,
        left_alone: Callable[[int], None] = lambda _count: None,
        refused: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """``of``: kind of the object written. ``event`` gets a reason in CamelCase and a note,
        ``wrote`` runs at each write that was taken; ``left_alone`` and ``refused`` get the number
        of such keys when it changes."""
        self._of = of
        self._event = event
        self._wrote = wrote
        self._count_left_alone = left_alone
        self._left_alone: int | None = None
        self._count_refused = refused
        self._refused: int | None = None
        self._told: dict[str, Mapping[str, str]] = {}
        self.error: str | None = None
        """Why the object is not as it should be; None while it is."""

    def wrote(self, keys: int) -> None:
        """A write of so many keys was taken."""
        log.info("object written", extra={"object": self._of, "keys": keys})
        self._wrote()
        self.well()

    def well(self) -> None:
        """Nothing stands in the way any more."""
        if self.error is not None:
            log.info("object writes recovered", extra={"object": self._of})
        self.error = None

    def failed(self, why: str, *, lasting: bool) -> None:
        """It could not be written; said again only when the reason changes.

        ``lasting``: until somebody helps, who is told by an Event too.
        """
        if why != self.error:
            level = logging.ERROR if lasting else logging.WARNING
            log.log(level, "object not written", extra={"object": self._of, "why": why})
            if lasting:
                self._event("NotWritten", why)
        self.error = why

    def kept_out(self, left_alone: Mapping[str, str], dropped: Mapping[str, str]) -> None:
        """Keys that are left to another owner, and those for which there is no room; and why."""
        if len(left_alone) != self._left_alone:
            self._left_alone = len(left_alone)
            self._count_left_alone(self._left_alone)
        self._tell("KeysLeftAlone", "keys left alone", left_alone)
        self._tell("KeysDropped", "keys dropped", dropped)

    def refused(self, keys: Mapping[str, str]) -> None:
        """Keys that the API server refuses for good, and why."""
        if len(keys) != self._refused:
            self._refused = len(keys)
            self._count_refused(self._refused)
        self._tell("KeysRefused", "keys refused", keys)

    def _tell(self, reason: str, what: str, keys: Mapping[str, str]) -> None:
        if keys == self._told.get(reason, {}):
            return
        self._told[reason] = keys
        note = by_reason(keys)
        level = logging.WARNING if keys else logging.INFO
        log.log(level, what, extra={"object": self._of, "why": note or "none any more"})
        if keys:
            self._event(reason, note)


def by_reason(keys: Mapping[str, str]) -> str:
    """Keys with one reason each, as one line that says each reason once; empty without any.

    Of many keys with one reason the first ten are named.
    """
    reasons = dict.fromkeys(keys.values())
    return "; ".join(
        f"{_listed([key for key, why in keys.items() if why == reason])}: {reason}"
        for reason in reasons
    )


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return ", ".join(keys[:MOST_NAMED]) + more
