# SPDX-License-Identifier: Apache-2.0
"""Metrics of the agent about itself: is what it serves fresh, complete and trustworthy?

Names follow Prometheus' conventions (base units, ``_total`` for counters and only for them),
unlike the DCGM families, whose names are DCGM's. No type of prometheus_client leaves this module.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from discovery.model import NodeSnapshot
from exporters.desired_layout_metrics import DesiredLayoutCollector, DesiredLayoutState
from exporters.gpuscape.core_families import ServedFamilies
from exporters.gpuscape.server_metrics import ServingMetrics
from exporters.snapshot_collector import SnapshotCollector

_SNAPSHOT_AGE = (
    "gpuscape_snapshot_age_seconds",
    "Time since the snapshot that these metrics show was taken.",
)
_SAMPLES_AGE = (
    "gpuscape_samples_age_seconds",
    "Time since the readings that these metrics show were made.",
)
_TICK_STALL = (
    "gpuscape_tick_stalled_seconds",
    "How long the slowest tick of the agent has been due or running; the agent ends if it stalls.",
)

_NOT_IN_CORE = frozenset(
    {
        "gpuscape_api_writes_total",
        "gpuscape_label_changes_total",
        "gpuscape_last_success_timestamp_seconds",
        "gpuscape_log_lines_dropped_total",
        "gpuscape_quarantined_gpus",
        "gpuscape_reader_replacements_total",
    }
)
"""Metrics that rules and dashboards do not read. Of cycles the core has no buckets either."""

CYCLE_BUCKETS_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)
"""Upper bounds in seconds, from a fast node to one that runs into its deadlines."""


class LossSource(StrEnum):
    """Sources of GPU errors; errors may be lost in each."""

    NVML = "nvml"
    KERNEL_LOG = "kernel-log"


_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUse:
    """CPU time and memory of one of the agent's processes."""

    cpu_seconds: float
    """User and system time since it started."""
    resident_bytes: int


