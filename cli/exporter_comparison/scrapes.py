# SPDX-License-Identifier: Apache-2.0
"""A run of scrapes of two sides: both at the same moments, whatever either does."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from base.errors import Unreadable
from cli import terminal
from cli.exporter_comparison.endpoints import ExpositionSource
from exporters.compare.comparison import Comparison
from exporters.compare.exposition_parser import ExpositionFault, Families, Malformed, Parser


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapePlan:
    """Number, interval and timeout of the scrapes."""

    rounds: int
    interval_seconds: float
    timeout_seconds: float
    """Limit for a whole answer of an address; files and standard input have no limit."""


class ScrapedSide:
    """A side of the run: its source, and counts and reasons of failed scrapes."""

    def __init__(self, name: str, source: ExpositionSource) -> None:
        self.name = name
        """``left`` or ``right``."""
        self.source = source
        self.scrapes = 0
        self.failures = 0
        self.failure = ""
        """The reason of the newest failed scrape."""
        self.faults: list[ExpositionFault] = []
        """Lines that break the format, of the newest exposition that had such lines."""
        self._parser = Parser()
        self._thread: threading.Thread | None = None
        self._bodies: list[bytes] = []

    def start(self, within_seconds: float) -> None:
        """Begin to read for a round."""
        self._bodies = []  # what comes too late goes into the list of its own round
        if self._thread is not None and self._thread.is_alive():
            return  # in a call that nothing ends, such as a look-up of the host's name
        self._thread = threading.Thread(
            target=self._read, args=(within_seconds, self._bodies), daemon=True
        )
        self._thread.start()

    def wait(self, until: float) -> None:
        """Wait for the read to end; for an address until this monotonic time at most."""
        if self._thread is not None:
            live = self.source.is_live
            self._thread.join(max(0.0, until - time.monotonic()) if live else None)

    def families(self, within_seconds: float) -> Families | None:
        """The families read in this round; None where nothing was, which counts as a failure."""
        self.scrapes += 1
        parsed_families = self._parsed(self._bodies[0]) if self._bodies else None
        if parsed_families is None:
            self.failures += 1
            self.failure = self.failure or f"no whole answer within {within_seconds:g} s"
        return parsed_families

    def _read(self, within_seconds: float, bodies: list[bytes]) -> None:
        try:
            bodies.append(self.source.read(within_seconds))
        except Unreadable as error:
            self.failure = str(error)

    def _parsed(self, body: bytes) -> Families | None:
        faults: list[ExpositionFault] = []
        try:
            families = self._parser.parse(body, faults)
        except Malformed as error:
            self.failure = str(error)
            return None
        if faults and not any(family.series for family in families.values()):
            self.failure = f"it is no exposition: {faults[0]}"
            return None
        self.faults = faults or self.faults
        return families


def scrape_sides(
    left_side: ScrapedSide, right_side: ScrapedSide, comparison: Comparison, plan: ScrapePlan
) -> None:
    """Scrape both sides as planned; a round in which a side fails is counted and left out.

    Ctrl-C ends it early once something was compared. Raises TooManySeries.
    """
    try:
        _rounds(left_side, right_side, comparison, plan)
    except KeyboardInterrupt:
        if not comparison.rounds:
            raise
    _progress(plan.rounds, plan.rounds, (left_side, right_side))


def _rounds(
    left_side: ScrapedSide, right_side: ScrapedSide, comparison: Comparison, plan: ScrapePlan
) -> None:
    began = time.monotonic()
    for number in range(plan.rounds):
        _progress(number, plan.rounds, (left_side, right_side))
        time.sleep(max(0.0, began + number * plan.interval_seconds - time.monotonic()))
        at_seconds = time.monotonic() - began
        answers = _scraped((left_side, right_side), plan.timeout_seconds)
        if answers[0] is not None and answers[1] is not None:
            comparison.add(answers[0], answers[1], at_seconds)


def _scraped(sides: Sequence[ScrapedSide], within_seconds: float) -> Sequence[Families | None]:
    """The families that each side served in a round; None for a side that could not be read."""
    until = time.monotonic() + within_seconds + 1  # the reading's own deadline comes first
    for side in sides:
        side.start(within_seconds)
    for side in sides:
        side.wait(until)
    return [side.families(within_seconds) for side in sides]


def _progress(number: int, rounds: int, sides: Sequence[ScrapedSide]) -> None:
    """Show the progress of the run, on a terminal only, in a line that is removed at the end."""
    if rounds == 1:
        return
    failed = ", ".join(f"{side.name} failed {side.failures}" for side in sides if side.failures)
    line = "" if number == rounds else f"scrape {number + 1} of {rounds}  {failed}"
    terminal.show_progress(line)
