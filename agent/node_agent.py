# SPDX-License-Identifier: Apache-2.0
"""The agent's ticks: discover, sample, watch, probe. Clock and edges are passed in.

One snapshot feeds labels and metrics, so they agree. A source that fails is asked
again after 5 to 30 seconds, not at the interval of a healthy one; meanwhile labels
stay, readings are left out, and metrics and log show what is wrong.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from agent.extra_readings import NO_EXTRA_READINGS, ExtraReadings
from agent.gpu_errors.kernel_records import SxidSeen
from agent.gpu_records import GpuRecords
from agent.metrics.latest_metrics import LatestMetrics
from agent.metrics.program_use import program_uses
from agent.publish import Published, Publisher
from agent.reader_reports import ReaderReports
from agent.silent_gpus import SilentGpus, with_hung
from base.backoff import Backoff
from base.errors import Transient
from base.runtime import Tick
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderStuck, Released
from discovery.gpu_counts import NO_GPUS
from discovery.model import Driver, Gap, GpuSnapshot, GpuState, NodeSnapshot, Reason
from discovery.node_host import NodeHost
from discovery.reader.protocol import Event, EventsLost, XidSeen
from discovery.reader.reader_results import DiscoveryResult, ReaderHealth
from discovery.sample import GpuSample, ReadingGroup
from exporters.gpuscape.agent_metrics import AgentMetrics, LossSource

log = logging.getLogger(__name__)

WATCH_SECONDS = 5.0
"""Without news: events, and GPUs that hang, trigger the tick."""
ALIVE_SECONDS = 30.0
"""The watch tick never touches a GPU's answer, so silence for this long means a dead agent."""
INJECTED_LIBRARY_SECONDS = 60.0
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 30.0
"""Time between two discoveries while something fails: short enough to see its return."""


