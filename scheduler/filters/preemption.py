# SPDX-License-Identifier: Apache-2.0
"""Which pods kube-scheduler would delete to make room for a pod that no node can take. Pure.

PodDisruptionBudgets are not looked at: kube-scheduler first spares pods that they protect.
Source: kube-scheduler, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go and
pkg/scheduler/framework/preemption/preemption.go (SelectVictimsOnNode, pickOneNodeForPreemption) of
1.37, with the same meaning in 1.32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kube.amounts.pod_requests import Amounts, pod_requests
from kube.objects.node import Node
from kube.objects.pod import DEFAULT_SCHEDULER, Pod
from scheduler.filters.resource_fit import NodeLoad, node_load, shortages

_NEVER: Final = "Never"
_NOT_STARTED: Final = "~"
"""After every time in RFC 3339: a pod that has not started counts as started last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod that has room on a node: bound to it, or nominated for it."""

    name: str
    """``namespace/name``."""
    node: str
    requests: Amounts
    scheduler: str = DEFAULT_SCHEDULER
    """Name of the scheduler that places it."""
    priority: int = 0
    started_at: str = _NOT_STARTED
    """RFC 3339."""
    nominated: bool = False
    """The scheduler keeps room for it there; it is not bound yet."""
    preempted: bool = False
    """It was deleted to make room for another pod, and has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePreemption:
    """The pods that are deleted on one node, the one with the highest priority first."""

    node: str
    victims: tuple[PlacedPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionOutlook:
    """What the scheduler does for a pod that no node has room for now."""

    is_known: bool = True
    """False: the pod's priority is not known, and neither is anything that follows from it."""
    choices: tuple[NodePreemption, ...] = ()
    """The nodes of which it takes one, by name: equally good; none where it preempts nowhere."""
    ending: tuple[str, ...] = ()
    """Pods that it has deleted for this pod already, and that have not ended."""
    reserved: Mapping[str, tuple[str, ...]]
    """Nodes that would have room without the pods that are nominated for them, to these."""


NO_PREEMPTION: Final = PreemptionOutlook(reserved={})


def placed_pod(pod: Pod) -> PlacedPod | None:
    """The pod with its room; None for a pod that has ended, or has no node. Raises BadInput."""
    node = pod.spec.node_name or pod.status.nominated_node_name
    if pod.is_finished or not node:
        return None
    return PlacedPod(
        name=pod.metadata.full_name,
        node=node,
        requests=pod_requests(pod.spec),
        scheduler=scheduler_of(pod),
        priority=pod.spec.priority or 0,
        started_at=pod.status.start_time or _NOT_STARTED,
        nominated=not pod.is_bound,
        preempted=pod.is_preempted,
    )


def scheduler_of(pod: Pod) -> str:
    """Name of the scheduler that places the pod."""
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def load_for(pod: Pod, pods: Iterable[PlacedPod]) -> NodeLoad:
    """Load of a node with these pods, as this pod finds it.

    Of pods that are nominated for the node those count whose priority is not lower.
    """
    return node_load(other.requests for other in pods if _counts(pod, other))


def outlook(
    pod: Pod,
    nodes: Collection[Node],
    pods: Mapping[str, Sequence[PlacedPod]],
    *,
    has_candidate: bool,
) -> PreemptionOutlook:
    """What follows where these nodes have too little room, and pass all other filters.

    ``pods`` are those on each node, by its name, without this pod. ``has_candidate``: another node
    has room, so none is preempted. Raises BadInput.
    """
    requests = pod_requests(pod.spec)
    if pod.spec.priority is None:
        is_possible = not has_candidate and any(_fits(requests, node, ()) for node in nodes)
        return PreemptionOutlook(is_known=not is_possible, reserved={})
    ending = _ending(pod, pods)
    may_preempt = pod.spec.preemption_policy != _NEVER and not ending and not has_candidate
    looked_at = nodes if may_preempt else ()
    found = [_preemption(pod, requests, node, pods.get(node.name, ())) for node in looked_at]
    possible = [choice for choice in found if choice is not None]
    best = min(map(_rank, possible), default=None)
    return PreemptionOutlook(
        choices=tuple(choice for choice in possible if _rank(choice) == best),
        ending=ending,
        reserved=_reserved(requests, nodes, pods),
    )


def _counts(pod: Pod, other: PlacedPod) -> bool:
    return not other.nominated or pod.spec.priority is None or other.priority >= pod.spec.priority


def _ending(pod: Pod, pods: Mapping[str, Sequence[PlacedPod]]) -> tuple[str, ...]:
    """While one of these is there, the scheduler preempts no other pod for this one."""
    priority = pod.spec.priority or 0
    here = pods.get(pod.status.nominated_node_name, ())
    return tuple(other.name for other in here if other.preempted and other.priority < priority)


def _preemption(
    pod: Pod, requests: Amounts, node: Node, pods: Sequence[PlacedPod]
) -> NodePreemption | None:
    """The pods that have to go; None where the node has too little room without all of them.

    All with a lower priority go first; then each stays that leaves enough room, those with the
    highest priority and, among equals, those that started first being tried first.
    """
    priority = pod.spec.priority or 0
    counted = [other for other in pods if _counts(pod, other)]
    lower = [other for other in counted if other.priority < priority]  # so none is nominated
    staying = [other for other in counted if other not in lower]
    if not lower or not _fits(requests, node, staying):
        return None
    victims = []
    for other in sorted(lower, key=lambda each: (-each.priority, each.started_at, each.name)):
        if _fits(requests, node, [*staying, other]):
            staying.append(other)
        else:
            victims.append(other)
    return NodePreemption(node=node.name, victims=tuple(victims)) if victims else None


def _fits(requests: Amounts, node: Node, pods: Iterable[PlacedPod]) -> bool:
    return not any(shortages(requests, node, node_load(pod.requests for pod in pods)))


def _rank(choice: NodePreemption) -> tuple[int, int, int, tuple[int, ...]]:
    """Less is better: a victim's highest priority, then the sum, then how late they started."""
    priorities = [victim.priority for victim in choice.victims]
    highest = max(priorities)
    first = min(victim.started_at for victim in choice.victims if victim.priority == highest)
    total = sum(priority + (1 << 31) for priority in priorities)  # so that fewer victims are less
    return highest, total, len(priorities), tuple(-ord(letter) for letter in first)


def _reserved(
    requests: Amounts, nodes: Iterable[Node], pods: Mapping[str, Sequence[PlacedPod]]
) -> Mapping[str, tuple[str, ...]]:
    """Nodes that have room for the pod where nominated pods do not count, to these pods."""
    reserved = {}
    for node in nodes:
        here = pods.get(node.name, ())
        nominated = tuple(other.name for other in here if other.nominated)
        if nominated and _fits(requests, node, [other for other in here if not other.nominated]):
            reserved[node.name] = nominated
    return reserved
