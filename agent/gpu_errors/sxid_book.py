# SPDX-License-Identifier: Apache-2.0
"""NVSwitch errors since the agent started, folded by switch, code and severity."""

from __future__ import annotations

from agent.gpu_errors.kernel_records import SxidSeen
from exporters.gpuscape.switch_errors import Severity, Sxid

MOST_KINDS = 1024
"""Kinds of errors that are counted at most, on all switches; there are about a hundred codes."""


class SxidBook:
    """Counts SXids; there are as many entries as different ones, however many come."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, Severity], Sxid] = {}

    def add(self, event: SxidSeen, unix_seconds: float) -> None:
        """Count an error; a new kind is left out where there are too many kinds."""
        key = (event.bus_id, event.code, event.severity)
        before = self._seen.get(key)
        if before is None and len(self._seen) >= MOST_KINDS:
            return
        self._seen[key] = Sxid(
            bus_id=event.bus_id,
            code=event.code,
            severity=event.severity,
            count=before.count + 1 if before else 1,
            last_seen_seconds=unix_seconds,
        )

    @property
    def seen(self) -> tuple[Sxid, ...]:
        """Counts of all kinds of errors, sorted by switch, code and severity."""
        return tuple(self._seen[key] for key in sorted(self._seen))
