# SPDX-License-Identifier: Apache-2.0
"""The outcome of comparing pins with advisories, in lines for people. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tools.advisories.accepted import AcceptedAdvisory
from tools.advisories.osv_server import Advisory
from tools.advisories.pins import Pin

_LONGEST: Final = 120
"""Characters of a summary: some records have a whole page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Lines, by what they ask for."""

    open: tuple[str, ...] = ()
    """Advisories that are not accepted: something has to be done."""
    accepted: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Entries about no pin any more."""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them, what has to be done first."""
        return (*self.open, *self.accepted, *self.unused)


def comparison(
    advisories: Mapping[Pin, Iterable[Advisory]],
    accepted: Sequence[AcceptedAdvisory],
    today: datetime.date,
) -> Comparison:
    """The outcome; withdrawn advisories are left out, and aliases of one that is listed."""
    listed = [
        (pin, advisory)
        for pin, pin_advisories in sorted(advisories.items())
        for advisory in _once(pin_advisories)
    ]
    entries = {entry.id: entry for entry in accepted}
    still_open, allowed = [], []
    for pin, advisory in listed:
        line = _line(pin, advisory)
        entry = next((entries[name] for name in sorted(advisory.names) if name in entries), None)
        if entry is None:
            still_open.append(line)
        elif today > entry.until:
            still_open.append(f"{line}; it was accepted until {entry.until}")
        else:
            allowed.append(f"accepted until {entry.until} ({entry.reason}): {line}")
    used = {name for _, advisory in listed for name in advisory.names}
    return Comparison(
        open=tuple(still_open),
        accepted=tuple(allowed),
        unused=tuple(
            f"{entry.id} is accepted and is about no pin any more: remove its entry"
            for entry in accepted
            if entry.id not in used
        ),
    )


def _once(advisories: Iterable[Advisory]) -> Iterator[Advisory]:
    named: set[str] = set()
    for advisory in sorted(advisories, key=lambda candidate: candidate.id):
        if not advisory.is_withdrawn and named.isdisjoint(advisory.names):
            named |= advisory.names
            yield advisory


def _line(pin: Pin, advisory: Advisory) -> str:
    names = ", ".join((advisory.id, *sorted(advisory.aliases)))
    summary = " ".join(advisory.summary.split()) or "no summary"
    if len(summary) > _LONGEST:
        summary = f"{summary[: _LONGEST - 1]}…"
    fix = f"fixed in {', '.join(advisory.fixed)}" if advisory.fixed else "no fixed version"
    return f"{pin.file}: {pin.name} {pin.version}: {names}: {summary} ({fix})"
