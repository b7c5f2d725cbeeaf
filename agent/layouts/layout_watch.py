# SPDX-License-Identifier: Apache-2.0
"""Watches what MIG layout the Node asks for, and shows on the Node what would come of it.

Nothing is changed here: each request gets a plan or a refusal, again whenever the request, the
configurations, the GPUs or their holders change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from agent.layouts.layout_request import LayoutRequest, NodeWish, node_wish, other_managers
from agent.pods.allocated_devices import NodeAllocation
from api import keys, mig_status_annotation
from api.mig_resources import MigStrategy
from api.mig_status_annotation import VERSION, MigPhase, MigStatusAnnotation
from base.errors import BadInput, Transient
from discovery.driver_errors import Released
from discovery.mig_state import MigReading
from discovery.model import NodeSnapshot
from labelers.decision import Absent, Decisions, Value

if TYPE_CHECKING:
    from mig.configs.mig_configs import MigConfigs

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
"""Between two looks at what a plan rests on."""
SETTLE_SECONDS: Final = 10.0
"""That a request has to stay as it is, so that an edit in several steps is one."""
UNSETTLED_SECONDS: Final = 60.0
"""A request that has not stayed the same for long enough by then is refused until it does."""
REREAD_SECONDS: Final = 300.0
"""Between two readings of the MIG state where nothing is seen to change."""
UNREAD_SECONDS: Final = 30.0
"""Before GPUs that could not be read are read again."""
PODS_SECONDS: Final = 60.0
"""Between two statuses that differ in the pods alone: these come and go."""
_IDLE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEdges:
    """What the watch reads."""

    read: Callable[[], Sequence[MigReading]]
    """The MIG state of all GPUs. Raises Transient."""
    snapshot: Callable[[], NodeSnapshot | None]
    """The newest."""
    configs: Callable[[], MigConfigs | None] = lambda: None
    """Those of the configured file; None for the default ones. Raises BadInput with file, line and
    key."""
    strategy: MigStrategy | None = None
    """The device plugin's; None: not known."""
    slice_drivers: Callable[[], frozenset[str]] = frozenset
    """Drivers of the node's ResourceSlices, as far as they may be read."""
    service_enabled: Callable[[], bool] = lambda: False
    """Whether the host starts NVIDIA's MIG manager itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutNews:
    """For an Event about the Node."""

    reason: str
    """In CamelCase."""
    note: str
    warning: bool


class LayoutWatch:
    """The status of one node's request. One thread runs the tick, any may call the rest."""

    def __init__(
        self,
        edges: LayoutEdges,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` is the one of the ticks; ``wall`` is Unix time, only shown."""
        self._edges = edges
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._metadata: Mapping[str, Any] | None = None
        self._shown: MigStatusAnnotation | None = None
        self._wish = NodeWish()
        self._wished_at = self._unsettled_since = clock()
        self._allocation = NodeAllocation()
        self._verdict: MigStatusAnnotation | None = None
        """Of the present request, without time; None while there is none yet."""
        self._made: MigStatusAnnotation | None = None
        """What was shown last, with its time; the Node may not have it yet."""
        self._told_at = clock()
        self._news: list[LayoutNews] = []
        self._basis: object = None
        self._due = 0.0

    def saw(self, metadata: Mapping[str, Any] | None) -> None:
        """Take the Node's metadata as the watch of it shows them; None where there is no Node."""
        with self._lock:
            self._metadata = metadata
            if metadata is None:
                return
            self._shown = _shown(metadata)
            wish = node_wish(metadata, self._shown)
            if wish.request != self._wish.request:
                now = self._clock()
                if now - self._wished_at >= SETTLE_SECONDS:
                    self._unsettled_since = now
                self._wished_at, self._verdict, self._basis = now, None, None
            self._wish = wish

    def allocated(self, allocation: NodeAllocation) -> None:
        """Take what the kubelet has given to whom."""
        with self._lock:
            self._allocation = allocation

    def annotations(self) -> Decisions:
        """What the Node is to show; empty where that is not known yet."""
        snapshot = self._edges.snapshot()
        with self._lock:
            if snapshot is None or self._metadata is None:
                return {}
            if not any(gpu.mig_capable for gpu in snapshot.gpus):
                known = snapshot.driver.present and len(snapshot.answering) == len(snapshot.gpus)
                return {keys.MIG_STATUS: Absent(reason="no GPU with MIG")} if known else {}
            status = self._status()
        if status is None:
            return {}
        return {keys.MIG_STATUS: Value(text=mig_status_annotation.encode(status))}

    def tick(self, now: float) -> float:
        """Judge the request when that is due; the seconds until the next time."""
        with self._lock:
            request, metadata = self._wish.request, self._metadata
            settles_at, since = self._wished_at + SETTLE_SECONDS, self._unsettled_since
            allocation = self._allocation
        snapshot = self._edges.snapshot()
        if request is None or metadata is None or snapshot is None:
            return _IDLE_SECONDS
        if not any(gpu.mig_capable for gpu in snapshot.gpus):
            return _IDLE_SECONDS
        if now < settles_at:
            if now - since >= UNSETTLED_SECONDS:
                self._take(request, _UNSETTLED, now)
            return settles_at - now
        verdict = self._judge(request, metadata, snapshot, allocation, now)
        if verdict is not None:
            self._take(request, verdict, now)
        return CHECK_SECONDS

    def take_news(self) -> list[LayoutNews]:
        """What has happened since the last call; for the thread of the tick."""
        news, self._news = self._news, []
        return news

    # parts

    def _judge(
        self,
        request: LayoutRequest,
        metadata: Mapping[str, Any],
        snapshot: NodeSnapshot,
        allocation: NodeAllocation,
        now: float,
    ) -> MigStatusAnnotation | None:
        """The status; None where the last one still holds, or while all handles are released."""
        others = other_managers(
            metadata,
            pods=allocation.pods,
            slice_drivers=self._edges.slice_drivers(),
            service_enabled=self._edges.service_enabled(),
        )
        if others:
            return self._refused(request, f"{' and '.join(others)} manages MIG on this node")
        try:
            configs = self._edges.configs()
        except BadInput as error:
            return self._refused(request, str(error))
        basis = request, configs, _mig_part(snapshot), allocation.by_pod
        if basis == self._basis and now < self._due:
            return None
        from agent.layouts.layout_verdict import allocated_holders, status, verdict

        try:
            readings = self._edges.read()
        except Released:
            return None
        except Transient as error:
            found = status(request, MigPhase.UNREAD, str(error))
        else:
            holders = allocated_holders(readings, allocation)
            found = verdict(request, readings, configs, holders, self._edges.strategy)
        unread = found.phase == MigPhase.UNREAD
        self._basis, self._due = basis, now + (UNREAD_SECONDS if unread else REREAD_SECONDS)
        return found

    def _refused(self, request: LayoutRequest, why: str) -> MigStatusAnnotation:
        """Without a look at the GPUs; what was judged before does not hold any more."""
        from agent.layouts.layout_verdict import status

        self._basis = None
        return status(request, MigPhase.REFUSED, why)

    def _take(self, request: LayoutRequest, verdict: MigStatusAnnotation, now: float) -> None:
        """Have it shown, unless there is another request by now, or it is no news."""
        with self._lock:
            before = self._verdict
            if request != self._wish.request or verdict == before:
                return
            if before is not None and _without_pods(verdict) == _without_pods(before):
                if now - self._told_at < PODS_SECONDS:
                    self._due = min(self._due, self._told_at + PODS_SECONDS)
                    return
                told = True
            else:
                wanted = replace(verdict, unadopted=self._wish.unadopted)
                told = self._shown is not None and _same(wanted, self._shown)
            self._verdict, self._told_at = verdict, now
        if not told:
            self._tell(verdict)

    def _tell(self, verdict: MigStatusAnnotation) -> None:
        facts = {"phase": verdict.phase, "asked": verdict.asked, "why": verdict.reason}
        refused = verdict.phase == MigPhase.REFUSED
        log.log(logging.WARNING if refused else logging.INFO, "MIG layout judged", extra=facts)
        reason = f"MigLayout{str(verdict.phase).capitalize()}"
        why = verdict.reason or f"{verdict.phase}"
        note = f"{verdict.source} asks for {verdict.asked}: {why}" if verdict.source else why
        self._news.append(LayoutNews(reason=reason, note=note, warning=refused))

    def _status(self) -> MigStatusAnnotation | None:
        """What to show, with its time; None while the request is not judged. The lock is held."""
        wish = self._wish
        if wish.request is None:
            phase = MigPhase.UNADOPTED if wish.unadopted else MigPhase.IDLE
            why = _UNADOPTED.format(value=wish.unadopted) if wish.unadopted else ""
            status = MigStatusAnnotation(v=VERSION, phase=phase, reason=why)
        elif self._verdict is None:
            return None
        else:
            status = self._verdict
        status = replace(status, unadopted=wish.unadopted)
        for known in (self._shown, self._made):
            if known is not None and _same(status, known):
                return known
        since = datetime.fromtimestamp(self._wall(), UTC)
        self._made = replace(status, since=since.strftime("%Y-%m-%dT%H:%M:%SZ"))
        return self._made


_UNSETTLED: Final = MigStatusAnnotation(
    v=VERSION,
    phase=MigPhase.REFUSED,
    reason=f"what is asked for keeps changing: it is judged when it has stayed {SETTLE_SECONDS:.0f}"
    " s as it is",
)
_UNADOPTED: Final = (
    f"the label {keys.MIG_CONFIG}={{value}} was here before: it is obeyed once it changes; to ask"
    f" for the same, annotate the Node with {keys.MIG_LAYOUT}={{value}}"
)


def _shown(metadata: Mapping[str, Any]) -> MigStatusAnnotation | None:
    """The status that the Node shows; one that cannot be read is there all the same."""
    text = (metadata.get("annotations") or {}).get(keys.MIG_STATUS)
    if text is None:
        return None
    try:
        found = mig_status_annotation.decode(str(text))
    except BadInput:
        found = None
    return found or MigStatusAnnotation(v=VERSION, phase="unknown")


def _same(one: MigStatusAnnotation, other: MigStatusAnnotation) -> bool:
    """Equal but for the time."""
    return replace(one, since="") == replace(other, since="")


def _without_pods(status: MigStatusAnnotation) -> MigStatusAnnotation:
    return replace(status, pods=(), more_pods=0)


def _mig_part(snapshot: NodeSnapshot) -> object:
    """What a change of layouts changes in a snapshot."""
    return tuple(
        (gpu.bus_id, gpu.state, gpu.mig, tuple(device.uuid for device in gpu.mig_devices))
        for gpu in snapshot.gpus
    )
