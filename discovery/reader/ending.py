# SPDX-License-Identifier: Apache-2.0
"""Device readers that were asked to end and have not: the ones that leave, and the stuck ones.

A process that hangs in a driver call ends when the call returns, or never. Each
hung GPU may cost one such process, up to MOST_STUCK of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from discovery.reader.child import Child
from discovery.reader.protocol import Touching

MOST_STUCK = 8
"""So many GPUs may hang for good while the others are read: a whole machine of eight."""

MOST_STUCK_UNEXPLAINED = 1
"""Stuck readers that had announced no call, such as one that was stopped, or hangs at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A reader that is closing its NVML handles."""

    child: Child
    until: float
    """Monotonic seconds; afterwards it gets SIGTERM and counts as stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A reader that SIGTERM did not end."""

    child: Child
    call: Touching | None
    """Call that it had announced last; None where that is not known."""

    @property
    def in_driver(self) -> bool:
        """It hangs in a call to the driver as a whole."""
        return self.call is not None and self.call.bus_id is None

    @property
    def bus_id(self) -> str | None:
        """The GPU on which it hangs."""
        return None if self.call is None else self.call.bus_id


class EndingReaders:
    """The readers that are asked for nothing any more; its user holds a lock."""

    def __init__(self) -> None:
        self._leaving: list[Leaving] = []
        self._stuck: list[Stuck] = []

    def leave(self, child: Child, until: float) -> None:
        """A reader was asked to stop; it counts as stuck when it is there after ``until``."""
        self._leaving.append(Leaving(child=child, until=until))

    def hang(self, child: Child, call: Touching | None) -> None:
        """A reader did not end at SIGTERM; ``call``: what it had announced last."""
        self._stuck.append(Stuck(child=child, call=call))

    def reap(self, now: float) -> None:
        """Forget readers that ended; one too slow to leave gets SIGTERM and counts as stuck."""
        for reader in self._leaving:
            if reader.until <= now and not reader.child.ended:
                reader.child.terminate()
                self.hang(reader.child, None)
        self._leaving = [
            reader for reader in self._leaving if now < reader.until and not reader.child.ended
        ]
        self._stuck = [reader for reader in self._stuck if not reader.child.ended]

    @property
    def children(self) -> tuple[Child, ...]:
        """All readers that leave or are stuck."""
        leaving = (reader.child for reader in self._leaving)
        stuck = (reader.child for reader in self._stuck)
        return (*leaving, *stuck)

    @property
    def stuck_count(self) -> int:
        """Number of stuck readers."""
        return len(self._stuck)

    @property
    def stuck_bus_ids(self) -> frozenset[str]:
        """GPUs with a stuck reader of their own: a second one would hang there as well."""
        return frozenset(reader.bus_id for reader in self._stuck if reader.bus_id is not None)

    def keeps_open(self, bus_id: str | None) -> bool:
        """Whether a stuck reader has this GPU open; None: the driver.

        The driver keeps a GPU initialised while any process has it open.
        """
        return any(
            bus_id in reader.child.returned and not reader.child.ended for reader in self._stuck
        )

    @property
    def may_leave(self) -> bool:
        """Whether one more may be asked to leave: none is leaving, or has hung while it left.

        So that they do not pile up where a reader hangs at its end.
        """
        return not self._leaving and not self._unexplained

    @property
    def why_start_none(self) -> str | None:
        """Why no other reader may be started; None if one may."""
        if any(reader.in_driver for reader in self._stuck):
            return "the NVIDIA driver does not answer at all; waiting for it to return"
        if self._unexplained > MOST_STUCK_UNEXPLAINED or len(self._stuck) > MOST_STUCK:
            return f"{len(self._stuck)} device readers are stuck in driver calls; starting no other"
        return None

    @property
    def probes_allowed(self) -> int:
        """How many GPUs may be probed at once: each may hang and must leave room for a reader."""
        return 0 if self.why_start_none is not None else MOST_STUCK - len(self._stuck)

    @property
    def _unexplained(self) -> int:
        return sum(reader.call is None for reader in self._stuck)
