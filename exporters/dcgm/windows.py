# SPDX-License-Identifier: Apache-2.0
"""How often XID errors and clock events came: lately, and since the agent started. Pure.

Times are seconds of a monotonic clock and reach this module as arguments. Source of names
and labels: dcgm-exporter, ``DCGM_EXP_XID_ERRORS_COUNT`` and ``DCGM_EXP_CLOCK_EVENTS_COUNT``, and
the same with ``_TOTAL``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum

from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot, Xid, nvidia_gpus
from discovery.sample import GpuSample

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


class Span(Enum):
    """For which time events are counted."""

    WINDOW = "window"  # a sample counts for each reason that it has
    TOTAL = "total"  # since the agent started; a reason counts when it sets in


Counts = Mapping[tuple[Event, Span], "EventCounts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """Counts of the events within a window, or of all, at one moment."""

    milliseconds: int | None = None
    """The window's length; None: since the agent started."""
    entities: Mapping[GpuPart, Mapping[str, int]] = field(default_factory=dict)
    """Only those that were read; nothing happened where the inner mapping is empty."""

    def of(self, entity: GpuPart) -> Mapping[str, int] | None:
        """The counts that an entity's series show; None where the entity was not read.

        A whole GPU shows those of its GPU instances too, an instance those of its GPU.
        """
        bus_id, instance = entity
        if GpuPart(bus_id) not in self.entities:
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
        self._parts: deque[tuple[int, Counter[tuple[GpuPart, str]]]] = deque()
        self._seen: dict[GpuPart, float] = {}

    def add(self, now: float, entity: GpuPart, counts: Mapping[str, int]) -> None:
        """Add what the entity counted since its reading before."""
        self._seen[entity] = now
        if not counts:
            return
        part = self._part(now)
        if not self._parts or self._parts[-1][0] != part:
            self._forget(now)
            self._parts.append((part, Counter()))
        self._parts[-1][1].update({(entity, key): count for key, count in counts.items()})

    def counts(self, now: float) -> EventCounts:
        """Counts of the events in the window that ends now; older ones are forgotten."""
        self._forget(now)
        self._seen = {
            entity: when for entity, when in self._seen.items() if when > now - self.seconds
        }
        entities: dict[GpuPart, Counter[str]] = {entity: Counter() for entity in self._seen}
        for _, counts in self._parts:
            for (entity, key), count in counts.items():
                if entity in entities:
                    entities[entity][key] += count
        return EventCounts(milliseconds=round(self.seconds * 1000), entities=entities)

    def _forget(self, now: float) -> None:
        while self._parts and self._parts[0][0] <= self._part(now) - PARTS:
            self._parts.popleft()

    def _part(self, now: float) -> int:
        return int(now * PARTS // self.seconds)


class _Totals:
    """Counts of keys since the start."""

    def __init__(self) -> None:
        self._entities: dict[GpuPart, Counter[str]] = {}

    def add(self, entity: GpuPart, counts: Mapping[str, int]) -> None:
        """Add what the entity counted since its reading before."""
        self._entities.setdefault(entity, Counter()).update(counts)

    def counts(self) -> EventCounts:
        """All that was added."""
        return EventCounts(
            entities={entity: dict(counts) for entity, counts in self._entities.items()}
        )


class Windows:
    """Counts events of snapshots and samples, in sliding windows and in all."""

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
        self._xid_total = _Totals()
        self._clock_event_total = _Totals()
        self._reasons: dict[str, int] = {}
        self._counted = {(bus_id, _kind(xid)): xid.count for bus_id, xid in counted}

    def show_snapshot(self, snapshot: NodeSnapshot, now: float) -> None:
        """Count the XID errors that came since the snapshot before."""
        for gpu, nvidia in nvidia_gpus(snapshot.gpus):
            self._count_xids(now, GpuPart(gpu.bus_id), {})
            for xid in nvidia.xids:
                news = self._news(gpu.bus_id, xid)
                self._count_xids(now, GpuPart(gpu.bus_id, xid.gpu_instance_id), news)

    def show_samples(self, samples: Iterable[GpuSample]) -> None:
        """Count the reasons that hold clocks down in these samples, at the samples' own times.

        The reader's monotonic clock is the system's, the same in every process.
        """
        for sample in samples:
            reasons, entity = sample.clock_event_reasons, GpuPart(sample.bus_id)
            if reasons is not None:
                before = self._reasons.get(sample.bus_id, reasons)
                self._reasons[sample.bus_id] = reasons
                self._clock_events.add(sample.at_seconds, entity, _words(reasons))
                self._clock_event_total.add(entity, _words(reasons & ~before))

    def counts(self, now: float) -> Counts:
        """Counts of both windows that end now, and of all."""
        return {
            (Event.XID, Span.WINDOW): self._xids.counts(now),
            (Event.XID, Span.TOTAL): self._xid_total.counts(),
            (Event.CLOCK_EVENT, Span.WINDOW): self._clock_events.counts(now),
            (Event.CLOCK_EVENT, Span.TOTAL): self._clock_event_total.counts(),
        }

    def _count_xids(self, now: float, entity: GpuPart, counts: Mapping[str, int]) -> None:
        self._xids.add(now, entity, counts)
        self._xid_total.add(entity, {code: new for code, new in counts.items() if code != "0"})

    def _news(self, bus_id: str, xid: Xid) -> Mapping[str, int]:
        """What was added to a running count; all of it where the count began again."""
        kind = (bus_id, _kind(xid))
        before = self._counted.get(kind, 0)
        self._counted[kind] = xid.count
        new = xid.count - before if xid.count >= before else xid.count
        return {str(xid.code): new} if new else {}


def _words(reasons: int) -> Mapping[str, int]:
    return {word: 1 for bit, word in CLOCK_EVENTS.items() if reasons & bit}


def _kind(xid: Xid) -> Xid:
    """What all XIDs that are counted together have in common."""
    return replace(xid, count=0, last_seen_seconds=0.0, over=False)
