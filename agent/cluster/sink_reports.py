# SPDX-License-Identifier: Apache-2.0
"""Log lines, Events and metrics about what a sink writes: each fact once, not at every try."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from base.log_once import LogOnce
from base.words import first_names

log = logging.getLogger(__name__)

MOST_NAMED = 10


class SinkReports:
    """Log lines, Events and counts of one sink."""

    def __init__(
        self,
        kind: str,
        *,
        event: Callable[[str, str], None] = lambda _reason, _note: None,
        wrote: Callable[[], None] = lambda: None,
        left_alone: Callable[[int], None] = lambda _count: None,
        refused: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """``kind`` of the object written. ``event`` gets a reason in CamelCase and a note,
        ``wrote`` runs at each write that was taken; ``left_alone`` and ``refused`` get the number
        of such keys when it changes."""
        self._kind = kind
        self._event = event
        self._wrote = wrote
        self._count_left_alone = left_alone
        self._left_alone: int | None = None
        self._count_refused = refused
        self._refused: int | None = None
        self._reported = LogOnce()
        self.error: str | None = None
        """Why the object is not as it should be; None while it is."""

    def wrote(self, keys: int) -> None:
        """Report a successful write of so many keys."""
        log.info("object written", extra={"object": self._kind, "keys": keys})
        self._wrote()
        self.well()

    def well(self) -> None:
        """Report that the object is as it should be."""
        if self.error is not None:
            log.info("object writes recovered", extra={"object": self._kind})
        self.error = None

    def failed(self, why: str, *, lasting: bool) -> None:
        """Report that the object could not be written; again only when the reason changes.

        ``lasting``: until somebody changes something; then an Event reports it too.
        """
        if why != self.error:
            level = logging.ERROR if lasting else logging.WARNING
            log.log(level, "object not written", extra={"object": self._kind, "why": why})
            if lasting:
                self._event("NotWritten", why)
        self.error = why

    def kept_out(self, left_alone: Mapping[str, str], dropped: Mapping[str, str]) -> None:
        """Report keys that belong to another owner, and keys without room, each with its reason."""
        if len(left_alone) != self._left_alone:
            self._left_alone = len(left_alone)
            self._count_left_alone(self._left_alone)
        if self._changed("KeysLeftAlone", left_alone):
            log.log(_level(left_alone), "keys left alone", extra=self._facts(left_alone))
        if self._changed("KeysDropped", dropped):
            log.log(_level(dropped), "keys dropped", extra=self._facts(dropped))

    def shortened(self, notes: Mapping[str, str]) -> None:
        """Report keys whose texts leave something out, each with what that is."""
        if self._changed("KeysShortened", notes):
            log.log(_level(notes), "keys shortened", extra=self._facts(notes))

    def refused(self, keys: Mapping[str, str]) -> None:
        """Report keys that the API server refuses for good, each with its reason."""
        if len(keys) != self._refused:
            self._refused = len(keys)
            self._count_refused(self._refused)
        if self._changed("KeysRefused", keys):
            log.log(_level(keys), "keys refused", extra=self._facts(keys))

    def _changed(self, reason: str, keys: Mapping[str, str]) -> bool:
        """Whether these are other keys than at the last call; an Event reports them then."""
        if not keys:
            return self._reported.clear(reason)
        is_new = self._reported.is_new(keys, reason)
        if is_new:
            self._event(reason, by_reason(keys))
        return is_new

    def _facts(self, keys: Mapping[str, str]) -> dict[str, str]:
        return {"object": self._kind, "why": by_reason(keys) or "none any more"}


def _level(keys: Mapping[str, str]) -> int:
    return logging.WARNING if keys else logging.INFO


def by_reason(keys: Mapping[str, str]) -> str:
    """Keys with one reason each, as one line with each reason once; empty without any.

    Of many keys with one reason the first ten are named.
    """
    reasons = dict.fromkeys(keys.values())
    return "; ".join(
        f"{first_names([key for key, why in keys.items() if why == reason], MOST_NAMED)}: {reason}"
        for reason in reasons
    )
