# SPDX-License-Identifier: Apache-2.0
"""Log lines of GPUs' and switches' errors, one of each kind a minute: they come in hundreds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from agent.gpu_errors.kernel_records import SxidSeen
from base.log_pace import LogPace
from discovery.reader.protocol import Event, XidSeen

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """An error's code and where it happened; or a text that reports lost events."""

    where: str
    code: int | None
    of_switch: bool = False


class ErrorLog:
    """Logs errors as they come; those of a kind that was logged in this minute are counted."""

    def __init__(self) -> None:
        self._pace = LogPace()

    def add(self, event: Event | SxidSeen, now: float) -> None:
        """Log this event, unless its kind was logged less than a minute before ``now``."""
        match event:
            case SxidSeen():
                kind = _Kind(where=event.bus_id, code=event.code, of_switch=True)
            case XidSeen():
                kind = _Kind(where=event.bus_id, code=event.code)
            case _:
                kind = _Kind(where=event.text, code=None)
        left_out = self._pace.take(kind, now)
        if left_out is not None:
            _log(kind, {"left_out": left_out} if left_out else {})

    def end_minutes(self, now: float) -> None:
        """Log how many errors were left out of kinds that have not come since."""
        for kind, left_out in self._pace.overdue(now):
            shown = kind if isinstance(kind, _Kind) else _Kind(where="various", code=0)
            _log(shown, {"left_out": left_out})


def _log(kind: _Kind, more: Mapping[str, int]) -> None:
    if kind.code is None:
        log.warning("XID events incomplete", extra={"reason": kind.where, **more})
    elif kind.of_switch:
        log.warning("SXid error", extra={"switch": kind.where, "sxid": kind.code, **more})
    else:
        log.warning("XID error", extra={"gpu": kind.where, "xid": kind.code, **more})
