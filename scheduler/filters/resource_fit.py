# SPDX-License-Identifier: Apache-2.0
"""What a pod requests of a node's resources, and whether the node has as much left. Pure.

Source: k8s.io/component-helpers, resource/helpers.go (PodRequests); kube-scheduler,
pkg/scheduler/framework/plugins/noderesources/fit.go; both of 1.37. Of a pod that is being resized
in place the new size counts here, and the larger of both in the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from base.errors import BadInput
from scheduler.filters.filter_objects import (
    Amount,
    CandidateNode,
    ConstrainedPod,
    RequestedAmounts,
    RequestingContainer,
)
from scheduler.filters.quantities import CPU, HUGE_PAGES, MEMORY, PODS, STORAGE, counted, shown

_FIRST: Final = (CPU, MEMORY, STORAGE)
"""Checked before all others, in this order."""
Amounts = Mapping[str, int]
"""Resource to amount, as :func:`scheduler.filters.quantities.counted` counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """What pods that are bound to a node hold of it."""

    pods: int = 0
    requests: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """One resource of which a node has too little left."""

    reason: str
    """In the scheduler's words."""
    detail: str
    """What is asked, and what there is."""


def requests(pod: ConstrainedPod) -> Amounts:
    """What the pod requests as a whole, with overhead; limits count where there are no requests.

    Containers together, or the largest init container with the sidecars that began before it,
    if that is more. Amounts of the pod as a whole (1.34 and later) replace the sums of cpu, memory
    and huge pages. Raises BadInput that names the key of an amount that is none.
    """
    spec = pod.spec
    running = _sum(
        _requested(each, f"spec.containers[{at}]") for at, each in enumerate(spec.containers or ())
    )
    sidecars: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for at, each in enumerate(spec.init_containers or ()):
        its = _requested(each, f"spec.initContainers[{at}]")
        if each.is_sidecar:
            sidecars += Counter(its)
            running += Counter(its)
            its = sidecars
        else:
            its = _sum((its, sidecars))
        starting |= Counter(its)
    together = running | starting
    together.update(_of_pod(spec.resources, together) if spec.resources else {})
    return _sum((together, _read(spec.overhead, "spec.overhead")))


def load(pods: Iterable[Amounts]) -> NodeLoad:
    """Of pods with these requests."""
    listed = list(pods)
    return NodeLoad(pods=len(listed), requests=_sum(listed))


def shortages(wanted: Amounts, node: CandidateNode, held: NodeLoad) -> Iterator[Shortage]:
    """Every resource of which the node has less left than wanted, in the scheduler's order.

    A resource that the node does not name is one of which it has none.
    """
    place = f"Node {node.name}: status.allocatable"
    room = _read(node.status.allocatable, place)
    if held.pods + 1 > room.get(PODS, 0):
        yield Shortage(reason="Too many pods", detail=f"{held.pods} of {room.get(PODS, 0)}")
    for resource in (*_FIRST, *sorted(wanted.keys() - set(_FIRST))):
        amount = wanted.get(resource, 0)
        left = room.get(resource, 0) - held.requests.get(resource, 0)
        if 0 < amount > left:
            of = shown(resource, room.get(resource, 0))
            yield Shortage(
                reason=f"Insufficient {resource}",
                detail=f"{shown(resource, amount)} requested,"
                f" {shown(resource, max(left, 0))} of {of} left",
            )


def _requested(container: RequestingContainer, place: str) -> Amounts:
    """The API server makes requests of limits where there are no others."""
    its = container.resources or RequestedAmounts()
    limits = _read(its.limits, f"{place}.resources.limits")
    return {**limits, **_read(its.requests, f"{place}.resources.requests")}


def _of_pod(its: RequestedAmounts, together: Amounts) -> Amounts:
    """What replaces sums over containers; a limit does only where no container requests any."""
    limits = _read(its.limits, "spec.resources.limits")
    found = {**limits, **together, **_read(its.requests, "spec.resources.requests")}
    return {
        resource: amount - together.get(resource, 0)
        for resource, amount in found.items()
        if resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES)
    }


def _read(written: Mapping[str, Amount] | None, place: str) -> Amounts:
    found = {}
    for resource, amount in (written or {}).items():
        try:
            found[resource] = counted(resource, amount)
        except BadInput as error:
            raise BadInput(f"{place}.{resource}: {error}") from error
    return found


def _sum(amounts: Iterable[Amounts]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in amounts:
        total.update(each)
    return total
