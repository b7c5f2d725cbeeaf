# SPDX-License-Identifier: Apache-2.0
"""Whether a node has as much left of each resource as a pod requests. Pure.

Source: kube-scheduler, pkg/scheduler/framework/plugins/noderesources/fit.go, of 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kube.amounts.pod_requests import Amounts, read_amounts, sum_of
from kube.amounts.quantities import CPU, MEMORY, PODS, STORAGE, shown
from kube.objects.node import Node

_FIRST: Final = (CPU, MEMORY, STORAGE)
"""Checked before all others, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """Number and requests of the pods that are bound to a node."""

    pods: int = 0
    requests: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A resource of which a node has less left than a pod requests."""

    reason: str
    """Reason in the scheduler's words."""
    detail: str
    """The requested and the available amount."""


def node_load(pods: Iterable[Amounts]) -> NodeLoad:
    """Load of a node that has pods with these requests."""
    listed = list(pods)
    return NodeLoad(pods=len(listed), requests=sum_of(listed))


def shortages(requests: Amounts, node: Node, held: NodeLoad) -> Iterator[Shortage]:
    """Every resource of which the node has less left than requested, in the scheduler's order.

    A resource that the node does not name is one of which it has none.
    """
    place = f"Node {node.name}: status.allocatable"
    room = read_amounts(node.status.allocatable, place)
    if held.pods + 1 > room.get(PODS, 0):
        yield Shortage(reason="Too many pods", detail=f"{held.pods} of {room.get(PODS, 0)}")
    for resource in (*_FIRST, *sorted(requests.keys() - set(_FIRST))):
        amount = requests.get(resource, 0)
        remaining = room.get(resource, 0) - held.requests.get(resource, 0)
        if 0 < amount > remaining:
            total = shown(resource, room.get(resource, 0))
            yield Shortage(
                reason=f"Insufficient {resource}",
                detail=f"{shown(resource, amount)} requested,"
                f" {shown(resource, max(remaining, 0))} of {total} left",
            )
