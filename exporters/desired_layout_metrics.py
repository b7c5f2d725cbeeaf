# SPDX-License-Identifier: Apache-2.0
"""Metrics of the MIG layout that the node's admin asks for: how far it is, how changes ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.mig_outcome import Outcome
from api.mig_status_annotation import MigPhase

PHASES_WITHOUT_LAYOUT = (MigPhase.IDLE, MigPhase.UNADOPTED)
"""Phases without a series: nothing is to come of them."""
PHASES = tuple(phase for phase in MigPhase if phase not in PHASES_WITHOUT_LAYOUT)
RETRIED_ENDS = (Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.STUCK, Outcome.REFUSED)
"""Ends after which the agent may ask for the same layouts once more by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredLayoutState:
    """What has become of the layout that is asked for."""

    phase: str
    """A value of ``MigPhase``."""
    since_seconds: float
    """Unix time at which the phase began."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """Requests for a change that ended since the agent started, by ``Outcome``."""
    retries: Mapping[str, int] = field(default_factory=dict)
    """Requests made for the same layouts as the one before, by how that one ended."""
    enforced: bool = False
    """Changes are made by the agent; else it makes no requests."""


class DesiredLayoutCollector(Collector):
    """The layout's families; none where no layout is asked for.

    ``while_set``: of phases and retries only those that are not 0 are served.
    """

    def __init__(self, *, while_set: bool) -> None:
        self._while_set = while_set
        self.latest: DesiredLayoutState | None = None

    def collect(self) -> Iterator[Metric]:
        state = self.latest
        if state is None:
            return
        phases = GaugeMetricFamily(
            "gpuscape_mig_phase",
            "1 for the phase of the desired MIG layout, 0 for others.",
            labels=["phase"],
        )
        for phase in PHASES:
            if phase == state.phase or not self._while_set:
                phases.add_metric([phase], phase == state.phase)
        yield phases
        since = GaugeMetricFamily(
            "gpuscape_mig_phase_timestamp_seconds",
            "When the phase of the desired MIG layout began, Unix time.",
        )
        since.add_metric([], state.since_seconds)
        yield since
        if not state.enforced:
            return
        ends = CounterMetricFamily(
            "gpuscape_mig_requests_ended_total",
            "Requests for a MIG change that ended since the agent started, by outcome.",
            labels=["outcome"],
        )
        for end in Outcome:
            ends.add_metric([end], state.ends.get(end, 0))
        yield ends
        retries = CounterMetricFamily(
            "gpuscape_mig_retries_total",
            "Requests for the same layouts as the request before, by the outcome of that one; after"
            " applied, another program had changed the GPUs.",
            labels=["after"],
        )
        for end in RETRIED_ENDS:
            if (count := state.retries.get(end, 0)) or not self._while_set:
                retries.add_metric([end], count)
        yield retries
