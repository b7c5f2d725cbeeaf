# SPDX-License-Identifier: Apache-2.0
"""Keys that another writer changes back each time, and for how long the agent leaves them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REPAIRS = 3
"""Times that a key is put right before it is left alone for a while."""
RESTS_SECONDS = (600.0, 1200.0, 2400.0, 3600.0)
"""How long a key is left alone: at first, after one repair more, and so on; at last always."""
PEACE_SECONDS = 7200.0
"""A key that stood so long after a repair has no rival writer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    text: str | None
    written_at: float
    repairs: int = 0
    """Times it had to be written again since the first."""
    writer: str = ""

    @property
    def rests_until(self) -> float:
        if self.repairs < REPAIRS:
            return self.written_at
        return self.written_at + RESTS_SECONDS[min(self.repairs - REPAIRS, len(RESTS_SECONDS) - 1)]


class RivalWriters:
    """Remembers what was written; a key that needs the same text again has a rival."""

    def __init__(self) -> None:
        self._written: dict[str, _Written] = {}

    def forget(self) -> None:
        """There is a new object: nobody has undone anything on it."""
        self._written.clear()

    def wrote(
        self, changed: Mapping[str, str | None], writer_by_key: Mapping[str, str], now: float
    ) -> None:
        """These texts were written now; ``writer_by_key`` names who wrote the texts before them."""
        for key, text in changed.items():
            before = self._written.get(key)
            again = (
                before is not None
                and before.text == text
                and now - before.written_at < PEACE_SECONDS
            )
            repairs = before.repairs + 1 if before is not None and again else 0
            self._written[key] = _Written(
                text=text, written_at=now, repairs=repairs, writer=writer_by_key.get(key, "")
            )

    def resting(self, now: float) -> dict[str, str]:
        """The keys to leave alone now, and why."""
        return {
            key: f"{written.writer or 'somebody'} changes it back again and again"
            for key, written in self._written.items()
            if now < written.rests_until
        }
