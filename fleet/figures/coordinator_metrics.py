# SPDX-License-Identifier: Apache-2.0
"""Metrics of the coordinator: slots, nodes that wait and why, stopped rollouts, how changes end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.mig_outcome import Outcome
from base.grouping import grouped
from fleet.figures.fleet_figures import Figures
from fleet.plugins.unlisted_devices import UnlistedDevices
from fleet.policy.assigned_layouts import Assignment
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import UnreportedEnd
from fleet.slot_gate import WaitReason
from fleet.startup.startup_taint import StartupNode, StartupWait

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # theirs to annotate

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "gpuscape_coordinator"
_SECONDS: Final = (5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A family of gauges."""

    text: str
    labels: tuple[str, ...] = ()
    values: Iterable[str] | None = None
    """Values of the one label of which each has a series, 0 where nothing is known; None: series
    come and go."""

    @property
    def zeros(self) -> dict[tuple[str, ...], float]:
        """The series that are always there."""
        if not self.labels:
            return {(): 0.0}
        return {(value,): 0.0 for value in self.values or ()}


_GAUGES: Final[Mapping[str, _Gauge]] = {
    "build_info": _Gauge("Version of the program.", ("version",)),
    "leader": _Gauge("1 on the coordinator that acts, 0 on the others."),
    "slots": _Gauge("Nodes that may be in change at once."),
    "slots_used": _Gauge("Nodes that have a slot."),
    "parked_nodes": _Gauge(
        "Nodes that stay cordoned without a slot: stuck, or without an outcome."
    ),
    "waiting_nodes": _Gauge(
        "Nodes with an open request and no slot, by why.", ("reason",), WaitReason
    ),
    "oldest_wait_seconds": _Gauge(
        "How long the longest-waiting node has waited for its change, by the reason.",
        ("reason",),
        WaitReason,
    ),
    "long_wait_seconds": _Gauge("Setting long-wait: a longer wait raises an alert."),
    "stopped_rollouts": _Gauge("Rollouts that the circuit breaker stopped."),
    "paused": _Gauge("1 while an admin has paused all rollouts."),
    "window_open": _Gauge("1 while the maintenance window lets changes begin."),
    "policy_refused": _Gauge("1 while the fleet policy has a mistake and is not obeyed."),
    "policy_paused": _Gauge("1 while the fleet policy is paused."),
    "policy_nodes": _Gauge(
        "Nodes of the fleet policy, by assignment.", ("assignment",), Assignment
    ),
    "unlisted_nodes": _Gauge(
        "Nodes whose MIG layout is there while the device plugin lists too few of its devices,"
        " longer than register-deadline; by plugin: its pod restarts for this, or has restarted"
        " since.",
        ("plugin",),
        ("restarts", "restarted"),
    ),
    "startup_taint_nodes": _Gauge(
        "Nodes with the startup taint, which keeps pods away, by the reason.",
        ("reason",),
        StartupWait,
    ),
    "startup_taint_oldest_seconds": _Gauge(
        "How long the Node with the oldest startup taint has had it, by the reason.",
        ("reason",),
        StartupWait,
    ),
    "change_step_seconds": _Gauge(
        "For how long a node in change, or one that is stuck, has been at its present step.",
        ("node", "slot", "step"),
    ),
    "policy_info": _Gauge("Revision of the fleet policy that is obeyed; always 1.", ("revision",)),
}


class CoordinatorMetrics(Collector):
    """Metrics of one coordinator. Thread-safe."""

    def __init__(self, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._build: Figures = {"build_info": {(version,): 1}}
        self._fleet: Figures = {}
        self._unlisted: Figures = {}
        self._startup: Figures = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, labels, registry=registry)

        registry.register(self)
        self._ends = counter("changes", "Changes that ended, by outcome.", "outcome")
        self._seconds = Histogram(
            f"{_PREFIX}_change_duration_seconds",
            "From taking a slot to freeing it after the rollback of the node.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._dropped = counter("events_dropped", "Events that were not recorded.")
        self._defects = counter("internal_errors", "Unexpected exceptions.")
        for outcome in (*Outcome, *UnreportedEnd):
            self._ends.labels(outcome)

    def collect(self) -> Iterator[Metric]:
        """All gauges, as they were shown last."""
        figures = {**self._build, **self._fleet, **self._unlisted, **self._startup}
        for name, gauge in _GAUGES.items():
            family = GaugeMetricFamily(f"{_PREFIX}_{name}", gauge.text, labels=gauge.labels)
            for labels, value in (gauge.zeros | dict(figures.get(name, {}))).items():
                family.add_metric(labels, value)
            yield family

    def shows(self, figures: Figures) -> None:
        """Set the gauges of a coordinator that leads."""
        self._fleet = figures

    def stands_by(self) -> None:
        """Clear the gauges: this coordinator does not lead."""
        self._fleet = {}

    def shows_unlisted(self, unlisted: Collection[UnlistedDevices]) -> None:
        """Set the gauge of nodes whose device plugin lists too few devices."""
        hopeless = sum(node.is_hopeless for node in unlisted)
        counts: dict[tuple[str, ...], float] = {
            ("restarts",): len(unlisted) - hopeless,
            ("restarted",): hopeless,
        }
        self._unlisted = {"unlisted_nodes": counts}

    def shows_startup(self, tainted: Collection[StartupNode]) -> None:
        """Set the gauges of Nodes that have the startup taint."""
        by_wait = grouped(tainted, lambda node: node.wait)
        self._startup = {
            "startup_taint_nodes": {(wait,): len(nodes) for wait, nodes in by_wait.items()},
            "startup_taint_oldest_seconds": {
                (wait,): max(node.seconds for node in nodes) for wait, nodes in by_wait.items()
            },
        }

    def ended(self, outcome: str) -> None:
        """Count a change that ended."""
        self._ends.labels(outcome).inc()

    def freed(self, record: RollbackRecord, now: float) -> None:
        """Measure a change whose slot or parked record is free again."""
        self._seconds.observe(max(0.0, now - record.taken_at))

    def event_dropped(self) -> None:
        """Count an Event over the budget, or refused."""
        self._dropped.inc()

    def defect_met(self) -> None:
        """Count an unexpected exception."""
        self._defects.inc()

    def render(self) -> bytes:
        """The exposition."""
        return prometheus_client.generate_latest(self._registry)
