# SPDX-License-Identifier: Apache-2.0
"""A scheduler to measure others by: it foresees what nodes hand out, and goes by the judge.

It has no speed, worth or rank of the product. Its aims, of which the first that differs decides:

1. The speed of the set by the judge, to the best of its product.
2. A node larger than others is left to pods that fit on no smaller one, if the pod is faster on a
   smaller one, or as fast and pods that would fit there leave less than 1.1 times what those hold.
3. A node that is wholly free is left so for a pod that needs all of it.
4. The product of whose GPUs pods of that size hold the least part; where all are as fast for them,
   as for one GPU, the slowest one.
5. What is left free of best sets, by the judge, as far as the next pods may want them.
6. The fullest node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from random import Random
from typing import Final

from api.gpu_request import GpuRequest
from scheduler.simulation.fleet_replay import Give, Placement, ReplayNode
from tests.bench.placement_fleets import Machine, best_gbps
from tests.judge.bandwidth import Judge

_WANTED: Final[Mapping[int, float]] = {2: 0.3, 4: 0.3, 8: 0.4}
"""How much of a machine pods of these sizes want, about as in the workloads."""
_LEFT_TO_LARGE: Final = 1.1
"""Found by trying 1 to 3: less, and large pods wait for half an hour; more, and others are slow."""
_COMES_FREE: Final = 0.25
"""Odds that a GPU in use is free when the next pods come."""


class Reference:
    """The scheduler for one run."""

    def __init__(self, fleet: Sequence[Machine], give: Give) -> None:
        self._give = give
        self._machines = {each.name: each for each in fleet}
        self._gpus = Counter[str]()
        self._products: dict[str, list[Machine]] = {}
        for each in fleet:
            self._gpus[each.product] += each.topology.n
        for its in self._machines.values():
            self._products.setdefault(its.product, []).append(its)
        self._best = cache(lambda product, size: best_gbps(self._products[product], size))
        self._slowness = _slowness(self._products)
        self._small = min(each.topology.n for each in fleet)
        """GPUs of the smallest nodes."""
        self._large = [each for each in fleet if each.topology.n > self._small]
        self._others = [each for each in fleet if each.topology.n == self._small]
        self._nodes: dict[str, ReplayNode] = {}

    def choose(self, nodes: Sequence[ReplayNode], wish: GpuRequest, chance: Random) -> Placement:
        """The best of these nodes, and the set that it hands out there."""
        self._nodes.update((node.name, node) for node in nodes)
        size = wish.gpus
        turn = self._turns(size) if len(nodes) > 1 else self._slowness
        leaves_large = self._leaves_large(size)
        seen = [(node, self._give(node.kind, node.free, wish, chance)) for node in nodes]
        aims = [self._aims(node, chosen, size, turn, leaves_large) for node, chosen in seen]
        most = max(aims)
        node, chosen = chance.choice(
            [each for each, its in zip(seen, aims, strict=True) if its == most]
        )
        return Placement(node=node, chosen=chosen)

    def _aims(
        self,
        node: ReplayNode,
        chosen: int,
        size: int,
        turn: Mapping[str, float],
        leaves_large: bool,
    ) -> tuple[float, ...]:
        its = self._machines[node.kind.name]
        best, n = self._best(its.product, size), its.topology.n
        value = worth(its.name, its.judge, n)
        return (
            its.judge.gbps(chosen) / best if best else 1.0,
            not (leaves_large and n > self._small),
            not (node.free_count == n and size < n),
            -turn[its.product],
            value(node.free & ~chosen) - value(node.free),
            -node.free_count,
        )

    def _leaves_large(self, size: int) -> bool:
        """Whether a pod of this size leaves nodes larger than others to larger pods."""
        if size > self._small or not self._large:
            return False
        at_large, at_small = best_gbps(self._large, size), best_gbps(self._others, size)
        if at_large != at_small:
            return at_large < at_small
        large = {each.name for each in self._large}
        nodes = (node for node in self._nodes.values() if node.kind.name in large)
        held = Counter[bool]()
        for mask in (mask for node in nodes for mask in node.sets().values()):
            held[mask.bit_count() > self._small] += mask.bit_count()
        gpus = sum(each.topology.n for each in self._large)
        return held[False] + size > gpus - _LEFT_TO_LARGE * held[True]

    def _turns(self, size: int) -> Mapping[str, float]:
        """The lower a product's, the sooner it takes a pod of this size."""
        fitting = [its for its in self._products.values() if its[0].topology.n >= size]
        if size == 1 or len({self._best(its[0].product, size) for its in fitting}) == 1:
            return self._slowness
        held = Counter[str]()
        for node in self._nodes.values():
            for mask in node.sets().values():
                if mask.bit_count() == size:
                    held[self._machines[node.kind.name].product] += size
        return {name: held[name] / gpus for name, gpus in self._gpus.items()}


def _slowness(products: Mapping[str, Sequence[Machine]]) -> Mapping[str, float]:
    """How fast products are where several GPUs matter, 0 to 1: the mean, by ratios, over the sizes
    that a node has room for."""
    fleet = tuple(each for its in products.values() for each in its)
    found = {}
    for name, its in products.items():
        sizes = [size for size in _WANTED if size <= its[0].topology.n]
        ratios = [best_gbps(its, size) / best_gbps(fleet, size) for size in sizes]
        found[name] = math.prod(ratios) ** (1 / len(ratios))
    return found


_worths: dict[str, _Worth] = {}


def worth(name: str, judge: Judge, n: int) -> _Worth:
    """The worth of free GPUs of a machine, kept from run to run."""
    if name not in _worths:
        _worths[name] = _Worth(judge, n)
    return _worths[name]


class _Worth:
    """GPUs in best sets that the next pods are likely to find, where some in use come free."""

    def __init__(self, judge: Judge, n: int) -> None:
        self._n = n
        self._whole = _WANTED[max(_WANTED)] * n
        self._best = {size: _best_sets(judge, n, size) for size in _WANTED if size < n}
        self._most = cache(self._most_sets)
        self._now = cache(self._at_once)
        self._expected = cache(self._after_some_came_free)

    def __call__(self, free: int) -> float:
        return self._expected(free)

    def _after_some_came_free(self, free: int) -> float:
        used = [place for place in range(self._n) if not free >> place & 1]
        found = self._whole * _COMES_FREE ** len(used)
        for count in range(len(used) + 1):
            odds = _COMES_FREE**count * (1 - _COMES_FREE) ** (len(used) - count)
            for back in combinations(used, count):
                found += odds * self._now(free | sum(1 << place for place in back))
        return found

    def _at_once(self, free: int) -> float:
        return sum(_WANTED[size] * size * self._most(free, size) for size in self._best)

    def _most_sets(self, free: int, size: int) -> int:
        """The most best sets that share no GPU."""
        fitting = [group for group in self._best[size] if not group & ~free]
        return max((1 + self._most(free & ~group, size) for group in fitting), default=0)


def _best_sets(judge: Judge, n: int, size: int) -> tuple[int, ...]:
    """Those of a size that are as fast as any; none where all are, for then none is worth more."""
    groups = [group for group in range(1 << n) if group.bit_count() == size]
    best = tuple(group for group in groups if judge.gbps(group) == judge.best(size))
    return () if len(best) == len(groups) else best
