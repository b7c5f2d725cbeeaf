# SPDX-License-Identifier: Apache-2.0
"""The GPUs this node is known to have, their places, and the facts kept of silent ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from base.log_once import LogOnce
from discovery import remember
from discovery.bus_id import bus_order
from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.model import Driver, Gap, GpuSnapshot, GpuState, Reason
from discovery.reader.quarantine import Quarantine
from discovery.shared_identities import shared_identities, without_shared
from discovery.unread import unread_gpu

log = logging.getLogger(__name__)

SETTLE_SECONDS = 60.0
"""How long a GPU may take for its first answer before a node is described without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGpusRecord:
    """Everything that :class:`KnownGpus` knows; a later one goes on from it."""

    places: Mapping[str, int] = field(default_factory=dict)
    """Bus id to place; places run from 0 without holes."""
    expected: frozenset[str] = frozenset()
    gpus: Mapping[str, GpuSnapshot] = field(default_factory=dict)
    """Bus id to the facts as last read, of GPUs that have answered once."""
    hung: frozenset[str] = frozenset()
    """GPUs that hang for good."""
    unaddressed: int = 0
    """GPUs without a known bus id."""
    former: int = 0
    """GPUs in an earlier boot, until there is a number for this one (:attr:`GpuCounts.settled`)."""

    @property
    def counted(self) -> int:
        """GPUs that were counted in this boot, those without a known bus id included."""
        return len(self.expected) + self.unaddressed

    @property
    def total(self) -> int:
        """How many GPUs the node should have."""
        return max(self.counted, self.former)

    @property
    def of_earlier_boot(self) -> KnownGpusRecord:
        """The record to start a later boot with: the number alone, since bus ids may be others."""
        return KnownGpusRecord(former=self.total)

    @property
    def of_other_driver(self) -> KnownGpusRecord:
        """The record to go on with under another driver: the GPUs, but none of their facts."""
        return replace(self, gpus={}, hung=frozenset())

    def joined(self, other: KnownGpusRecord) -> KnownGpusRecord:
        """Every GPU that either record knows, and never fewer than either counts.

        The places are those of ``other``; GPUs that it does not know come after them.
        """
        first, rest = (
            sorted(record.places, key=record.places.__getitem__) for record in (other, self)
        )
        expected = self.expected | other.expected
        counted = max(self.counted, other.counted)
        return KnownGpusRecord(
            places={bus_id: place for place, bus_id in enumerate(dict.fromkeys((*first, *rest)))},
            expected=expected,
            gpus={**other.gpus, **self.gpus},
            hung=self.hung | other.hung,
            unaddressed=max(counted - len(expected), 0),
            former=max(self.former, other.former),
        )


