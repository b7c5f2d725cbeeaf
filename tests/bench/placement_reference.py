# SPDX-License-Identifier: Apache-2.0
"""Schedulers to measure ours by, on a simulation of their own that has no rule of the product.

Four of them: the stock scheduler's two ways, one that takes the fastest free set, and one that
knows the next hour. Sets are as fast as the judge says; which set a node hands out is drawn from
its device plugin. A pod that fits nowhere waits, and smaller ones behind it go first.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from operator import getitem
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from api.gpu_request import gpu_request
from scheduler.simulation.fleet_replay import Give, NodeKind
from tests.bench.placement_fleets import Machine, best_gbps

_DRAWS: Final = 32
"""Sets that are drawn of the device plugin for each set of free GPUs."""
_COMPARED: Final = (2, 4, 8)
"""Sizes by which one machine is slower than another."""
_HOUR: Final = 3600.0
_WAIT_COSTS: Final = 1.0 / 600
"""Second of waiting of one GPU, in GPUs with the fastest set: to wait for as long as pods live is
as bad as to have no bandwidth at all."""


class Landed(NamedTuple):
    """A pod that got its GPUs, or over which the device plugin failed."""

    size: int
    wait_seconds: float
    gbps: float
    """By the judge; 0 for a single GPU."""
    lost: bool


class Seat(NamedTuple):
    """What a node with certain free GPUs has for a pod of a size."""

    speed: float
    """Expected bandwidth by the judge, relative to the fastest set of the fleet; 1 for one GPU."""
    likely: int
    """The set that is handed out most often."""
    sets: tuple[int, ...]
    """Sets as they were drawn."""


class _Orders(dict[int, tuple[float, ...]]):
    """Free GPUs of a node to what it is compared by for a pod of a size: greater is better, and
    nothing is least, where the pod does not fit."""

    def __init__(self, its: Type, size: int) -> None:
        self._its = its
        self._size = size

    def __missing__(self, free: int) -> tuple[float, ...]:
        gpus = free.bit_count()
        if gpus < self._size:
            self[free] = ()
        else:
            self[free] = self._its.seat(free, self._size).speed, self._its.slowness, -gpus
        return self[free]


class Type:
    """Nodes of one machine. Keeps what it asked its device plugin."""

    def __init__(self, machine: Machine, kind: NodeKind, give: Give, fleet: Sequence[Machine]):
        self.n = machine.topology.n
        self.product = machine.product
        self.judge = machine.judge
        self._kind = kind
        self._give = give
        self._name = machine.name
        self._best = {size: best_gbps(fleet, size) for size in range(1, self.n + 1)}
        ratios = [self.judge.best(size) / self._best[size] for size in _COMPARED if size <= self.n]
        self.slowness = -(math.prod(ratios) ** (1 / len(ratios))) if ratios else 0.0
        """The greater, the slower are its best sets."""
        self._seats: dict[tuple[int, int], Seat] = {}
        self.orders = cache(partial(_Orders, self))
        """By size."""

    def seat(self, free: int, size: int) -> Seat:
        """What these free GPUs have for a pod of this size, which fits."""
        asked = free, size
        if asked not in self._seats:
            wish = gpu_request(size)
            chance = Random(f"{self._name} {free} {size}")  # noqa: S311  # it has to repeat
            sets = tuple(self._give(self._kind, free, wish, chance) for _ in range(_DRAWS))
            best = self._best[size]
            speed = fmean(self.judge.gbps(group) / best if best else 1.0 for group in sets)
            (likely, _), *_ = Counter(sets).most_common(1)
            self._seats[asked] = Seat(speed, likely, sets)
        return self._seats[asked]


class Pod(NamedTuple):
    """An arrival, in the order of time."""

    at: float
    lasts: float
    size: int


@dataclass(slots=True)
class State:
    """The fleet at a moment: free GPUs of each node, pods that will end, pods that wait."""

    types: Sequence[Type]
    free: list[int]
    ends: list[tuple[float, int, int]]
    """Heap of when, which node, which set."""
    waiting: list[Pod]
    orders: dict[int, list[_Orders]] = field(default_factory=dict)
    """By size, for each node; the same for all copies."""

    def fitting(self, size: int) -> list[int]:
        """Nodes with so many free GPUs."""
        return [node for node, free in enumerate(self.free) if free.bit_count() >= size]

    def copy(self) -> State:
        """The same moment, to try something on."""
        return State(
            self.types, self.free.copy(), self.ends.copy(), self.waiting.copy(), self.orders
        )

    def fastest(self, size: int) -> int | None:
        """The node that a pod of this size goes to if it takes the fastest set; None without room.

        It is called millions of times.
        """
        if size not in self.orders:
            self.orders[size] = [its.orders(size) for its in self.types]
        found, node = max(zip(map(getitem, self.orders[size], self.free), count(), strict=False))
        return node if found else None


Policy = Callable[["Day", Sequence[int], Pod], int]
"""Of these nodes, which all have room, the one that the pod goes to."""


class Day:
    """A fleet on which pods arrive, in the order of time, with one policy."""

    def __init__(
        self, types: Sequence[Type], pods: Sequence[Pod], policy: Policy, chance: Random
    ) -> None:
        self.state = State(types, [(1 << its.n) - 1 for its in types], [], [])
        self.pods = pods
        self.now = 0.0
        self.index = 0
        """Pods before this one have arrived."""
        self.chance = chance
        self._policy = policy
        self._landed: dict[Pod, Landed] = {}

    def play(self) -> list[Landed]:
        """All pods that were placed, in the order of their arrival."""
        state = self.state
        for pod in self.pods:
            self.index += 1
            self._until(pod.at)
            self.now = pod.at
            if not self._place(pod, state.fitting(pod.size)):
                state.waiting.append(pod)
        self._until(math.inf)
        return [self._landed[pod] for pod in self.pods if pod in self._landed]

    def _until(self, moment: float) -> None:
        state = self.state
        while state.ends and state.ends[0][0] <= moment:
            self.now, node, chosen = heapq.heappop(state.ends)
            state.free[node] |= chosen
            state.waiting = [pod for pod in state.waiting if not self._retry(pod, node)]

    def _retry(self, pod: Pod, node: int) -> bool:
        room = self.state.free[node].bit_count() >= pod.size
        return self._place(pod, [node] if room else [])

    def _place(self, pod: Pod, nodes: Sequence[int]) -> bool:
        if not nodes:
            return False
        node = self._policy(self, nodes, pod) if len(nodes) > 1 else nodes[0]
        its, state = self.state.types[node], self.state
        chosen = self.chance.choice(its.seat(state.free[node], pod.size).sets)
        self._landed[pod] = Landed(
            pod.size, self.now - pod.at, its.judge.gbps(chosen), lost=not chosen
        )
        if chosen:
            state.free[node] &= ~chosen
            heapq.heappush(state.ends, (self.now + pod.lasts, node, chosen))
        return True


def _best(day: Day, nodes: Iterable[int], key: Callable[[int], object]) -> int:
    """Any of the nodes with the greatest key, drawn by lot."""
    keys = [(key(node), node) for node in nodes]
    most = max(value for value, _ in keys)  # type: ignore[type-var]
    return day.chance.choice([node for value, node in keys if value == most])


def spread(day: Day, nodes: Sequence[int], pod: Pod) -> int:
    """The emptiest node: LeastAllocated."""
    del pod
    state = day.state
    return _best(day, nodes, lambda node: state.free[node].bit_count() * 100 // state.types[node].n)


def pack(day: Day, nodes: Sequence[int], pod: Pod) -> int:
    """The fullest node: MostAllocated on GPUs."""
    state = day.state

    def fullness(node: int) -> int:
        n = state.types[node].n
        return (n - state.free[node].bit_count() + pod.size) * 100 // n

    return _best(day, nodes, fullness)


def fastest(day: Day, nodes: Sequence[int], pod: Pod) -> int:
    """The fastest free set, of equals on the slowest machine, of equals on the fullest node."""
    return _best(day, nodes, lambda node: _speed_first(day.state, node, pod.size))


def _speed_first(state: State, node: int, size: int) -> tuple[float, ...]:
    return state.types[node].orders(size)[state.free[node]]


def look_ahead(day: Day, nodes: Sequence[int], pod: Pod) -> int:
    """The node after which the next hour is best, if all that come then take the fastest set.

    It knows when they arrive, what they request and how long they live. The hour is cut off where
    the pod itself ends. One node of each machine is tried that is in use and one that is not.
    """
    candidates = list(_candidates(day.state, nodes, pod.size))
    if len(candidates) == 1 or pod.size == 1:
        return fastest(day, nodes, pod)
    return max(candidates, key=lambda node: _future(day, node, pod))


def _candidates(state: State, nodes: Iterable[int], size: int) -> Iterator[int]:
    best: dict[tuple[str, bool], tuple[tuple[float, ...], int]] = {}
    for node in nodes:
        its = state.types[node]
        group = its.product, state.free[node] == (1 << its.n) - 1
        found = _speed_first(state, node, size), node
        best[group] = max(best.get(group, found), found)
    return (node for _, node in best.values())


def _future(day: Day, node: int, pod: Pod) -> float:
    """GPUs of the pods to come, each by the speed of its set, less what their waiting costs."""
    state, index, until = day.state.copy(), day.index, day.now + min(pod.lasts, _HOUR)
    value = _sit(state, node, pod, day.now)
    while True:
        at = day.pods[index].at if index < len(day.pods) else math.inf
        if state.ends and state.ends[0][0] <= min(at, until):
            now, node, chosen = heapq.heappop(state.ends)
            state.free[node] |= chosen
            still = []
            for each in state.waiting:
                if state.free[node].bit_count() >= each.size:
                    value += _sit(state, node, each, now)
                else:
                    still.append(each)
            state.waiting = still
        elif at <= until:
            value += _arrive(state, day.pods[index])
            index += 1
        else:
            return value - sum(
                each.size * (until - max(each.at, day.now)) * _WAIT_COSTS for each in state.waiting
            )


def _arrive(state: State, pod: Pod) -> float:
    node = state.fastest(pod.size)
    if node is not None:
        return _sit(state, node, pod, pod.at)
    state.waiting.append(pod)
    return 0.0


def _sit(state: State, node: int, pod: Pod, now: float) -> float:
    seat = state.types[node].seat(state.free[node], pod.size)
    state.free[node] &= ~seat.likely
    heapq.heappush(state.ends, (now + pod.lasts, node, seat.likely))
    speed = pod.size * seat.speed if pod.size > 1 else 0.0
    return speed - pod.size * (now - pod.at) * _WAIT_COSTS
