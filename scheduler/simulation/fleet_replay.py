# SPDX-License-Identifier: Apache-2.0
"""A fleet that pods come to and leave, in the order of time, with a scheduler that chooses.

Pods have one container. The state that a node's agent reports lags; the number of free GPUs
does not, for the scheduler counts them itself. A pod that fits nowhere waits, and smaller
ones behind it go first. Pure: device plugin, scheduler and chance are arguments.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from random import Random
from statistics import fmean

from api.gpu_request import GpuRequest
from placement.best_effort import LOST
from placement.score_table import ScoreTable
from scheduler.cluster.free_gpus import Bound, ReportedState, reckon
from scheduler.cluster.job_nodes import JobNodes
from scheduler.cluster.node_views import ScoringView
from scheduler.pod_request import PodRequest
from scheduler.simulation.workload import Arrival

Give = Callable[["NodeKind", int, GpuRequest, Random], int]
"""The device plugin: of these free GPUs the set that a pod gets; LOST where that fails."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeKind:
    """Topology and score table that several simulated nodes share."""

    name: str
    gen: str
    table: ScoreTable
    product: str = ""
    """Product (:class:`ScoringView`); kinds of one product differ where links are degraded."""
    clique: str | None = None
    """NVLink clique across nodes."""

    @property
    def everything(self) -> int:
        """Mask of all GPUs of the node."""
        return (1 << self.table.n) - 1


class ReplayNode:
    """A simulated node: its real state, and its state as a reader of its agent's Lease sees it."""

    def __init__(self, name: str, kind: NodeKind) -> None:
        self.name = name
        self.kind = kind
        self.free = kind.everything
        """Mask of the free GPUs."""
        self.free_count = kind.table.n
        """Number of free GPUs."""
        self._bound: dict[str, Bound] = {}
        self._sets: dict[str, int] = {}
        self._reported: Mapping[str, int] = {}
        self._view: ScoringView | None = None

    def view(self) -> ScoringView:
        """The node as the extender sees it: pods at once, and the sets that they got late."""
        if self._view is None:
            kind, reported = self.kind, self._reported
            used = reduce(operator.or_, reported.values(), 0)
            state = ReportedState(gen=kind.gen, seq=0, ok=kind.everything, used=used, pods=reported)
            ended = reported.keys() - self._bound.keys()
            now = reckon(state, self._bound.values(), ended, kind.table)
            self._view = ScoringView(
                gen=kind.gen,
                free=now.free,
                ok=kind.everything,
                sure=now.sure,
                clique=kind.clique,
                product=kind.product,
            )
        return self._view

    def bind(self, pod: PodRequest, order: int, chosen: int) -> None:
        self._bound[pod.uid] = Bound(key=pod.uid, ask=pod, order=("", order))
        self._sets[pod.uid] = chosen
        self._changed(self.free & ~chosen)

    def end(self, pod: PodRequest) -> None:
        del self._bound[pod.uid]
        self._changed(self.free | self._sets.pop(pod.uid))

    def sets(self) -> Mapping[str, int]:
        """Pod to its set of GPUs, as the agent sees them now."""
        return dict(self._sets)

    def report(self, sets: Mapping[str, int]) -> None:
        self._reported = sets
        self._view = None

    def _changed(self, free: int) -> None:
        self.free = free
        self.free_count = free.bit_count()
        self._view = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A scheduler's choice for one pod: the node, and the set where it knows it."""

    node: ReplayNode
    chosen: int | None = None
    """The set that it will get there, where the scheduler knew; else the device plugin chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPod:
    """A pod to place, as a scheduler sees it."""

    wish: GpuRequest
    job_nodes: tuple[ReplayNode, ...] = ()
    """Nodes that have pods of its job now, those of its first pods first."""


Choose = Callable[[Sequence[ReplayNode], ReplayPod, Random], Placement]
"""A scheduler: of the nodes that have enough GPUs, one. They are never none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A pod that got its GPUs, or was lost in the attempt. Speeds of one GPU alone are 0."""

    wish: GpuRequest
    wait_seconds: float
    gbps: float
    """Speed of its set; 0 where the pod was lost."""
    ideal_gbps: float
    """The best of the fleet when all is free."""
    lost: bool
    """The device plugin failed."""
    job: str | None = None
    """Name of the pod's job."""
    kind: NodeKind | None = None
    """Kind of its node."""

    @property
    def is_ideal(self) -> bool:
        """Whether no other set of the pod's node class is faster."""
        return self.gbps >= self.ideal_gbps


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures about a group of pods. Shares and ratios are None where no pod counts for them."""

    pods: int
    lost: int
    """The device plugin failed over them."""
    ideal_ratio: float | None
    """Share of the pods with several GPUs that got a set as fast as any."""
    speed_ratio: float | None
    """Mean of the speed of their sets to the best speed."""
    mean_wait_seconds: float
    longest_wait_seconds: float
    ideal_ratio_error: float | None = None
    """Half of the 95 % interval; so are the next two. None where there are no samples."""
    speed_ratio_error: float | None = None
    mean_wait_error_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """Settings of a run, except for the arriving pods and the scheduler."""

    kinds: tuple[NodeKind, ...]
    """The kind of each node."""
    give: Give
    lag_seconds: float = 0.0
    """Delay until a reader sees the state that a node's agent reports."""