class KnownGpus:
    """Every GPU that was ever expected stays known by its bus id, in one place of its own.

    Places are numbered in PCI bus order at first, as NVML's indices are; a GPU that comes later
    has the next free one, and a place never changes its GPU. NVML's own indices close ranks when
    a GPU leaves the bus, so that healthy ones would change their names in the middle of an
    incident. A GPU that is another driver's now is forgotten, but for its place.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._expected_since: dict[str, float] = {}
        """Bus id to monotonic seconds; without GPUs that are not expected any more."""
        self._known: dict[str, GpuSnapshot] = {}
        self._unaddressed = self._former = 0
        self._why_not_listed = ""
        self._driver: Driver | None = None
        self._shared = LogOnce()
        self._hung = frozenset[str]()
        self._hung_before = frozenset[str]()
        self._offered: KnownGpusRecord | None = None
        self._awaited_since: float | None = None
        self._has_record = False
        self.awaits_record = False
        """Another source may know of more GPUs (:meth:`await_record`)."""

    def __len__(self) -> int:
        return len(self._expected_since)

    @property
    def record(self) -> KnownGpusRecord:
        """All that is known now, for any thread: copying a dict is one step."""
        return KnownGpusRecord(
            places=dict(self._places),
            expected=frozenset(dict(self._expected_since)),
            gpus=dict(self._known),
            hung=self._hung,
            unaddressed=self._unaddressed,
            former=self._former,
        )

    def restore(self, record: KnownGpusRecord, now: float) -> None:
        """Go on from what another process knew; to be called before anything else is known."""
        self._places = dict(record.places)
        self._expected_since = dict.fromkeys(record.expected, now)
        self._known = dict(record.gpus)
        self._hung = self._hung_before = record.hung
        self._unaddressed = record.unaddressed
        self._former = record.former

    def await_record(self) -> None:
        """Another source, which answers later, may know of more GPUs; unless it has answered."""
        self.awaits_record = not self._has_record

    def offer_record(self, record: KnownGpusRecord) -> None:
        """Take this record over at the next :meth:`expect`; may be called by any thread."""
        self._offered = record

    def _take_offered(self, now: float) -> None:
        if self._offered is None:
            return
        joined, self._offered = self.record.joined(self._offered), None
        since = dict.fromkeys(joined.expected, now) | self._expected_since
        self._places, self._expected_since = dict(joined.places), since
        self._unaddressed, self._former = joined.unaddressed, joined.former
        self._has_record, self.awaits_record = True, False

    def take_hung_before(self) -> frozenset[str]:
        """GPUs that hung for good when another process knew them; once, then none."""
        hung, self._hung_before = self._hung_before, frozenset()
        return hung

    def expect(
        self,
        listed: Collection[str],
        elsewhere: Collection[str],
        now: float,
        counts: GpuCounts = NO_GPUS,
    ) -> GpuCounts:
        """Know these GPUs from now on, and no longer those that are not the driver's any more.

        Returns the counts with the GPUs that the node has and no source gives a bus id of: as many
        as NVML has ever counted above those with one, until they turn up; and as many as the node
        had more in an earlier boot, until it is settled how many it has in this one.
        """
        if self.awaits_record and self._awaited_since is None:
            self._awaited_since = now
        self._take_offered(now)
        new = len(set(listed) - self._expected_since.keys())
        for bus_id in sorted(listed, key=bus_order):
            self._places.setdefault(bus_id, len(self._places))
            self._expected_since.setdefault(bus_id, now)
        for bus_id in elsewhere:
            self._expected_since.pop(bus_id, None)
            self._known.pop(bus_id, None)
        more = (counts.discrete or 0) - len(self._expected_since)
        self._unaddressed = max(self._unaddressed - new, more, 0)
        self._why_not_listed = counts.why_not_listed
        if counts.settled:
            self._former = 0
        missing = self._former - len(self._expected_since) - self._unaddressed
        return replace(
            counts,
            unaddressed=self._unaddressed + max(missing, 0),
            former=self._former if missing > 0 else 0,
        )

    def settling(self, now: float) -> bool:
        """Whether a GPU, or a record of more, was first expected less than SETTLE_SECONDS ago."""
        awaited = [self._awaited_since] if self.awaits_record else []
        sinces = (*self._expected_since.values(), *awaited)
        return any(since is not None and now - since < SETTLE_SECONDS for since in sinces)

    def described(
        self,
        listed: Collection[str],
        read: Mapping[str, GpuSnapshot],
        quarantine: Quarantine,
        awaited: Collection[str] = frozenset(),
    ) -> tuple[GpuSnapshot, ...]:
        """Each expected GPU, by its place: as read, or with the reason why it was not.

        ``awaited``: the first answer of these GPUs is being waited for.
        """
        self._hung = quarantine.hung_for_good
        held = quarantine.bus_ids  # it may have been read first, and hung when read once more
        gpus = [
            read[bus_id]
            if bus_id in read and bus_id not in held
            else self._missing(bus_id, listed, quarantine, awaited)
            for bus_id in sorted(self._expected_since, key=self._places.__getitem__)
        ]
        known = [remember.gpu_with_kept_facts(gpu, self._known.get(gpu.bus_id)) for gpu in gpus]
        self._known |= {gpu.bus_id: gpu for gpu in known if gpu.state is GpuState.PRESENT}
        placed = [replace(gpu, index=self._places[gpu.bus_id]) for gpu in known]
        return self._log_shared(without_shared(placed))

    def _log_shared(self, gpus: tuple[GpuSnapshot, ...]) -> tuple[GpuSnapshot, ...]:
        shared = tuple(shared_identities(gpus))
        if not shared:
            self._shared.clear()
        elif self._shared.is_new(shared):
            whose = ", ".join(sorted({bus_id for bus_id, _ in shared}, key=bus_order))
            log.error("identity shared", extra={"gpus": whose, "why": shared[0][1].detail})
        return gpus

    def driver(self, now: Driver) -> Driver:
        """The driver that answers now, with what it reported since it was loaded."""
        self._driver = remember.driver_with_kept_facts(now, self._driver)
        return self._driver

    def driver_gone(self) -> None:
        """No driver answers; the next one may be of another version."""
        self._driver = None

    def _missing(
        self,
        bus_id: str,
        listed: Collection[str],
        quarantine: Quarantine,
        awaited: Collection[str],
    ) -> GpuSnapshot:
        held = quarantine.held(bus_id)
        if held is not None:
            state = GpuState.HUNG if held.reason is Reason.HUNG else GpuState.UNREADABLE
            gap = Gap(what="state", reason=held.reason, source="device reader", detail=held.why)
        elif self._why_not_listed:
            state = GpuState.UNREADABLE
            gap = Gap(
                what="state",
                reason=Reason.FAILED,
                source="nvmlDeviceGetCount",
                detail=self._why_not_listed,
            )
        elif bus_id not in listed:
            state = GpuState.LOST
            gap = Gap(what="state", reason=Reason.LOST, source="sysfs", detail="no longer listed")
        elif bus_id in awaited:
            state = GpuState.INITIALISING
            why = "its first answer is being waited for"
            gap = Gap(what="state", reason=Reason.PENDING, source="device reader", detail=why)
        else:
            state = GpuState.UNREADABLE
            gap = Gap(what="state", reason=Reason.FAILED, source="device reader", detail="not read")
        return unread_gpu(bus_id, state, gap)
