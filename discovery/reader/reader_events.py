# SPDX-License-Identifier: Apache-2.0
"""Events of device readers until the agent takes them; an XID of several counts once. Pure.

While one reader takes over from another, both have a GPU open, and the driver delivers an XID to
each of them. Every reader delivers each of its XIDs once, so the reader that has delivered the most
of one kind has delivered all of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable

from discovery.reader.protocol import Event, XidSeen

EVENTS_KEPT = 1000


class ReaderEvents:
    """The newest events, and the readers whose events count now; its user holds a lock."""

    def __init__(self) -> None:
        self._events = deque[Event](maxlen=EVENTS_KEPT)
        self.overflows = 0
        """Events that were lost, since more came than are kept."""
        self._delivered: dict[Hashable, Counter[XidSeen]] = {}
        self._counted = Counter[XidSeen]()

    def opened(self, source: Hashable) -> None:
        """Count this reader's events; it has been asked for nothing yet."""
        self._delivered[source] = self._counted.copy()

    def closed(self, source: Hashable) -> None:
        """Count this reader's events no longer: others have its GPUs, or nobody has."""
        self._delivered.pop(source, None)
        if len(self._delivered) < 2:
            self._counted.clear()
        self._delivered = {other: self._counted.copy() for other in self._delivered}

    def add(self, source: Hashable, event: Event) -> bool:
        """Keep this event where it counts; whether it does."""
        if not self.admits(source, event):
            return False
        self.overflows += len(self._events) == EVENTS_KEPT
        self._events.append(event)
        return True

    def taken(self) -> tuple[Event, ...]:
        """Events since the last call, in order; of more than EVENTS_KEPT the oldest are lost."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def admits(self, source: Hashable, event: Event) -> bool:
        """Whether this event counts: it is no copy of what another reader has delivered."""
        if source not in self._delivered:
            return False
        if len(self._delivered) == 1 or not isinstance(event, XidSeen):
            return True
        delivered = self._delivered[source]
        delivered[event] += 1
        if delivered[event] <= self._counted[event]:
            return False
        self._counted[event] = delivered[event]
        return True
