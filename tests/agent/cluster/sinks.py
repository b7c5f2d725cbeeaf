# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory with one sink in it, and virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.cluster.feature_sink import FeatureSink
from agent.cluster.node_sink import NodeSink
from agent.cluster.sink_reports import SinkReports
from api import names
from kube.api import NODE_FEATURES, NODES, ApiResource, Object
from labelers.decision import Absent, Decisions, Keep, Value
from tests.agent.virtual import VirtualRuntime
from tests.fakes.api import FakeApi, Server

NAME = "node-a"
NAMESPACE = "gpuscape"
FEATURE = names.node_feature(NAME)
NOT_KNOWN, GONE = Keep(reason="not known now"), Absent(reason="known to be gone")
WATCH_SECONDS = 0.5

Tick = Callable[[float], float]


class KilledError(BaseException):
    """SIGKILL: nothing after it runs, no handler either."""


def values(**texts: str) -> Decisions:
    """Decided labels; ``_`` stands for a dot: ``gpu_mode`` is nvidia.com/gpu.mode."""
    return {f"nvidia.com/{key.replace('_', '.')}": Value(text=text) for key, text in texts.items()}


def every(seconds: float, act: Callable[[float], None]) -> Tick:
    """Somebody who does the same again and again."""

    def tick(now: float) -> float:
        act(now)
        return seconds

    return tick


@dataclass
class Said:
    """What a sink reported."""

    events: list[tuple[str, str]] = field(default_factory=list)
    writes: int = 0
    left_alone: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def reports(self, of: str) -> SinkReports:
        """Reports that end here."""

        def wrote() -> None:
            self.writes += 1

        return SinkReports(
            of,
            event=lambda reason, note: self.events.append((reason, note)),
            wrote=wrote,
            left_alone=self.left_alone.append,
            refused=self.refused.append,
        )


class World:
    """The Node node-a, one sink, its watch, and whatever else ticks."""

    def __init__(self, *, node: bool = True, lag_seconds: float = 0.0) -> None:
        """``lag_seconds``: how far the watch is behind."""
        self.server = Server()
        self.api = FakeApi(self.server)
        self.may_write = True
        self.said = Said()
        self.lag_seconds = lag_seconds
        self._told = 0
        self._happened_at: dict[int, float] = {}
        self._others: dict[str, Tick] = {}
        self._runtime = VirtualRuntime({"sink": self._tick, "watch": self._watch})
        self.start()
        if node:
            self.make_node()

    def start(self) -> None:
        """A new agent: it knows nothing of what the last one did."""
        self.node_sink: NodeSink | None = None
        self.feature_sink: FeatureSink | None = None
        self._told = 0

    def node(self) -> NodeSink:
        """Start the Node sink."""
        self.node_sink = NodeSink(
            self.api,
            NAME,
            may_write=lambda: self.may_write,
            reports=self.said.reports(NODES.kind),
            uniform=random.Random(1).uniform,  # noqa: S311  # jitter, no secret
        )
        return self.node_sink

    def feature(self) -> FeatureSink:
        """Start the NodeFeature sink."""
        self.feature_sink = FeatureSink(
            self.api,
            NAME,
            namespace=NAMESPACE,
            may_write=lambda: self.may_write,
            reports=self.said.reports(NODE_FEATURES.kind),
            uniform=random.Random(1).uniform,  # noqa: S311  # jitter, no secret
        )
        return self.feature_sink

    # time

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self._runtime.run(seconds)

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self._runtime.now

    def also(self, **ticks: Tick) -> None:
        """Have somebody else tick from now on."""
        before = self._runtime
        self._others |= ticks
        ours = {"sink": self._tick, "watch": self._watch}
        self._runtime = VirtualRuntime({**ours, **self._others}, now=before.now)

    def deliver(self) -> None:
        """Have the watch tell what happened, now."""
        self._watch(self.now)

    def set_desired(self, labels: Decisions, annotations: Decisions | None = None) -> None:
        """What the agent decided, told to whatever sink there is."""
        if self.node_sink is not None:
            self.node_sink.set_desired(labels, annotations or {})
        if self.feature_sink is not None:
            self.feature_sink.set_desired(labels)
        self._runtime.trigger("sink")

    # the cluster

    def make_node(self, **labels: str) -> None:
        """Somebody registers the Node."""
        body: Object = {"metadata": {"name": NAME, "labels": {"zone": "a", **labels}}}
        self.server.create(NODES, body, manager="kubelet")

    def delete_node(self) -> None:
        """Somebody deletes it."""
        self.server.delete(NODES, NAME)

    def meta(self) -> dict[str, Any]:
        """The Node's metadata."""
        meta: dict[str, Any] = self.server.get(NODES, NAME)["metadata"]
        return meta

    def labels(self) -> dict[str, str]:
        """The Node's labels but for the zone, without their prefix."""
        labels = {key: text for key, text in self.meta()["labels"].items() if key != "zone"}
        return {key.removeprefix("nvidia.com/"): text for key, text in labels.items()}

    def edit(self, by: str = "kubectl-edit", **labels: str | None) -> None:
        """Somebody writes labels of ours."""
        changed = {f"nvidia.com/{key.replace('_', '.')}": text for key, text in labels.items()}
        self.server.patch(NODES, NAME, {"metadata": {"labels": changed}}, manager=by)

    def beat(self, at: float) -> None:
        """The kubelet writes the Node's status."""
        status = {"status": {"beat": str(at)}}
        self.server.patch(NODES, NAME, status, manager="kubelet", status=True)

    def writes(self, resource: ApiResource | None = None) -> int:
        """Writes that the agent sent."""
        return len(self.api.writes(resource))

    # ticks

    def _tick(self, now: float) -> float:
        for sink in (self.node_sink, self.feature_sink):
            if sink is not None:
                return sink.tick(now)
        return 60.0

    def _watch(self, now: float) -> float:
        """Tell what happened, the newest ``lag_seconds`` left out."""
        with self.server.changed:
            news = self.server.since(self._told)
        for happened in news:
            since = self._happened_at.setdefault(happened.version, now)
            if now - since < self.lag_seconds:
                break
            self._told = happened.version
            if happened.key == (NODES, None, NAME):
                self._show(None if happened.type == "DELETED" else happened.object)
        return WATCH_SECONDS

    def _show(self, node: Object | None) -> None:
        for sink in (self.node_sink, self.feature_sink):
            if sink is not None:
                sink.observe(node)
        self._runtime.trigger("sink")
