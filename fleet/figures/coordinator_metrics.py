# SPDX-License-Identifier: Apache-2.0
"""Metrics of the coordinator: slots, nodes that wait and why, stopped rollouts, how changes end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.mig_outcome import Outcome
from fleet.figures.fleet_figures import FleetFigures
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


class CoordinatorMetrics:
    """Metrics of one coordinator. Thread-safe."""

    def __init__(self, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, labels, registry=registry)

        gauge("build_info", "Version of the program.", "version").labels(version).set(1)
        self._leads = gauge("leader", "1 on the coordinator that acts, 0 on the others.")
        self._slots = gauge("slots", "Nodes that may be in change at once.")
        self._used = gauge("slots_used", "Nodes that have a slot.")
        self._parked = gauge(
            "parked_nodes", "Nodes that stay cordoned without a slot: stuck, or without an outcome."
        )
        self._waiting = gauge(
            "waiting_nodes",
            "Nodes with an open request and no slot, by why.",
            "reason",
        )
        self._oldest = gauge(
            "oldest_wait_seconds",
            "How long the longest-waiting node has waited for its change, by the reason.",
            "reason",
        )
        self._long_wait = gauge(
            "long_wait_seconds", "Setting long-wait: a longer wait raises an alert."
        )
        self._stopped = gauge("stopped_rollouts", "Rollouts that the circuit breaker stopped.")
        self._paused = gauge("paused", "1 while an admin has paused all rollouts.")
        self._window = gauge("window_open", "1 while the maintenance window lets changes begin.")
        self._refused = gauge(
            "policy_refused", "1 while the fleet policy has a mistake and is not obeyed."
        )
        self._policy_paused = gauge("policy_paused", "1 while the fleet policy is paused.")
        self._assigned = gauge(
            "policy_nodes", "Nodes of the fleet policy, by assignment.", "assignment"
        )
        self._unlisted = gauge(
            "unlisted_nodes",
            "Nodes whose MIG layout is there while the device plugin lists too few of its devices,"
            " longer than register-deadline; by plugin: its pod restarts for this, or has restarted"
            " since.",
            "plugin",
        )
        self._startup = gauge(
            "startup_taint_nodes",
            "Nodes with the startup taint, which keeps pods away, by the reason.",
            "reason",
        )
        self._oldest_startup = gauge(
            "startup_taint_oldest_seconds",
            "How long the Node with the oldest startup taint has had it, by the reason.",
            "reason",
        )
        self._now = _NowCollector()
        registry.register(self._now)
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
        self.stands_by()
        self.shows_unlisted(())
        self.shows_startup(())

    def shows(self, figures: FleetFigures) -> None:
        """Set the gauges of a coordinator that leads."""
        self._leads.set(1)
        self._show(figures)

    def stands_by(self) -> None:
        """Clear the gauges: this coordinator does not lead."""
        self._leads.set(0)
        self._show(FleetFigures())

    def shows_unlisted(self, unlisted: Collection[UnlistedDevices]) -> None:
        """Set the gauge of nodes whose device plugin lists too few devices."""
        hopeless = sum(node.is_hopeless for node in unlisted)
        self._unlisted.labels("restarts").set(len(unlisted) - hopeless)
        self._unlisted.labels("restarted").set(hopeless)

    def shows_startup(self, tainted: Collection[StartupNode]) -> None:
        """Set the gauges of Nodes that have the startup taint."""
        for wait in StartupWait:
            ages = [node.seconds for node in tainted if node.wait is wait]
            self._startup.labels(wait).set(len(ages))
            self._oldest_startup.labels(wait).set(max(ages, default=0.0))

    def _show(self, figures: FleetFigures) -> None:
        self._slots.set(figures.slots)
        self._used.set(figures.used)
        self._parked.set(figures.parked)
        self._stopped.set(figures.stopped)
        self._paused.set(figures.paused)
        self._window.set(figures.window_open)
        self._long_wait.set(figures.long_wait_seconds)
        for reason in WaitReason:
            self._waiting.labels(reason).set(figures.waiting.get(reason, 0))
            self._oldest.labels(reason).set(figures.oldest_seconds.get(reason, 0.0))
        policy = figures.policy
        self._refused.set(policy is not None and bool(policy.problem))
        self._policy_paused.set(policy is not None and policy.is_paused)
        for assignment in Assignment:
            count = 0 if policy is None else policy.nodes.get(assignment, 0)
            self._assigned.labels(assignment).set(count)
        self._now.latest = figures

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


class _NowCollector(Collector):
    """Families whose series come and go: nodes in change, and the policy's revision."""

    def __init__(self) -> None:
        self.latest = FleetFigures()

    def collect(self) -> Iterator[Metric]:
        figures = self.latest
        steps = GaugeMetricFamily(
            f"{_PREFIX}_change_step_seconds",
            "For how long a node in change, or one that is stuck, has been at its present step.",
            labels=["node", "slot", "step"],
        )
        for step in figures.steps:
            steps.add_metric([step.node, step.slot, step.step], step.seconds)
        yield steps
        policy = GaugeMetricFamily(
            f"{_PREFIX}_policy_info",
            "Revision of the fleet policy that is obeyed; always 1.",
            labels=["revision"],
        )
        if figures.policy is not None and figures.policy.revision:
            policy.add_metric([figures.policy.revision], 1)
        yield policy
