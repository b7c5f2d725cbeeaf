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

from cli.mig.preview.gpu_requests import PodTemplate, asks_gpus, constrained, gpu_asks
from cli.mig.preview.node_gpus import Offers, gpu_offers
from kube.api import Object
from scheduler.filters import node_filters, resource_fit
from scheduler.filters.filter_objects import (
    CandidateNode,
    CandidateSpec,
    CandidateStatus,
    ConstrainedPod,
)
from scheduler.filters.quantities import counted
from scheduler.filters.resource_fit import Amounts, NodeLoad

_PASSING: Final = "node.kubernetes.io/"
"""Of taints that come with a cordon and with a node's condition, and go with it."""


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
    def lasting(self) -> tuple[CandidateNode, ...]:
        """Those of ``then`` without what passes: cordons, and taints of the node's condition."""
        return tuple(map(_lasting, self.then))

    @cached_property
    def lasting_now(self) -> tuple[CandidateNode, ...]:
        """The same of ``now``."""
        return tuple(map(_lasting, self.now))


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
        now, then = places(one.pod, nodes.lasting_now), places(one.pod, nodes.lasting)
        if then < now and then < one.count:
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


def places(pod: ConstrainedPod, nodes: Sequence[CandidateNode]) -> int:
    """For how many such pods empty nodes have devices."""
    asks = gpu_asks(pod)
    able = set(node_filters.filtered(pod, nodes, {}).candidates)
    return sum(
        min(_amount(node, name) // count for name, count in asks.items())
        for node in nodes
        if node.name in able
    )


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
            held.setdefault(node, {})[name] = resource_fit.requests(seen)
        if not asks_gpus(pod.get("spec") or {}):
            continue
        if not node and not seen.spec.scheduling_gates:
            waiting.append((name, seen))
        elif name in gone:
            free = msgspec.structs.replace(seen.spec, node_name=None)
            going.append((name, msgspec.structs.replace(seen, spec=free)))
    now = {node: resource_fit.load(each.values()) for node, each in held.items()}
    then = now | {node: _without(held.get(node, {}), names) for node, names in leaving.items()}
    found = [each for pair in waiting if (each := _pending(*pair, nodes, now, then)) is not None]
    found += [
        PodOutlook(pod=name, chance=PodChance.NO_WAY_BACK, asks=gpu_asks(seen))
        for name, seen in going
        if not _fits(seen, nodes.lasting, {})
    ]
    return sorted(found, key=lambda one: (one.chance, one.pod))


def _pending(
    name: str,
    pod: ConstrainedPod,
    nodes: GpuNodes,
    now: Mapping[str, NodeLoad],
    then: Mapping[str, NodeLoad],
) -> PodOutlook | None:
    asks = gpu_asks(pod)
    if not nodes.gained.isdisjoint(asks) or not nodes.lost.isdisjoint(asks):
        if _fits(pod, nodes.then, then):
            if not _fits(pod, nodes.now, now):
                return PodOutlook(pod=name, chance=PodChance.FITS_THEN, asks=asks)
        elif _fits(pod, nodes.lasting_now, {}) and not _fits(pod, nodes.lasting, {}):
            return PodOutlook(pod=name, chance=PodChance.NEVER_THEN, asks=asks)
    return None


def _amount(node: CandidateNode, resource: str) -> int:
    return counted(resource, (node.status.allocatable or {}).get(resource, 0))


def _fits(
    pod: ConstrainedPod, nodes: Sequence[CandidateNode], loads: Mapping[str, NodeLoad]
) -> bool:
    return bool(node_filters.filtered(pod, nodes, loads).candidates)


def _without(held: Mapping[str, Amounts], names: Collection[str]) -> NodeLoad:
    return resource_fit.load([amounts for name, amounts in held.items() if name not in names])


def _offering(node: CandidateNode, now: Offers, then: Offers) -> CandidateNode:
    kept = {name: it for name, it in (node.status.allocatable or {}).items() if name not in now}
    return msgspec.structs.replace(node, status=CandidateStatus(allocatable=kept | dict(then)))


def _lasting(node: CandidateNode) -> CandidateNode:
    """The node as it is when it is well, and no one has cordoned it."""
    kept = [it for it in node.spec.taints or () if not it.key.startswith(_PASSING)]
    return msgspec.structs.replace(node, spec=CandidateSpec(taints=kept))
