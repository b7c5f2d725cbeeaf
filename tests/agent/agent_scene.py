# SPDX-License-Identifier: Apache-2.0
"""An agent's ticks over a device reader whose answers the test sets, without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.extra_readings import NO_EXTRA_READINGS, ExtraReadings
from agent.metrics.latest_metrics import LatestMetrics
from agent.node_agent import Intervals, NodeAgent
from agent.publish import NodeDecision, Publisher, Sink
from base.errors import Transient
from base.runtime import Tick
from discovery.driver_errors import Released
from discovery.model import Driver, Gap, GpuSnapshot, GpuState, Reason
from discovery.node_host import NodeHost
from discovery.reader.protocol import Event
from discovery.reader.reader_results import DiscoveryResult, ReaderHealth
from discovery.sample import GpuSample, ReadingGroup
from exporters.dcgm.render import SeriesIdentity
from exporters.gpuscape.agent_metrics import AgentMetrics
from labelers.diff import applied
from labelers.label_settings import LabelSettings
from tests import build
from tests.agent.virtual import VirtualRuntime

GPUS = (build.gpu(0), build.gpu(1))
DRIVER = Driver(version="550.1.2", cuda_version=(12, 4))
WELL = ReaderHealth(starts=1, hangs=0, deaths=0, stuck=0, quarantined=(), released=False)
IDENTITY = SeriesIdentity(hostname="node-a")
INTERVALS = Intervals(discover=60.0, sample=10.0)


@dataclass
class FakeSource:
    """A device reader whose answers are set by the test."""

    gpus: tuple[GpuSnapshot, ...] = GPUS
    driver: Driver = DRIVER
    settling: bool = False
    failing: Transient | None = None
    events_due: list[Event] = field(default_factory=list)
    freed: tuple[str, ...] = ()
    state: ReaderHealth = WELL
    after_sample: ReaderHealth | None = None
    lost: str | None = None
    while_sampling: Callable[[], None] = lambda: None
    """What others do in the middle of a sample."""
    while_discovering: Callable[[], None] = lambda: None
    while_probing: Callable[[], None] = lambda: None
    closes: bool = True
    """Whether a release closes all handles."""
    groups: tuple[ReadingGroup, ...] = ()
    """Those asked for last."""

    def discover(self) -> DiscoveryResult:
        self.while_discovering()
        if self.failing is not None:
            raise self.failing
        return DiscoveryResult(driver=self.driver, gpus=self.gpus, settling=self.settling)

    def sample(self, groups: Iterable[ReadingGroup] = ()) -> tuple[GpuSample, ...]:
        self.groups = tuple(groups)
        if self.failing is not None:
            raise self.failing
        self.state = self.after_sample or self.state
        self.while_sampling()
        gap = Gap(what="state", reason=Reason.LOST, source="nvml")
        return tuple(
            build.sample(gpu, gaps=(gap,) if gpu.bus_id == self.lost else ()) for gpu in self.gpus
        )

    def events(self) -> tuple[Event, ...]:
        taken, self.events_due = tuple(self.events_due), []
        return taken

    def probe(self) -> tuple[str, ...]:
        self.while_probing()
        return self.freed

    def health(self) -> ReaderHealth:
        return self.state

    def release(self) -> bool:
        self.failing = Released("asked for")
        self.state = replace(self.state, released=True)
        return self.closes

    def resume(self) -> None:
        self.failing = None
        self.state = replace(self.state, released=False)


class Scene:
    """An agent over a fake source, with a clock that the test sets."""

    def __init__(
        self,
        root: Path,
        sinks: dict[str, Sink],
        extra: ExtraReadings = NO_EXTRA_READINGS,
        identity: SeriesIdentity = IDENTITY,
    ) -> None:
        self.now = 1000.0
        self.source = FakeSource()
        self.labels: dict[str, str] = {}
        self.hastened: list[str] = []
        self.while_hastening: Tick | None = None
        """What runs at once when a tick is hastened."""
        self.runtime: VirtualRuntime | None = None
        own = AgentMetrics("0", lambda: self.now)
        self.latest = LatestMetrics(identity, own)
        self.agent = NodeAgent(
            self.source,
            NodeHost(root=root, name="node-a"),
            self.latest,
            Publisher(LabelSettings(), {"labels": self._take, **sinks}),
            intervals=INTERVALS,
            trigger=self._trigger,
            extra=extra,
            clock=lambda: self.now,
            wall=lambda: 1_700_000_000.0,
        )

    def _trigger(self, tick: str) -> None:
        self.hastened.append(tick)
        if self.while_hastening is not None:
            self.while_hastening(self.now)
        if self.runtime is not None:
            self.runtime.trigger(tick)

    def run_ticks(self) -> VirtualRuntime:
        """A clock that runs the ticks, from now on those that are hastened too."""
        self.runtime = VirtualRuntime(self.agent.ticks, now=self.now)
        return self.runtime

    def _take(self, decided: NodeDecision) -> None:
        self.labels = applied(self.labels, decided.labels)

    def discover(self) -> float:
        return self.agent.discover(self.now)

    def sample(self) -> float:
        return self.agent.sample(self.now)

    def metrics(self) -> str:
        response = self.latest.metrics()
        return (response.body.plain + response.tail).decode()

    def series(self, family: str) -> list[str]:
        return [line for line in self.metrics().splitlines() if line.startswith(family)]

    def states(self) -> list[GpuState]:
        assert self.latest.snapshot is not None
        return [gpu.state for gpu in self.latest.snapshot.gpus]
