# SPDX-License-Identifier: Apache-2.0
"""The scheduler extender's own metrics: its speed, unscored nodes, and hits of its predictions."""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.cluster.node_views import NoOutcome, NoView
from scheduler.extender.server_tls import Party
from web.refusals import RefusalReason

# or each has a second series that nobody needs
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # theirs to annotate

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "gpuscape_scheduler"
_CLASS: Final = "topology_class"
_LATENCIES: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 1.0)
"""Seconds; budgets are at 0.01 for 500 nodes, 0.03 for 5,000, and 0.05 is where we give up."""
_REFUSALS: Final = tuple(
    reason
    for reason in RefusalReason
    if reason not in (RefusalReason.CREDENTIALS, RefusalReason.RATE)
)
"""Why the extender refuses clients: it asks for no passwords and has no rate."""
_Item = TypeVar("_Item")
_MOST_UNCOUNTED: Final = 64
"""Answers that wait to be counted: at each scrape they are."""
_NODES: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 5000)


class Verb(StrEnum):
    """Kind of request, as the label ``verb``; all other paths count as one."""

    PRIORITIZE = "prioritize"
    EXPLAIN = "explain"
    DEBUG = "debug"
    METRICS = "metrics"
    PROBE = "probe"
    OTHER = "other"


class Neutral(StrEnum):
    """Why a request for scores was answered without any, though the pod asks for GPUs."""

    BUDGET = "budget"
    """The answer took longer than it may."""
    UNSYNCED = "unsynced"
    """Not all of the cluster has been read: nodes that were read first would be preferred."""
    FAULT = "fault"
    """Something unexpected; the log says what."""


class NodeVisibility(StrEnum):
    """Visibility of a node that can be scored; others count under their reason (NoView)."""

    SURE = "sure"
    UNSURE = "unsure"
    """Masks and counts of its free GPUs disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """Free GPUs of a topology class, and their worth to pods that need linked ones."""

    gen: str
    nodes: int
    free: int
    """Number of free GPUs."""
    worth: float = 0.0
    """Worth of the free GPUs as they lie, in GPUs."""
    best_worth: float = 0.0
    """Worth of as many free GPUs on each node where they lie best, in GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUse:
    """Nodes by visibility and free GPUs by class at one moment."""

    synced: bool
    views: Iterable[NodeVisibility | NoView]
    """The visibility of each node."""
    classes: Sequence[ClassUse]