class AgentMetrics:
    """Metrics of the agent about itself; every method may be called from any thread."""

    def __init__(
        self, version: str, clock: Callable[[], float], served: ServedFamilies = ServedFamilies.ALL
    ) -> None:
        """``clock`` returns monotonic seconds, on the clock of ``snapshot_taken``'s argument."""
        # Half as many series again, and nobody asks when a counter was made.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        self.serving = ServingMetrics()
        self._served = served
        self._clock = clock
        self._taken_at: float | None = None
        self._sampled_at: float | None = None
        self._tick_stall_seconds = 0.0
        self._snapshot = SnapshotCollector()
        self._programs = _ProgramCollector()
        self._registry = CollectorRegistry()
        self._registry.register(self._snapshot)
        self._registry.register(self._programs)
        self._desired_layout = DesiredLayoutCollector(while_set=served is ServedFamilies.CORE)
        self._registry.register(self._desired_layout)
        gauge, counter = partial(self._metric, Gauge), partial(self._metric, Counter)
        build_info = gauge(
            "gpuscape_build_info",
            "Version of this agent and of the Python it runs on; always 1.",
            ("version", "python"),
        )
        build_info.labels(version, platform.python_version()).set(1)
        self._source_up = gauge(
            "gpuscape_source_up",
            "1 if the source answered the last request, else 0.",
            ("source",),
        )
        self._last_success = gauge(
            "gpuscape_last_success_timestamp_seconds",
            "When the source last answered, Unix time.",
            ("source",),
        )
        self._restarts = counter(
            "gpuscape_reader_restarts_total",
            "Device readers started in place of one that hung or ended.",
        )
        self._replacements = counter(
            "gpuscape_reader_replacements_total",
            "Working device readers that were replaced: by memory, descriptors or age.",
            ("reason",),
        )
        for reason in ("memory", "descriptors", "age"):
            self._replacements.labels(reason)
        self._stuck = gauge(
            "gpuscape_reader_stuck",
            "Abandoned device readers that hang in the driver, one for each hung GPU.",
        )
        self._initialising = gauge(
            "gpuscape_reader_initialising",
            "1 while the driver or a GPU takes long for its first answer to a reader, else 0.",
        )
        self._quarantined = gauge(
            "gpuscape_quarantined_gpus",
            "GPUs that are left alone because a driver call on them did not return.",
        )
        self._label_changes = counter(
            "gpuscape_label_changes_total", "Node labels added, changed or removed."
        )
        self._labeler_failures = counter(
            "gpuscape_labeler_failures_total",
            "Times a labeler failed and its labels stayed as they were.",
            ("labeler",),
        )
        self._released = gauge(
            "gpuscape_released",
            "1 while all NVML handles are closed on request, else 0.",
        )
        self._defects = counter(
            "gpuscape_internal_errors_total",
            "Unexpected exceptions in the agent's ticks and threads; the log has their tracebacks.",
        )
        self._log_drops = counter(
            "gpuscape_log_lines_dropped_total",
            "Log lines of the agent that were dropped because earlier lines were not read.",
        )
        self._log_drops_counted = 0
        self._event_losses = counter(
            "gpuscape_gpu_event_losses_total",
            "Times that GPU errors may have been lost: a device reader ended, NVML's delivery"
            " failed, the kernel overwrote its log, or more came at once than are kept.",
            ("source",),
        )
        for source in LossSource:
            self._event_losses.labels(source)
        self._events_dropped = counter(
            "gpuscape_events_dropped_total",
            "Kubernetes Events that were not recorded: over the budget, or refused by the server.",
        )
        # with labels, so that an agent without a cluster has no series of them
        self._confinement = gauge(
            "gpuscape_confinement_enforced",
            "1 if the admission policy refused what it must refuse when last tried, else 0.",
            ("policy",),
        )
        self._lease_held = gauge(
            "gpuscape_lease_held",
            "1 while this agent holds its node's Lease, else 0 and it writes nothing.",
            ("lease",),
        )
        self._writes = counter(
            "gpuscape_api_writes_total",
            "Writes that the API server took, dry runs left out.",
            ("object",),
        )
        self._left_alone = gauge(
            "gpuscape_keys_left_alone",
            "Labels and annotations of ours that another owner holds.",
            ("object",),
        )
        self._keys_refused = gauge(
            "gpuscape_keys_refused",
            "Labels and annotations of ours that the API server refuses for good.",
            ("object",),
        )
        cycles = (
            "gpuscape_cycle_duration_seconds",
            "Time from the request to the device reader to the publication of its readings.",
            ("cycle",),
        )
        self._cycles: Histogram | Summary = (
            Histogram(*cycles, buckets=CYCLE_BUCKETS_SECONDS, registry=self._registry)
            if served is ServedFamilies.ALL
            else Summary(*cycles, registry=self._registry)
        )
        self._counters_skipped = gauge(
            "gpuscape_counters_skipped",
            "Rows of the file of counters that are not served: unknown, broken or not to be had.",
        )
        # with a label, so that an agent that asks no kubelet has no series of it
        self._unknown_devices = gauge(
            "gpuscape_unknown_devices",
            "Devices that the source names and that this node does not have.",
            ("source",),
        )

    def _metric(
        self, make: Callable[..., _Made], name: str, text: str, labels: Sequence[str] = ()
    ) -> _Made:
        """Make a metric; a metric that is not served is counted and not rendered."""
        hidden = self._served is ServedFamilies.CORE and name in _NOT_IN_CORE
        return make(name, text, labels, registry=None if hidden else self._registry)

    def settings_changed(self) -> None:
        """Forget values that belong to old settings: sources, policies, Lease. Counters go on."""
        for gauge in (
            self._source_up,
            self._last_success,
            self._confinement,
            self._lease_held,
            self._left_alone,
            self._keys_refused,
            self._unknown_devices,
        ):
            gauge.clear()
        self._desired_layout.latest = None

    def snapshot_taken(self, snapshot: NodeSnapshot, taken_at: float) -> None:
        """Show this snapshot's GPUs, gaps and XID errors; ``taken_at``: time by the clock."""
        self._snapshot.latest = snapshot
        self._taken_at = taken_at

    def samples_taken(self, sampled_at: float | None) -> None:
        """Show the age of readings that were made at this time of the clock; None: show none."""
        self._sampled_at = sampled_at

    def ticks_stalled(self, seconds: float) -> None:
        """Show for how long the slowest tick stands; it is served though no tick is run."""
        self._tick_stall_seconds = seconds

    def source_answered(self, source: str, unix_seconds: float) -> None:
        """Show the source as up, with its last answer at this time."""
        self._source_up.labels(source).set(1)
        self._last_success.labels(source).set(unix_seconds)

    def source_failed(self, source: str) -> None:
        """Count a failed request to the source, and show it as down."""
        self._source_up.labels(source).set(0)

    def reader_restarted(self) -> None:
        """Count a device reader that was started in place of another."""
        self._restarts.inc()

    def log_lines_dropped(self, total: int) -> None:
        """Show how many lines of the log were dropped since the process started."""
        self._log_drops.inc(max(0, total - self._log_drops_counted))
        self._log_drops_counted = total

    def reader_replaced(self, reason: str) -> None:
        """Count a device reader that was replaced though it worked."""
        self._replacements.labels(reason).inc()

    def readers_stuck(self, count: int) -> None:
        """Show how many abandoned readers still hang."""
        self._stuck.set(count)

    def reader_initialises(self, initialises: bool) -> None:
        """Show whether the driver or a GPU is being initialised."""
        self._initialising.set(initialises)

    def gpus_quarantined(self, count: int) -> None:
        """Show how many GPUs are in quarantine."""
        self._quarantined.set(count)

    def cycle_done(self, cycle: str, seconds: float) -> None:
        """Count one cycle, such as ``discover`` or ``sample``, with its duration."""
        self._cycles.labels(cycle).observe(seconds)

    def labels_changed(self, count: int) -> None:
        """Count labels that were added, changed or removed."""
        self._label_changes.inc(count)

    def labeler_failed(self, labeler: str) -> None:
        """Count a failure of one labeler."""
        self._labeler_failures.labels(labeler).inc()

    def is_released(self, released: bool) -> None:
        """Show whether the GPUs are left alone on request."""
        self._released.set(released)

    def defect_met(self) -> None:
        """Count an unexpected exception."""
        self._defects.inc()

    def gpu_events_lost(self, source: LossSource, times: int = 1) -> None:
        """Count times at which errors of GPUs may have been lost."""
        self._event_losses.labels(source).inc(times)

    def event_dropped(self) -> None:
        """Count a Kubernetes Event that was not recorded."""
        self._events_dropped.inc()

    def confined(self, policy: str, enforced: bool) -> None:
        """Show whether this admission policy refused what it must."""
        self._confinement.labels(policy).set(enforced)

    def holds_lease(self, lease: str, held: bool) -> None:
        """Show whether this agent holds the node's Lease."""
        self._lease_held.labels(lease).set(held)

    def wrote(self, kind: str) -> None:
        """Count a successful write to the node's object of this kind, such as ``Lease``."""
        self._writes.labels(kind).inc()

    def left_alone(self, kind: str, count: int) -> None:
        """Show how many keys on the node's object of this kind belong to another owner."""
        self._left_alone.labels(kind).set(count)

    def keys_refused(self, kind: str, count: int) -> None:
        """Show how many keys for the node's object of this kind a policy or a role refuses."""
        self._keys_refused.labels(kind).set(count)

    def counters_skipped(self, count: int) -> None:
        """Show how many rows of the counters file are not served."""
        self._counters_skipped.set(count)

    def unknown_devices(self, source: str, count: int) -> None:
        """Show how many devices the source named that this node does not have."""
        self._unknown_devices.labels(source).set(count)

    def set_desired_layout(self, state: DesiredLayoutState | None) -> None:
        """Show the state of the desired MIG layout; None where no layout is desired."""
        self._desired_layout.latest = state

    def programs_use(self, uses: Mapping[str, ProgramUse]) -> None:
        """Show what each process of the agent uses, by its name; one left out has ended."""
        self._programs.latest = uses

    def render(self) -> bytes:
        """All metrics but those of :meth:`render_now`, in text format 0.0.4; once a publication.

        Empty where no family of ours is served.
        """
        return b"" if self._served is ServedFamilies.NONE else generate_latest(self._registry)

    def render_now(self) -> bytes:
        """Ages of snapshot and readings, stalled ticks, what was served; follows :meth:`render`.

        Apart, because they grow while nothing is published, and are needed just then. A snapshot or
        reading that was never taken, or is no longer shown, has no age.
        """
        if self._served is ServedFamilies.NONE:
            return b""
        now = self._clock()
        ages = ((_SNAPSHOT_AGE, self._taken_at), (_SAMPLES_AGE, self._sampled_at))
        times = [
            (*metric, max(0.0, now - taken_at)) for metric, taken_at in ages if taken_at is not None
        ]
        gauges = "".join(
            f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {seconds!r}\n"
            for name, text, seconds in (*times, (*_TICK_STALL, self._tick_stall_seconds))
        )
        return gauges.encode() + self.serving.render()


class _ProgramCollector(Collector):
    """CPU time and memory of the agent's own processes; a restarted process starts at 0."""

    def __init__(self) -> None:
        self.latest: Mapping[str, ProgramUse] = {}

    def collect(self) -> Iterator[Metric]:
        seconds = CounterMetricFamily(
            "gpuscape_program_cpu_seconds_total",
            "CPU time that a process of the agent took since it started.",
            labels=["program"],
        )
        resident = GaugeMetricFamily(
            "gpuscape_program_resident_memory_bytes",
            "Resident memory of a process of the agent, shared pages included.",
            labels=["program"],
        )
        for program, use in self.latest.items():
            seconds.add_metric([program], use.cpu_seconds)
            resident.add_metric([program], use.resident_bytes)
        if self.latest:
            yield seconds
            yield resident
