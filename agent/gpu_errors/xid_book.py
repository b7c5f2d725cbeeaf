# SPDX-License-Identifier: Apache-2.0
"""XID errors folded by GPU, instance and code, and whether the fault behind them is over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.gpu_errors.gpu_recovery import Need, is_met, needs
from base.words import quoted
from discovery.bus_id import normal_bus_id
from discovery.model import GpuSnapshot, NodeSnapshot, Xid
from discovery.reader.protocol import XidSeen
from health.health_verdict import Health
from health.xid_classes import xid_health

log = logging.getLogger(__name__)

ALL = "all"
"""Word that a person writes in place of bus ids for all GPUs."""

_Key = tuple[str, int, int | None, int | None]
"""Bus id, code, GPU instance and compute instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidRecord:
    """Everything that an :class:`XidBook` knows; a later one goes on from it."""

    xids: tuple[tuple[str, Xid], ...] = ()
    """XIDs with the bus ids of their GPUs, the newest last."""
    needed: Mapping[str, frozenset[Need]] = field(default_factory=dict)
    """Bus id to the recoveries that the GPU was seen to need since its newest error."""
    request: str | None = None
    """The last request of :meth:`XidBook.clear`."""


class XidBook:
    """Counts XIDs; there are as many entries as different codes, however many errors come.

    An XID is over once its GPU needed something after it, such as a reset, and needs it no longer;
    once another driver runs; and once a person says so. It still counts, and has no bearing on
    health. Any thread may call every method.
    """

    def __init__(self, record: XidRecord | None = None) -> None:
        self._knows_last_request = record is not None
        record = XidRecord() if record is None else record
        self._last_request = record.request
        self._lock = threading.Lock()
        self._seen = {_key(bus_id, xid): xid for bus_id, xid in record.xids}
        self._needed = dict(record.needed)
        self._driver: str | None = None

    @property
    def record(self) -> XidRecord:
        """The record of all that is known now."""
        with self._lock:
            xids = tuple((key[0], xid) for key, xid in self._seen.items())
            return XidRecord(xids=xids, needed=dict(self._needed), request=self._last_request)

    def add(self, event: XidSeen, unix_seconds: float) -> None:
        """Count an error, the newest from now on."""
        xid = Xid(
            code=event.code,
            count=1,
            gpu_instance_id=event.gpu_instance_id,
            compute_instance_id=event.compute_instance_id,
            last_seen_seconds=unix_seconds,
        )
        key = _key(event.bus_id, xid)
        with self._lock:
            before = self._seen.pop(key, None)
            # at the end: the order is that of the newest errors
            self._seen[key] = xid if before is None else replace(xid, count=before.count + 1)
            if xid_health(event.code, recovered=False) is not Health.HEALTHY:
                self._needed.pop(event.bus_id, None)  # what was needed before says nothing of it

    def enter(self, snapshot: NodeSnapshot) -> NodeSnapshot:
        """The snapshot with each GPU's XIDs, the newest last; those that it shows to be over are.

        A snapshot that began before an error shows nothing of it; the error hastens another.
        """
        version = snapshot.driver.version
        if version is not None and self._driver not in (None, version):
            self._end("another driver runs", lambda _: True)
        self._driver = version or self._driver
        for gpu in snapshot.gpus:
            with self._lock:
                needed = self._needed.get(gpu.bus_id, frozenset()) | needs(gpu)
                if needed and self._stands(gpu.bus_id):
                    self._needed[gpu.bus_id] = needed
            if is_met(needed, gpu):
                self._end(", ".join(sorted(needed)), {gpu.bus_id}.__contains__)
        with self._lock:
            seen = tuple(self._seen.items())
        return replace(snapshot, gpus=tuple(_with_xids(gpu, seen) for gpu in snapshot.gpus))

    def end_recovered(self, logged: Iterable[XidSeen]) -> None:
        """The errors of each GPU whose recovery the kernel log reports are over."""
        for event in logged:
            if event.recovered:
                self._end("the kernel log reports its recovery", {event.bus_id}.__contains__)

    def clear(self, request: str | None) -> bool:
        """Let the errors of these GPUs be over: ``all``, or PCI bus ids; True if it obeys.

        A request is obeyed once, when it has changed: errors that come while it stands count. One
        that stood before anything was known says nothing of what came since.
        """
        with self._lock:
            is_new = request != self._last_request and self._knows_last_request
            self._last_request, self._knows_last_request = request, True
        if request is None or not is_new:
            return False
        try:
            named = (
                None if request == ALL else {normal_bus_id(bus_id) for bus_id in request.split(",")}
            )
        except ValueError:
            why = f"{quoted(request)} names no GPUs"
            action = f"write {ALL}, or PCI bus ids as nvidia-smi has them"
            log.warning("XID clearance not understood", extra={"why": why, "action": action})
            return False
        self._end("a person cleared them", lambda bus_id: named is None or bus_id in named)
        return True

    def _end(self, why: str, concerned: Callable[[str], bool]) -> None:
        with self._lock:
            ended = [key for key, xid in self._seen.items() if concerned(key[0]) and _counts(xid)]
            for key in ended:
                self._seen[key] = replace(self._seen[key], over=True)
            self._needed = {
                bus_id: need for bus_id, need in self._needed.items() if not concerned(bus_id)
            }
        for bus_id in sorted({key[0] for key in ended}):
            codes = sorted({key[1] for key in ended if key[0] == bus_id})
            facts = {"gpu": bus_id, "xids": ",".join(map(str, codes)), "why": why}
            log.info("XID errors over", extra=facts)

    def _stands(self, bus_id: str) -> bool:
        return any(key[0] == bus_id and _counts(xid) for key, xid in self._seen.items())


def _counts(xid: Xid) -> bool:
    """Whether the error is not over, and has a bearing on health."""
    return not xid.over and xid_health(xid.code, recovered=False) is not Health.HEALTHY


def _with_xids(gpu: GpuSnapshot, seen: Iterable[tuple[_Key, Xid]]) -> GpuSnapshot:
    """The GPU with its own errors; another vendor's has none."""
    if gpu.nvidia is None:
        return gpu
    xids = tuple(xid for key, xid in seen if key[0] == gpu.bus_id)
    return replace(gpu, nvidia=replace(gpu.nvidia, xids=xids))


def _key(bus_id: str, xid: Xid) -> _Key:
    return bus_id, xid.code, xid.gpu_instance_id, xid.compute_instance_id