class ExtenderMetrics:
    """Metrics of the scheduler extender. Thread-safe."""

    def __init__(self, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._fleet = _Fleet(version)
        registry.register(self._fleet)
        histogram, counter = partial(Histogram, registry=registry), partial(_counter, registry)
        self._seconds = histogram(
            f"{_PREFIX}_request_duration_seconds",
            "Time from a request's last byte to its answer.",
            ["verb"],
            buckets=_LATENCIES,
        )
        self._seconds.labels(Verb.PRIORITIZE)
        self._requests = counter("requests", "Requests answered, by HTTP status.", "verb", "code")
        self._answers: deque[tuple[Verb, int, float]] = deque()
        """Verb, status and seconds of requests that the two above have not counted yet."""
        self._judged: deque[int] = deque()
        """Numbers of candidates that the histogram below has not counted yet."""
        self._candidates = histogram(
            f"{_PREFIX}_candidates",
            "Candidate nodes in one request of the scheduler.",
            buckets=_NODES,
        )
        self._unscored = counter(
            "unscored_candidates",
            "Candidates that could not be scored: their rank is 0, and with given_up neutral.",
            "reason",
            values=(*NoView, *NoOutcome),
        )
        self._neutral = counter(
            "neutral_answers",
            "Requests for scores that were answered without any.",
            "cause",
            values=Neutral,
        )
        self._predictions = counter(
            "predictions",
            "Pods whose GPUs were predicted; hit: they got one of the sets predicted.",
            "result",
            values=("hit", "miss"),
        )
        self._chance = counter(
            "predicted_odds",
            "Sum of the odds that predictions gave to the sets that pods then got.",
        )
        self._placements = counter(
            "placements",
            "Pods with several GPUs, by whether these are as fast as any of the node's class.",
            "ideal",
            values=("true", "false"),
        )
        self._unlinked = counter(
            "unlinked_pods", "Pods that requested GPUs joined by NVLink and got others."
        )
        self._refusals = counter(
            "http_refusals",
            "Connections and requests that were refused, by reason.",
            "reason",
            values=_REFUSALS,
        )
        self._events_dropped = counter(
            "events_dropped",
            "Kubernetes Events that were not recorded: over the budget, or refused by the server.",
        )
        self._defects = counter(
            "internal_errors",
            "Unexpected exceptions in threads of the program; the log has their tracebacks.",
        )

    def ask_fleet(self, use: Callable[[], FleetUse]) -> None:
        """Set the function that returns the fleet's figures at each scrape."""
        self._fleet.use = use

    def ask_certificates(self, ends: Callable[[], Mapping[Party, float]]) -> None:
        """Set the function that returns when certificates end, in Unix seconds, at each scrape."""
        self._fleet.ends = ends

    def answered(self, verb: Verb, code: int, seconds: float) -> None:
        """Count a request that was answered, with its duration."""
        self._answers.append((verb, code, seconds))
        if len(self._answers) >= _MOST_UNCOUNTED:
            self._count()

    def judged(self, candidates: int, unseen: Mapping[NoView | NoOutcome, int]) -> None:
        """Count the candidates for a pod with GPUs, and those that cannot be scored, by reason."""
        self._judged.append(candidates)
        for reason, count in unseen.items():
            self._unscored.labels(reason).inc(count)

    def neutral(self, cause: Neutral) -> None:
        """Count a request for scores that was answered without scores."""
        self._neutral.labels(cause).inc()

    def landed(self, *, odds: float | None, ideal: bool | None, unlinked: bool) -> None:
        """Count a pod that got GPUs; ``odds`` are those of the prediction, None without one.

        ``ideal`` is None where there is no speed to compare.
        """
        if odds is not None:
            self._predictions.labels("hit" if odds else "miss").inc()
            self._chance.inc(odds)
        if ideal is not None:
            self._placements.labels(str(ideal).lower()).inc()
        if unlinked:
            self._unlinked.inc()

    def refused(self, reason: RefusalReason) -> None:
        """Count a connection or request that was refused."""
        self._refusals.labels(reason).inc()

    def event_dropped(self) -> None:
        """Count a Kubernetes Event that was not recorded."""
        self._events_dropped.inc()

    def defect_met(self) -> None:
        """Count an exception that nobody expected."""
        self._defects.inc()

    def _count(self) -> None:
        """Update the series, in batches: an update for each request costs several times as much."""
        for verb, code, seconds in _taken(self._answers):
            self._requests.labels(verb, str(code)).inc()
            self._seconds.labels(verb).observe(seconds)
        for candidates in _taken(self._judged):
            self._candidates.observe(candidates)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        self._count()
        return prometheus_client.generate_latest(self._registry)


class _Fleet(Collector):
    """Families that are made at each scrape."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.use: Callable[[], FleetUse] | None = None
        self.ends: Callable[[], Mapping[Party, float]] = dict

    def describe(self) -> Iterable[Metric]:
        """Nothing: so a registration does not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Figures of the fleet and of certificates at this moment."""
        yield _gauge("build_info", "This program.", "version", {self._version: 1})
        yield _gauge(
            "certificate_expiry_timestamp_seconds",
            "When a certificate in use ends: the server's own, the first to end of the authorities"
            " of clients, and that of the client which last connected.",
            "certificate",
            self.ends(),
        )
        if self.use is None:
            return
        use = self.use()
        yield GaugeMetricFamily(
            f"{_PREFIX}_synced", "1 once all Nodes, pods and Leases were read.", use.synced
        )
        views = Tally(use.views)
        yield _gauge(
            "nodes",
            "Nodes by how they are seen: sure, unsure, or why they cannot be scored.",
            "view",
            {view: views[view] for view in (*NodeVisibility, *NoView)},
        )
        yield _gauge(
            "class_nodes",
            "Nodes of a topology class that can be scored.",
            _CLASS,
            {each_class.gen: each_class.nodes for each_class in use.classes},
        )
        yield _gauge(
            "class_free_gpus",
            "Free GPUs on nodes of a topology class.",
            _CLASS,
            {each_class.gen: each_class.free for each_class in use.classes},
        )
        yield _gauge(
            "class_worth_ratio",
            "Worth of a class's free GPUs for pods that request linked GPUs, as a share of the best"
            " worth of as many GPUs; 1 is no fragmentation.",
            _CLASS,
            {
                each_class.gen: each_class.worth / each_class.best_worth
                for each_class in use.classes
                if each_class.best_worth
            },
        )


def _taken(waiting: deque[_Item]) -> Iterator[_Item]:
    """Take all that waits; of several threads each value goes to one."""
    while True:
        try:
            yield waiting.popleft()
        except IndexError:
            return


def _counter(
    registry: CollectorRegistry, name: str, text: str, *labels: str, values: Iterable[str] = ()
) -> Counter:
    """A counter, with the series of all ``values`` of its label, as queries may name them before
    anything happened: absent is no zero."""
    counter = Counter(f"{_PREFIX}_{name}", text, labels, registry=registry)
    for value in values:
        counter.labels(value)
    return counter


def _gauge(name: str, text: str, label: str, values: Mapping[Any, float]) -> Metric:
    """The family of a gauge, with a sample for each value of its label."""
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