def replay(
    setup: ReplaySetup, arrivals: Iterable[Arrival], choose: Choose, chance: Random
) -> tuple[Placed, ...]:
    """All pods that were placed, in the order of their arrival.

    A pod that no node could ever hold is left out.
    """
    run = _Run(setup, choose, chance)
    for arrival in arrivals:
        run.arrive(arrival)
    run.play()
    return tuple(placed for _, placed in sorted(run.placed.items()))


def replay_summary(placed: Sequence[Placed]) -> Summary:
    """Figures about these pods."""
    several = [pod for pod in placed if pod.ideal_gbps]
    waits = [pod.wait_seconds for pod in placed]
    return Summary(
        pods=len(placed),
        lost=sum(pod.lost for pod in placed),
        ideal_ratio=fmean(pod.is_ideal for pod in several) if several else None,
        speed_ratio=fmean(pod.gbps / pod.ideal_gbps for pod in several) if several else None,
        mean_wait_seconds=fmean(waits) if waits else 0.0,
        longest_wait_seconds=max(waits, default=0.0),
    )


class _Run:
    """State of a running replay."""

    def __init__(self, setup: ReplaySetup, choose: Choose, chance: Random) -> None:
        self._setup = setup
        self._choose = choose
        self._chance = chance
        self._nodes = [
            ReplayNode(f"{kind.name}-{index}", kind) for index, kind in enumerate(setup.kinds)
        ]
        self._ideal: dict[GpuRequest, float] = {}
        self._jobs = JobNodes[ReplayNode]()
        self._waiting: list[tuple[int, Arrival]] = []
        self._ahead: list[tuple[float, int, Callable[[float], None]]] = []
        self._events = itertools.count()
        self._pods = itertools.count()
        self.placed: dict[int, Placed] = {}

    def arrive(self, arrival: Arrival) -> None:
        """Place an arriving pod, after all events before it."""
        self.play(arrival.at_seconds)
        pod = next(self._pods)
        if not self._place(arrival.at_seconds, pod, arrival, self._nodes):
            self._waiting.append((pod, arrival))

    def play(self, until: float = math.inf) -> None:
        """Play all events up to this moment."""
        while self._ahead and self._ahead[0][0] <= until:
            moment, _, happen = heapq.heappop(self._ahead)
            happen(moment)

    def _later(self, moment: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(
            self._ahead, (moment, next(self._events), happen)
        )  # events of one moment in order

    def _place(self, now: float, pod: int, arrival: Arrival, nodes: Iterable[ReplayNode]) -> bool:
        wish, size = arrival.wish, arrival.wish.gpus
        fitting = [node for node in nodes if node.free_count >= size]
        if not fitting:
            return False
        job_nodes = self._jobs.of(arrival.job) if arrival.job else ()
        choice = self._choose(fitting, ReplayPod(wish=wish, job_nodes=job_nodes), self._chance)
        node = choice.node
        chosen = choice.chosen
        if chosen is None:
            chosen = self._setup.give(node.kind, node.free, wish, self._chance)
        self.placed[pod] = Placed(
            wish=wish,
            wait_seconds=now - arrival.at_seconds,
            gbps=node.kind.table.gbps(chosen) if chosen != LOST else 0.0,
            ideal_gbps=self._ideal_of(wish),
            lost=chosen == LOST,
            job=arrival.job,
            kind=node.kind,
        )
        if chosen != LOST:
            self._bind(now, node, pod, arrival, chosen)
        return True

    def _bind(self, now: float, node: ReplayNode, pod: int, arrival: Arrival, chosen: int) -> None:
        ask = PodRequest(namespace="", name="", uid=str(pod), wish=arrival.wish)
        node.bind(ask, pod, chosen)
        self._jobs.count(arrival.job, node, 1)
        self._report(now, node)

        def end(moment: float) -> None:
            node.end(ask)
            self._jobs.count(arrival.job, node, -1)
            self._report(moment, node)
            self._retry(moment, node)

        self._later(now + arrival.lasts_seconds, end)

    def _retry(self, now: float, node: ReplayNode) -> None:
        """Place waiting pods on this node: only where GPUs came free can they fit now."""
        self._waiting = [
            (pod, arrival)
            for pod, arrival in self._waiting
            if not self._place(now, pod, arrival, (node,))
        ]

    def _report(self, now: float, node: ReplayNode) -> None:
        sets = node.sets()
        if self._setup.lag_seconds:
            self._later(now + self._setup.lag_seconds, lambda _: node.report(sets))
        else:
            node.report(sets)

    def _ideal_of(self, wish: GpuRequest) -> float:
        if wish not in self._ideal:
            tables = {node.kind.table for node in self._nodes}
            self._ideal[wish] = max(table.ideal(wish) for table in tables)
        return self._ideal[wish]
