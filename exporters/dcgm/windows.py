# SPDX-License-Identifier: Apache-2.0
"""How often XID errors and clock events came lately: counts that fall again. Pure.

Times are seconds of a monotonic clock and reach this module as arguments. Source of names
and labels: dcgm-exporter, ``DCGM_EXP_XID_ERRORS_COUNT`` and ``DCGM_EXP_CLOCK_EVENTS_COUNT``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from discovery.model import NodeSnapshot, Xid
from discovery.sample import GpuSample
from exporters.gpu_holders import Entity

DEFAULT_SECONDS = 300.0

PARTS = 300
"""A window slides in so many steps, so that its memory is bounded whatever happens in it."""

CLOCK_EVENTS: Mapping[int, str] = {
    0x001: "gpu_idle",
    0x002: "clocks_setting",
    0x004: "power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, by dcgm-exporter's words."""


class Event(StrEnum):
    """Kind of event that is counted; the value is the label that names the event."""

    XID = "xid"
    CLOCK_EVENT = "clock_event"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCounts:
    """Counts of the events within a window, at one moment."""

    milliseconds: int
    """The window's length."""
    entities: Mapping[Entity, Mapping[str, int]] = field(default_factory=dict)
    """Only those that were read; nothing happened where the inner mapping is empty."""

    def of(self, entity: Entity) -> Mapping[str, int] | None:
        """The counts that an entity's series show; None where the entity was not read.

        A whole GPU shows those of its GPU instances too, an instance those of its GPU.
        """
        bus_id, instance = entity
        if (bus_id, None) not in self.entities:
            return None
        total: Counter[str] = Counter()
        for (bus, part), counts in self.entities.items():
            if bus == bus_id and (instance is None or part in (None, instance)):
                total.update(counts)
        return total


class _Sliding:
    """Counts of keys over the last seconds, in steps of a part of the window."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._parts: deque[tuple[int, Counter[tuple[Entity, str]]]] = deque()
        self._seen: dict[Entity, float] = {}

    def add(self, at: float, entity: Entity, counts: Mapping[str, int]) -> None:
        """Add what the entity counted since its reading before."""
        self._seen[entity] = at
        if not counts:
            return
        part = self._part(at)
        if not self._parts or self._parts[-1][0] != part:
            self._forget(at)
            self._parts.append((part, Counter()))
        self._parts[-1][1].update({(entity, key): count for key, count in counts.items()})

    def counts(self, at: float) -> WindowCounts:
        """Counts of the events in the window that ends now; older ones are forgotten."""
        self._forget(at)
        self._seen = {who: when for who, when in self._seen.items() if when > at - self.seconds}
        entities: dict[Entity, Counter[str]] = {entity: Counter() for entity in self._seen}
        for _, counts in self._parts:
            for (entity, key), count in counts.items():
                if entity in entities:
                    entities[entity][key] += count
        return WindowCounts(milliseconds=round(self.seconds * 1000), entities=entities)

    def _forget(self, at: float) -> None:
        while self._parts and self._parts[0][0] <= self._part(at) - PARTS:
            self._parts.popleft()

    def _part(self, at: float) -> int:
        return int(at * PARTS // self.seconds)


class Windows:
    """Counts events of snapshots and samples within sliding windows, as long as the agent runs."""

    def __init__(
        self,
        xid_seconds: float = DEFAULT_SECONDS,
        clock_event_seconds: float = DEFAULT_SECONDS,
        *,
        counted: Iterable[tuple[str, Xid]] = (),
    ) -> None:
        """Both lengths are above 0; ``counted`` are XIDs of before, by bus id: none is new."""
        self.lengths = (xid_seconds, clock_event_seconds)
        self._xids = _Sliding(xid_seconds)
        self._clock_events = _Sliding(clock_event_seconds)
        self._counted = {(bus_id, _kind(xid)): xid.count for bus_id, xid in counted}

    def show_snapshot(self, snapshot: NodeSnapshot, at: float) -> None:
        """Count the XID errors that came since the snapshot before."""
        for gpu in snapshot.gpus:
            self._xids.add(at, (gpu.bus_id, None), {})
            for xid in gpu.xids:
                news = self._news(gpu.bus_id, xid)
                self._xids.add(at, (gpu.bus_id, xid.gpu_instance_id), news)

    def show_samples(self, samples: Iterable[GpuSample]) -> None:
        """Count the reasons that hold clocks down in these samples, at the samples' own times.

        The reader's monotonic clock is the system's, the same in every process.
        """
        for sample in samples:
            if sample.clock_event_reasons is not None:
                found = {
                    word: 1
                    for bit, word in CLOCK_EVENTS.items()
                    if sample.clock_event_reasons & bit
                }
                self._clock_events.add(sample.at_seconds, (sample.bus_id, None), found)

    def counts(self, at: float) -> Mapping[Event, WindowCounts]:
        """Counts of both windows that end now."""
        return {
            Event.XID: self._xids.counts(at),
            Event.CLOCK_EVENT: self._clock_events.counts(at),
        }

    def _news(self, bus_id: str, xid: Xid) -> Mapping[str, int]:
        """What was added to a running count; all of it where the count began again."""
        which = (bus_id, _kind(xid))
        before = self._counted.get(which, 0)
        self._counted[which] = xid.count
        new = xid.count - before if xid.count >= before else xid.count
        return {str(xid.code): new} if new else {}


def _kind(xid: Xid) -> Xid:
    """What all XIDs that are counted together have in common."""
    return replace(xid, count=0, last_seen_seconds=0.0, over=False)
