# SPDX-License-Identifier: Apache-2.0
"""Pods that find no node any more after a rollout, and pods that find one then. Pure.

Pods are judged one by one, by kube-scheduler's filters for one node (name, selector, taints,
resources): where two could go to one free device, both are said to fit. Whether a node could ever
take a pod is judged as if it were empty, well and not cordoned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from forecast.gpu_requests import PodTemplate
from forecast.node_gpus import Offers
from kube.amounts.gpu_amounts import gpu_amounts, gpu_requests
from kube.amounts.pod_requests import Amounts, pod_requests
from kube.api import Object
from kube.objects.node import Node, NodeSpec, NodeStatus
from kube.objects.pod import Pod
from scheduler.filters import node_filters, resource_fit
from scheduler.filters.resource_fit import NodeLoad

_PART: Final = 16
"""Number of nodes that are filtered at once, where a single fitting one is enough."""
_PASSING: Final = "node.kubernetes.io/"
"""Prefix of taints that come and go with a cordon or with a condition of the node."""


class NodeSet:
    """Nodes that pods are filtered for; the result for equal pods is computed once."""

    def __init__(self, nodes: Iterable[Node], loads: Mapping[str, NodeLoad]) -> None:
        self._nodes = [(node, _offers(node)) for node in nodes]
        self._loads = loads
        self._fits: dict[bytes, bool] = {}
        self._places: dict[bytes, int] = {}

    def fits(self, pod: Pod) -> bool:
        """Whether a node can take the pod."""
        key = _key(pod)
        if key not in self._fits:
            able = self._nodes_with_devices(gpu_requests(pod.spec))
            parts = (able[start : start + _PART] for start in range(0, len(able), _PART))
            self._fits[key] = any(
                node_filters.filtered(pod, part, self._loads).candidates for part in parts
            )
        return self._fits[key]

    def places(self, pod: Pod) -> int:
        """Number of such pods for which the nodes have devices, if they are empty."""
        key = _key(pod)
        if key not in self._places:
            asks = gpu_requests(pod.spec)
            able = set(
                node_filters.filtered(pod, self._nodes_with_devices(asks), self._loads).candidates
            )
            self._places[key] = sum(
                min(offers[name] // count for name, count in asks.items())
                for node, offers in self._nodes
                if node.name in able
            )
        return self._places[key]

    def _nodes_with_devices(self, asks: Mapping[str, int]) -> list[Node]:
        """Nodes with enough devices, free or in use: a cheap check before the filters."""
        return [
            node
            for node, offers in self._nodes
            if all(offers.get(name, 0) >= count for name, count in asks.items())
        ]


@dataclass(frozen=True, kw_only=True)
class GpuNodes:
    """Nodes that offer GPUs, now and after the rollout, as the scheduler's filters take them."""

    now: tuple[Node, ...]
    """The nodes as they are now, cordons and taints included."""
    then: tuple[Node, ...]
    """The nodes with their resources after the rollout, in the order of ``now``."""
    gained: frozenset[str]
    """Resources of which a node offers more after the rollout."""
    lost: frozenset[str]
    """Resources of which a node offers less after the rollout."""

    @cached_property
    def empty_now(self) -> NodeSet:
        """Nodes of ``now`` without pods, cordons, and taints that come from a condition."""
        return NodeSet(map(_without_passing_taints, self.now), {})

    @cached_property
    def empty_then(self) -> NodeSet:
        """Nodes of ``then`` without pods, cordons, and taints that come from a condition."""
        return NodeSet(map(_without_passing_taints, self.then), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvedWorkload:
    """Workload whose pods would find fewer places than there are pods."""

    owner: str
    """``Kind namespace/name``."""
    asks: Mapping[str, int]
    """GPU resources that each of its pods requests."""
    pods: int
    places_now: int
    """Number of its pods that empty nodes have devices for, now."""
    places_then: int
    rests: bool
    """Whether the workload is suspended, or scaled to 0."""


class PodImpactKind(StrEnum):
    """Effect of a rollout on a pod."""

    FITS_THEN = "fits-then"
    """The pod is pending, and would find a free node."""
    NEVER_THEN = "never-then"
    """The pod is pending, and no node could take it any more, not even an empty node."""
    NO_WAY_BACK = "no-way-back"
    """The pod would have to leave, and no node could take it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodImpact:
    """A pod, and the effect of a rollout on it."""

    pod: str
    """``namespace/name``."""
    chance: PodImpactKind
    asks: Mapping[str, int]


def gpu_nodes(nodes: Iterable[Object], after: Mapping[str, Offers]) -> GpuNodes:
    """Nodes with GPUs, now and after a rollout.

    ``after``: resources then by Node name; a Node that is not in it keeps its own.
    """
    now, then = [], []
    gained, lost = set[str](), set[str]()
    for candidate in map(Node.from_object, nodes):
        offers = gpu_amounts(candidate.status.allocatable)
        offers_then = after.get(candidate.name, offers)
        if not offers and not offers_then:
            continue
        now.append(candidate)
        then.append(
            candidate if offers_then == offers else _with_offers(candidate, offers, offers_then)
        )
        for name in offers.keys() | offers_then.keys():
            if offers_then.get(name, 0) > offers.get(name, 0):
                gained.add(name)
            elif offers_then.get(name, 0) < offers.get(name, 0):
                lost.add(name)
    return GpuNodes(
        now=tuple(now), then=tuple(then), gained=frozenset(gained), lost=frozenset(lost)
    )


def starved_workloads(templates: Iterable[PodTemplate], nodes: GpuNodes) -> list[StarvedWorkload]:
    """Workloads with fewer places than pods after the rollout, and fewer places than now."""
    short_workloads = []
    for template in templates:
        if nodes.lost.isdisjoint(template.asks):
            continue
        then = nodes.empty_then.places(template.pod)
        if then >= template.count or (now := nodes.empty_now.places(template.pod)) <= then:
            continue
        short_workloads.append(
            StarvedWorkload(
                owner=template.owner,
                asks=template.asks,
                pods=template.count,
                places_now=now,
                places_then=then,
                rests=template.rests,
            )
        )
    return sorted(short_workloads, key=lambda workload: workload.owner)


def pod_impacts(
    pods: Iterable[Pod], nodes: GpuNodes, leaving: Mapping[str, Collection[str]]
) -> list[PodImpact]:
    """Pods on which a rollout has an effect.

    ``leaving``: Node to ``namespace/name`` of its pods that would have to leave.
    """
    leaving_names = {name for names in leaving.values() for name in names}
    amounts_by_node: dict[str, dict[str, Amounts]] = {}
    waiting: list[tuple[str, Pod]] = []
    leaving_pods: list[tuple[str, Pod]] = []
    for pod in pods:
        if pod.is_finished:
            continue
        name, spec = pod.metadata.full_name, pod.spec
        if pod.is_bound:
            amounts_by_node.setdefault(spec.node_name, {})[name] = pod_requests(spec)
        if not gpu_requests(spec):
            continue
        if not pod.is_bound and not spec.scheduling_gates:
            waiting.append((name, pod))
        elif name in leaving_names:
            # as its successor will be: bound to no node
            unbound_spec = msgspec.structs.replace(spec, node_name="")
            leaving_pods.append((name, msgspec.structs.replace(pod, spec=unbound_spec)))
    loads = {
        node: resource_fit.node_load(amounts_by_pod.values())
        for node, amounts_by_pod in amounts_by_node.items()
    }
    after = {
        node: _without(amounts_by_node.get(node, {}), names) for node, names in leaving.items()
    }
    now, then = NodeSet(nodes.now, loads), NodeSet(nodes.then, loads | after)
    impacts = [
        impact for pair in waiting if (impact := _pending(*pair, nodes, now, then)) is not None
    ]
    impacts += [
        PodImpact(pod=name, chance=PodImpactKind.NO_WAY_BACK, asks=gpu_requests(leaving_pod.spec))
        for name, leaving_pod in leaving_pods
        if not nodes.empty_then.fits(leaving_pod)
    ]
    return sorted(impacts, key=lambda impact: (impact.chance, impact.pod))


def _pending(name: str, pod: Pod, nodes: GpuNodes, now: NodeSet, then: NodeSet) -> PodImpact | None:
    asks = gpu_requests(pod.spec)
    if not nodes.gained.isdisjoint(asks) and then.fits(pod) and not now.fits(pod):
        return PodImpact(pod=name, chance=PodImpactKind.FITS_THEN, asks=asks)
    if nodes.lost.isdisjoint(asks) or nodes.empty_then.fits(pod) or not nodes.empty_now.fits(pod):
        return None
    return PodImpact(pod=name, chance=PodImpactKind.NEVER_THEN, asks=asks)


def _key(pod: Pod) -> bytes:
    """Key of a pod, equal for pods that the filters treat alike.

    Volumes are left out: the filters ignore them, and their names differ from pod to pod.
    """
    return msgspec.json.encode(msgspec.structs.replace(pod.spec, volumes=()))


def _offers(node: Node) -> Offers:
    return gpu_amounts(node.status.allocatable)


def _without(amounts_by_pod: Mapping[str, Amounts], names: Collection[str]) -> NodeLoad:
    return resource_fit.node_load(
        [amounts for name, amounts in amounts_by_pod.items() if name not in names]
    )


def _with_offers(node: Node, now: Offers, then: Offers) -> Node:
    other_resources = {
        name: amount for name, amount in (node.status.allocatable).items() if name not in now
    }
    return msgspec.structs.replace(
        node, status=NodeStatus(allocatable=other_resources | dict(then))
    )


def _without_passing_taints(node: Node) -> Node:
    """The node without the taints of a cordon or of a condition."""
    lasting_taints = tuple(
        taint for taint in node.spec.taints if not taint.key.startswith(_PASSING)
    )
    return msgspec.structs.replace(node, spec=NodeSpec(taints=lasting_taints))
