# SPDX-License-Identifier: Apache-2.0
"""Who finds no node any more after a rollout, and who finds one then. Pure.

Pods are judged one by one, by kube-scheduler's filters for one node (name, selector, taints,
resources): where two could go to one free device, both are said to fit. Whether a node could ever
take a pod is judged as if it were empty, well and not cordoned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from cli.mig.preview.gpu_requests import PodTemplate, constrained, gpu_asks
from cli.mig.preview.node_gpus import Offers, gpu_offers
from kube.amounts.gpu_amounts import asks_gpus, gpu_amounts
from kube.amounts.pod_requests import Amounts, pod_requests
from kube.api import Object
from scheduler.filters import node_filters, resource_fit
from scheduler.filters.filter_objects import (
    CandidateNode,
    CandidateSpec,
    CandidateStatus,
    ConstrainedPod,
)
from scheduler.filters.resource_fit import NodeLoad

_PART: Final = 16
"""Nodes that are filtered at once, where one that fits is enough."""
_PASSING: Final = "node.kubernetes.io/"
"""Of taints that come with a cordon and with a node's condition, and go with it."""


class NodeSet:
    """Nodes that pods are judged against; equal pods are judged once."""

    def __init__(self, nodes: Iterable[CandidateNode], loads: Mapping[str, NodeLoad]) -> None:
        self._nodes = [(node, _offers(node)) for node in nodes]
        self._loads = loads
        self._fits: dict[bytes, bool] = {}
        self._places: dict[bytes, int] = {}

    def fits(self, pod: ConstrainedPod) -> bool:
        """Whether a node can take the pod."""
        key = _key(pod)
        if key not in self._fits:
            able = self._able(gpu_asks(pod))
            parts = (able[at : at + _PART] for at in range(0, len(able), _PART))
            self._fits[key] = any(
                node_filters.filtered(pod, part, self._loads).candidates for part in parts
            )
        return self._fits[key]

    def places(self, pod: ConstrainedPod) -> int:
        """For how many such pods the nodes have devices, if they are empty."""
        key = _key(pod)
        if key not in self._places:
            asks = gpu_asks(pod)
            able = set(node_filters.filtered(pod, self._able(asks), self._loads).candidates)
            self._places[key] = sum(
                min(offers[name] // count for name, count in asks.items())
                for node, offers in self._nodes
                if node.name in able
            )
        return self._places[key]

    def _able(self, asks: Mapping[str, int]) -> list[CandidateNode]:
        """Nodes with enough devices, whoever has them: a cheap look before the filters."""
        return [
            node
            for node, offers in self._nodes
            if all(offers.get(name, 0) >= count for name, count in asks.items())
        ]


@dataclass(frozen=True, kw_only=True)
class GpuNodes:
    """The nodes that offer GPUs, now and then, as the scheduler's filters take them."""

    now: tuple[CandidateNode, ...]
    """As they are, cordons and taints included."""
    then: tuple[CandidateNode, ...]
    """The same nodes, in the same order."""
    gained: frozenset[str]
    """Resources of which the cluster, or a node, offers more then."""
    lost: frozenset[str]
    """Of which there is less."""

    @cached_property
    def empty_now(self) -> NodeSet:
        """Those of ``now`` empty, and without what passes: cordons, taints of their condition."""
        return NodeSet(map(_lasting, self.now), {})

    @cached_property
    def empty_then(self) -> NodeSet:
        """The same of ``then``."""
        return NodeSet(map(_lasting, self.then), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvedWorkload:
    """What makes pods that would find fewer places than it wants."""

    owner: str
    """``Kind namespace/name``."""
    asks: Mapping[str, int]
    """Of each of its pods."""
    pods: int
    places_now: int
    """On empty nodes."""
    places_then: int
    rests: bool
    """It is suspended, or scaled to none."""


class PodChance(StrEnum):
    """What a rollout changes for one pod."""

    FITS_THEN = "fits-then"
    """It is pending, and would find a free node."""
    NEVER_THEN = "never-then"
    """It is pending, and no node could take it any more, not even an empty one."""
    NO_WAY_BACK = "no-way-back"
    """It would have to leave, and no node could take it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutlook:
    """A pod for which something changes."""

    pod: str
    """``namespace/name``."""
    chance: PodChance
    asks: Mapping[str, int]


def gpu_nodes(nodes: Iterable[Object], after: Mapping[str, Offers]) -> GpuNodes:
    """``after``: what Nodes offer then, by name; others offer what they do now."""
    now, then = [], []
    gained, lost = set[str](), set[str]()
    for node in nodes:
        offers = gpu_offers(node)
        wanted = after.get(node["metadata"]["name"], offers)
        if not offers and not wanted:
            continue
        seen = msgspec.convert(node, CandidateNode)
        now.append(seen)
        then.append(seen if wanted == offers else _offering(seen, offers, wanted))
        for name in offers.keys() | wanted.keys():
            if wanted.get(name, 0) > offers.get(name, 0):
                gained.add(name)
            elif wanted.get(name, 0) < offers.get(name, 0):
                lost.add(name)
    return GpuNodes(
        now=tuple(now), then=tuple(then), gained=frozenset(gained), lost=frozenset(lost)
    )


def starved(found: Iterable[PodTemplate], nodes: GpuNodes) -> list[StarvedWorkload]:
    """Those for whose pods there are fewer places than pods, and fewer than now."""
    short = []
    for one in found:
        if nodes.lost.isdisjoint(one.asks):
            continue
        then = nodes.empty_then.places(one.pod)
        if then >= one.count or (now := nodes.empty_now.places(one.pod)) <= then:
            continue
        short.append(
            StarvedWorkload(
                owner=one.owner,
                asks=one.asks,
                pods=one.count,
                places_now=now,
                places_then=then,
                rests=one.rests,
            )
        )
    return sorted(short, key=lambda one: one.owner)


def outlooks(
    pods: Sequence[Object], nodes: GpuNodes, leaving: Mapping[str, Collection[str]]
) -> list[PodOutlook]:
    """Pods for which something changes; ``leaving``: Node to ``namespace/name`` of those that
    would have to leave."""
    gone = {name for names in leaving.values() for name in names}
    held: dict[str, dict[str, Amounts]] = {}
    waiting: list[tuple[str, ConstrainedPod]] = []
    going: list[tuple[str, ConstrainedPod]] = []
    for pod in pods:
        seen = constrained(pod)
        if seen is None or seen.has_ended:
            continue
        name = f"{seen.metadata.namespace}/{seen.metadata.name}"
        node = seen.spec.node_name
        if node:
            held.setdefault(node, {})[name] = pod_requests(seen.spec)
        if not asks_gpus(pod.get("spec") or {}):
            continue
        if not node and not seen.spec.scheduling_gates:
            waiting.append((name, seen))
        elif name in gone:
            free = msgspec.structs.replace(seen.spec, node_name=None)
            going.append((name, msgspec.structs.replace(seen, spec=free)))
    loads = {node: resource_fit.load(each.values()) for node, each in held.items()}
    after = {node: _without(held.get(node, {}), names) for node, names in leaving.items()}
    now, then = NodeSet(nodes.now, loads), NodeSet(nodes.then, loads | after)
    found = [each for pair in waiting if (each := _pending(*pair, nodes, now, then)) is not None]
    found += [
        PodOutlook(pod=name, chance=PodChance.NO_WAY_BACK, asks=gpu_asks(seen))
        for name, seen in going
        if not nodes.empty_then.fits(seen)
    ]
    return sorted(found, key=lambda one: (one.chance, one.pod))


def _pending(
    name: str, pod: ConstrainedPod, nodes: GpuNodes, now: NodeSet, then: NodeSet
) -> PodOutlook | None:
    asks = gpu_asks(pod)
    if not nodes.gained.isdisjoint(asks) and then.fits(pod) and not now.fits(pod):
        return PodOutlook(pod=name, chance=PodChance.FITS_THEN, asks=asks)
    if nodes.lost.isdisjoint(asks) or nodes.empty_then.fits(pod) or not nodes.empty_now.fits(pod):
        return None
    return PodOutlook(pod=name, chance=PodChance.NEVER_THEN, asks=asks)


def _key(pod: ConstrainedPod) -> bytes:
    """Equal where the filters say the same; volumes, which they do not look at, have own names."""
    return msgspec.json.encode(msgspec.structs.replace(pod.spec, volumes=None))


def _offers(node: CandidateNode) -> Offers:
    return gpu_amounts(node.status.allocatable or {})


def _without(held: Mapping[str, Amounts], names: Collection[str]) -> NodeLoad:
    return resource_fit.load([amounts for name, amounts in held.items() if name not in names])


def _offering(node: CandidateNode, now: Offers, then: Offers) -> CandidateNode:
    kept = {name: it for name, it in (node.status.allocatable or {}).items() if name not in now}
    return msgspec.structs.replace(node, status=CandidateStatus(allocatable=kept | dict(then)))


def _lasting(node: CandidateNode) -> CandidateNode:
    """The node as it is when it is well, and no one has cordoned it."""
    kept = [it for it in node.spec.taints or () if not it.key.startswith(_PASSING)]
    return msgspec.structs.replace(node, spec=CandidateSpec(taints=kept))
