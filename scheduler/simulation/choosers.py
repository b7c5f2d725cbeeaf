# SPDX-License-Identifier: Apache-2.0
"""Schedulers to compare: the stock one's two ways, ours, and one that knows what will come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from api.gpu_request import GpuRequest
from placement.class_tables import ScoreTables
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.node_ranking import NodeRanker
from scheduler.placement_aims import ProductOrder
from scheduler.pod_request import PodRequest
from scheduler.simulation.fleet_replay import (
    Choose,
    Give,
    NodeKind,
    Placement,
    ReplayNode,
    ReplayPod,
)

_WEIGHT_PER_RANK = 100
"""Points of a rank for an extender of weight 10: kube-scheduler scales 0 to 10 to 0 to 100."""

_JOB = "job"


def spread(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:  # noqa: ARG001
    """The emptiest node: NodeResourcesFit as it is by default, LeastAllocated."""
    return Placement(node=_best(nodes, lambda node: node.free_count, chance))


def pack(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:
    """The fullest node: NodeResourcesFit with MostAllocated on GPUs."""
    size = pod.wish.gpus
    return Placement(node=_best(nodes, lambda node: _most_allocated(node, size), chance))


def ranked(tables: ScoreTables, order: ProductOrder = ProductOrder.FASTEST) -> Choose:
    """MostAllocated together with our ranks, as deploy/scheduler configures it."""

    def choose(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:
        job = _JOB if pod.job_nodes else None
        request = PodRequest(namespace="", name="", uid="", wish=pod.wish, job=job)
        names = [node.name for node in nodes]
        verdicts = NodeRanker(_Shown(nodes, pod), tables, order).judge(request, names)
        rank = {verdict.node: verdict.rank for verdict in verdicts}
        size = pod.wish.gpus

        def total(node: ReplayNode) -> int:
            return rank[node.name] * _WEIGHT_PER_RANK + _most_allocated(node, size)

        return Placement(node=_best(nodes, total, chance))

    return choose


def foreseeing(give: Give) -> Choose:
    """Knows what is free and what would be handed out; the same order of aims as ours.

    That is: a fast set, then one that costs others little. Jobs do not count.
    """

    def choose(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:
        drawn = {node: give(node.kind, node.free, pod.wish, chance) for node in nodes}

        def aims(node: ReplayNode) -> tuple[float, float]:
            table, chosen = node.kind.table, drawn[node]
            return table.gbps(chosen), -table.cost(node.free, chosen)

        node = _best(nodes, aims, chance)
        return Placement(node=node, chosen=drawn[node])

    return choose


def predicted(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """A device plugin that does what we predict, with its odds."""
    sets = kind.table.outcome(free, wish).sets
    (chosen,) = chance.choices(list(sets), [float(odds) for odds in sets.values()])
    return chosen


class _Shown:
    """The nodes of one call, and those of the pod's job, as a Fleet."""

    def __init__(self, nodes: Sequence[ReplayNode], pod: ReplayPod) -> None:
        self._nodes = {node.name: node for node in (*nodes, *pod.job_nodes)}
        self._job_nodes = tuple(node.name for node in pod.job_nodes)

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        return [self._nodes[node].view() for node in nodes]

    def nodes_of(self, job: str) -> Iterable[str]:  # noqa: ARG002  # the one of the pod
        return self._job_nodes


def _most_allocated(node: ReplayNode, size: int) -> int:
    """0 to 100, rounded down, with the pod on it. Source: kube-scheduler's NodeResourcesFit."""
    n = node.kind.table.n
    return (n - node.free_count + size) * 100 // n


def _best(
    nodes: Sequence[ReplayNode], key: Callable[[ReplayNode], Any], chance: Random
) -> ReplayNode:
    """Any of the nodes with the highest key, drawn by lot, as the scheduler does."""
    keys = [key(node) for node in nodes]
    best_key = max(keys)
    return chance.choice(
        [node for node, node_key in zip(nodes, keys, strict=True) if node_key == best_key]
    )
