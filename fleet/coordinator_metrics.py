# SPDX-License-Identifier: Apache-2.0
"""Metrics of the coordinator: slots, nodes that wait and why, stopped rollouts, how changes end."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from fleet.rollout_memory import CountedEnd
from fleet.slot_gate import Waiting
from fleet.undo_record import UndoRecord

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
            "parked_nodes", "Nodes that stay cordoned without a slot: held, or without an end."
        )
        self._waiting = gauge(
            "waiting_nodes",
            "Nodes with an open request and no slot, by why.",
            "reason",
        )
        self._stopped = gauge("stopped_rollouts", "Rollouts that the circuit breaker stopped.")
        self._paused = gauge("paused", "1 while an admin has paused all rollouts.")
        self._ends = counter("changes", "Changes that ended, by how.", "outcome")
        self._seconds = Histogram(
            f"{_PREFIX}_change_duration_seconds",
            "From taking a slot to the end of the undoing.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._dropped = counter("events_dropped", "Events that were not recorded.")
        self._defects = counter("internal_errors", "Unexpected exceptions.")
        for reason in Waiting:
            self._waiting.labels(reason)
        for outcome in CountedEnd:
            self._ends.labels(outcome)

    def shows(self, *, slots: int, used: int, parked: int, stopped: int, paused: bool) -> None:
        """Set the gauges of a coordinator that leads."""
        self._leads.set(1)
        self._slots.set(slots)
        self._used.set(used)
        self._parked.set(parked)
        self._stopped.set(stopped)
        self._paused.set(paused)

    def waits(self, reasons: Tally[Waiting]) -> None:
        """Set how many nodes wait for each reason."""
        for reason in Waiting:
            self._waiting.labels(reason).set(reasons[reason])

    def stands_by(self) -> None:
        """This coordinator does not lead: it says nothing of the fleet."""
        self.shows(slots=0, used=0, parked=0, stopped=0, paused=False)
        self.waits(Tally())
        self._leads.set(0)

    def ended(self, outcome: str) -> None:
        """Count a change that ended."""
        self._ends.labels(outcome).inc()

    def freed(self, record: UndoRecord, now: float) -> None:
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