class GpuReader(Protocol):
    """The device reader, as far as the agent uses it."""

    def discover(self) -> DiscoveryResult: ...
    def sample(self, groups: Iterable[ReadingGroup] = ()) -> tuple[GpuSample, ...]: ...
    def events(self) -> tuple[Event, ...]: ...
    def probe(self) -> Iterable[str]: ...
    def health(self) -> ReaderHealth: ...
    def release(self) -> bool: ...
    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds between two runs of a healthy tick."""

    discover: float = 60.0
    sample: float = 10.0


class NodeAgent:
    """The agent of one node, without threads, sockets and signals of its own."""

    def __init__(
        self,
        reader: GpuReader,
        host: NodeHost,
        latest: LatestMetrics,
        publisher: Publisher,
        *,
        intervals: Intervals,
        trigger: Callable[[str], None],
        extra: ExtraReadings = NO_EXTRA_READINGS,
        accepts: Callable[[NodeSnapshot], bool] = lambda _snapshot: True,
        records: GpuRecords | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``trigger`` runs another of the :attr:`ticks` soon, by its name; ``records`` are what is
        known from an agent before this one, of the same machine. A snapshot that ``accepts``
        refuses is neither served nor published.

        ``clock`` is monotonic, the one of the ticks; ``wall`` is Unix time, only shown.
        """
        self._reader = reader
        self._host = host
        self._latest = latest
        self._publisher = publisher
        self._intervals = intervals
        self._trigger = trigger
        self._extra = extra
        self._accepts = accepts
        self._clock = clock
        self._wall = wall
        self._retry = Backoff(
            first_seconds=RETRY_SECONDS, longest_seconds=LONGEST_RETRY_SECONDS, uniform=None
        )
        self._records = GpuRecords() if records is None else records
        self._latest.show_sxids(self._records.sxids.seen)
        self._driver_gone_since: float | None = None
        self._answered_once = self._ready = False
        self._silent, self._reports = SilentGpus(), ReaderReports()
        self._watched_at = self._discovered_at = clock()
        self._showing = threading.Lock()
        self._shows_readings = False

    def go_on_from(self, before: NodeAgent) -> None:
        """Know what an agent knew that had the same reader and other settings."""
        self._driver_gone_since = before._driver_gone_since
        self._answered_once, self._ready = before._answered_once, before._ready
        self._silent, self._retry = before._silent, before._retry
        self._reports = before._reports

    # ticks

    def discover(self, now: float) -> float:
        """Read the node, serve and publish it; the seconds until the next time."""
        try:
            snapshot = self._read_node()
        except Released:
            return self._intervals.discover
        if not self._accepts(snapshot):
            return self._intervals.discover
        faulty = any(gpu.state is not GpuState.PRESENT for gpu in snapshot.gpus)
        faulty = faulty or not snapshot.driver.present
        if not snapshot.answering:
            self._drop_readings()
        snapshot = self._records.xids.enter(snapshot)
        self._discovered_at = now
        self._latest.show_snapshot(snapshot, now)
        if not snapshot.answering:
            self._ready = self._ready or self._answered_once
        elif not self._shows_readings:
            self._trigger("sample")  # of the GPUs that are shown, so not before
        published = self._publisher.publish(snapshot, self._reader.health().missed_once)
        self._report_cycle(snapshot, published, self._clock() - now)
        self._silent.log_changes(snapshot)
        if not faulty:
            self._retry.succeeded()
            return self._intervals.discover
        return min(self._intervals.discover, self._retry.failed())

    def sample(self, now: float) -> float:
        """Read what changes by the second; the seconds until the next time."""
        snapshot = self._latest.snapshot
        if snapshot is None or not snapshot.answering:
            self._drop_readings()
            return self._intervals.sample  # discovery alone probes a source that is gone
        before = self._reader.health()
        try:
            samples = self._reader.sample(self._extra.groups)
        except Transient as error:
            samples = ()
            if not isinstance(error, Released):
                self._trigger("discover")
        self._show_readings(samples, snapshot)
        self._ready = True
        lost = any(gap.what == "state" for sample in samples for gap in sample.gaps)
        if lost or self._reader.health().quarantined != before.quarantined:
            self._trigger("discover")
        self._latest.refresh(lambda own: self._count_sample(own, self._clock() - now))
        return self._intervals.sample

    def watch(self, now: float) -> float:
        """Take events, show GPUs that hang, update the reader's metrics."""
        self._watched_at = now
        xids = [event for event in self._events(now) if self._entered(event, now)]
        self._records.error_log.end_minutes(now)
        self._show_hung()
        if xids or self._has_waited_enough():
            self._trigger("discover")
        health = self._reader.health()
        if health.quarantined:
            self._trigger("probe")
        if health.outgrown:
            self._trigger("sample")  # by another reader
        self._latest.refresh(lambda own: self._reports.show(self._reader.health(), own))
        return WATCH_SECONDS

    def probe(self, _now: float) -> float:
        """Try the quarantined GPUs that are due; the watch tick hastens it while there are some."""
        stalled = self._reader.health().missed_once
        for _ in self._reader.probe():
            self._trigger("discover")  # the next probe may take a while
        if self._reader.health().missed_once != stalled:  # a second miss changes labels
            self._trigger("discover")
        return self._intervals.discover

    # what others ask

    @property
    def ticks(self) -> Mapping[str, Tick]:
        """What has to be run, each by a name of its own."""
        return {
            "discover": self.discover,
            "sample": self.sample,
            "watch": self.watch,
            "probe": self.probe,
        }

    @property
    def alive(self) -> bool:
        """Ticks are being run, whatever GPUs and driver do."""
        return self._clock() - self._watched_at < ALIVE_SECONDS

    @property
    def ready(self) -> bool:
        """The device reader has once answered what there is: GPUs, none, or no driver to ask; and
        the readings of GPUs were tried once, so that the first scrape has those that there are.

        A reader that dies or hangs answers nothing. What goes wrong later is in the metrics,
        which a scraper must still find.
        """
        return self._ready

    @property
    def needs_new_library(self) -> bool:
        """The driver has been missing or mismatched so long that a container must be made anew."""
        since = self._driver_gone_since
        return since is not None and self._clock() - since >= INJECTED_LIBRARY_SECONDS

    def release(self) -> None:
        """Close every NVML handle and leave the GPUs alone until :meth:`resume`."""
        closed = self._reader.release()
        self._driver_gone_since = None  # gone on purpose from here on
        self._drop_readings()
        self._latest.refresh(lambda own: own.is_released(True))
        log.info("NVML handles released", extra={"all_closed": closed})

    def resume(self) -> None:
        """Read the GPUs again at once; readings follow as soon as one answers."""
        self._reader.resume()
        self._latest.refresh(lambda own: own.is_released(False))
        self._trigger("discover")

    def read_groups(self, groups: tuple[ReadingGroup, ...]) -> None:
        """Make these readings in addition to those that are always made, from now on."""
        self._extra = replace(self._extra, groups=groups)
        self._trigger("sample")

    # parts of a tick

    def _show_readings(self, samples: tuple[GpuSample, ...], snapshot: NodeSnapshot) -> None:
        """Serve these readings, unless a release has begun while they were made."""
        processes, jobs = self._extra.processes(samples), self._extra.jobs(snapshot)
        of_pods = self._extra.of_pods(samples)
        with self._showing:
            if not self._reader.health().released:
                self._shows_readings = True
                self._latest.show_samples(samples, processes=processes, of_pods=of_pods, jobs=jobs)

    def _drop_readings(self) -> None:
        """Serve no readings; the next discovery of GPUs that answer has them read at once."""
        with self._showing:
            self._shows_readings = False
            self._latest.show_samples(())

    def _read_node(self) -> NodeSnapshot:
        """The node as it is; one without a driver where none answers. Raises Released."""
        try:
            reading = self._reader.discover()
        except Released:
            raise
        except Transient as error:
            self._latest.refresh(lambda own: own.source_failed("nvml"))
            if isinstance(error, DriverAbsent | DriverMismatch):
                self._answered_once = True
                if self._driver_gone_since is None:
                    self._driver_gone_since = self._clock()
            latest = self._latest.snapshot
            counts = NO_GPUS if latest is None else replace(latest.counts, nvml=None)
            return self._host.snapshot(*self._unanswered(error), counts)
        self._driver_gone_since = None
        self._answered_once = True
        self._latest.refresh(lambda own: own.source_answered("nvml", self._wall()))
        snapshot = self._host.snapshot(reading.driver, reading.gpus, reading.counts)
        return replace(snapshot, settling=reading.settling, awaits_record=reading.awaits_record)

    def _unanswered(self, error: Transient) -> tuple[Driver, tuple[GpuSnapshot, ...]]:
        """No driver, and the GPUs known before, none of which answers."""
        known = self._latest.snapshot.gpus if self._latest.snapshot else ()
        match error:
            case ReaderStuck():
                reason = Reason.HUNG
            case DriverAbsent() | DriverMismatch():
                reason = Reason.ABSENT
            case _:
                reason = Reason.FAILED
        gap = Gap(what="version", reason=reason, source="device reader", detail=str(error))
        hung = self._hung(known) if reason is Reason.HUNG else frozenset[str]()
        gpus = tuple(
            replace(
                gpu,
                state=GpuState.HUNG if gpu.bus_id in hung else GpuState.UNREADABLE,
                gaps=(replace(gap, what="state"),),
            )
            for gpu in known
        )
        return Driver(gaps=(gap,)), gpus

    def _hung(self, known: Iterable[GpuSnapshot]) -> frozenset[str]:
        """Bus ids of the GPUs that hang, while none is read; all, where the driver blames none."""
        quarantined = self._reader.health().quarantined
        return frozenset(quarantined or (gpu.bus_id for gpu in known))

    def _show_hung(self) -> None:
        """Show GPUs that hang as soon as they are quarantined; the rest may take a while yet."""
        quarantined = self._reader.health().quarantined
        snapshot = self._latest.snapshot
        if snapshot is None or not any(gpu.bus_id in quarantined for gpu in snapshot.answering):
            return
        self._latest.show_snapshot(with_hung(snapshot, quarantined), self._discovered_at)
        self._trigger("discover")

    def _has_waited_enough(self) -> bool:
        """Whether a GPU is shown as initialising whose answer nobody waits for any more."""
        snapshot = self._latest.snapshot
        shown = {} if snapshot is None else {gpu.bus_id: gpu.state for gpu in snapshot.gpus}
        awaited = self._reader.health().awaited
        return any(
            state is GpuState.INITIALISING and bus_id not in awaited
            for bus_id, state in shown.items()
        )

    def _events(self, now: float) -> list[Event]:
        """The driver's events, and those that only the kernel log has; shows errors of switches."""
        logged = self._extra.kernel_log(now)
        for event in (switches := [event for event in logged if isinstance(event, SxidSeen)]):
            self._records.sxids.add(event, self._wall())
            self._records.error_log.add(event, now)
        if switches:
            self._latest.show_sxids(self._records.sxids.seen)
        losses = sum(isinstance(event, EventsLost) for event in logged)
        self._latest.refresh(lambda own: own.gpu_events_lost(LossSource.KERNEL_LOG, losses))
        xids = [event for event in logged if isinstance(event, XidSeen)]
        self._records.xids.end_recovered(xids)
        return self._records.xid_merge.merged(self._reader.events(), xids, now)

    def _entered(self, event: Event, now: float) -> bool:
        """Whether the event is an XID; what is lost of events is counted."""
        self._records.error_log.add(event, now)
        if isinstance(event, XidSeen):
            self._records.xids.add(event, self._wall())
            return True
        self._latest.refresh(lambda own: own.gpu_events_lost(LossSource.NVML))
        return False

    def _count_sample(self, own: AgentMetrics, seconds: float) -> None:
        own.cycle_done("sample", seconds)
        own.programs_use(program_uses(self._reader.health().pid))

    def _report_cycle(self, snapshot: NodeSnapshot, published: Published, seconds: float) -> None:
        """The cycle's metrics and its one line."""

        def count(own: AgentMetrics) -> None:
            own.cycle_done("discover", seconds)
            own.labels_changed(published.changed)
            for failure in published.failures:
                own.labeler_failed(failure.labeler)
            for sink, reached in published.reached.items():
                if reached:
                    own.source_answered(sink, self._wall())
                else:
                    own.source_failed(sink)

        self._latest.refresh(count)
        states = Counter(gpu.state.value for gpu in snapshot.gpus)
        log.info(
            "discovery cycle finished",
            extra={
                "gpus": ",".join(f"{state}:{n}" for state, n in states.items()) or "none",
                "driver": snapshot.driver.version or snapshot.driver.gaps[0].detail,
                "label_changes": published.changed,
                "seconds": round(seconds, 3),
            },
        )
