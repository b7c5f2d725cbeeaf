# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster and the pods that have room there, read once for the scheduler's filters."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from base import threads
from base.errors import BadInput, Unreadable
from kube.api import NODES, PODS, Api
from kube.informer import (
    CacheSynced,
    Informer,
    ObjectGone,
    ObjectSeen,
    WatchConnected,
    WatchEvent,
    WatchLost,
)
from kube.objects.node import Node
from kube.objects.pod import Pod
from scheduler.filters import node_filters, preemption
from scheduler.filters.node_filters import FilteredNodes, NodeFilter
from scheduler.filters.preemption import PlacedPod

_CHECK_SECONDS: Final = 0.05
_END_SECONDS: Final = 5.0


class ClusterReading:
    """Watches nodes and pods until it is closed; keeps the few values that count."""

    def __init__(self, api: Api) -> None:
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, PlacedPod] = {}  # by UID
        self._synced: set[str] = set()
        self._down: dict[str, str] = {}
        self._failed: BadInput | None = None
        self._informers = [
            Informer(api, resource, partial(self._on_event, resource.plural, take))
            for resource, take in ((NODES, self._take_node), (PODS, self._take_pod))
        ]
        self._threads = [
            threads.started(informer.run, "read-cluster") for informer in self._informers
        ]

    def close(self) -> None:
        """End the watches; waits a little for their threads, which end with the program anyway."""
        for informer in self._informers:
            informer.close()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    @property
    def is_whole(self) -> bool:
        """Whether all nodes and pods were read. Raises BadInput for a damaged one."""
        if self._failed is not None:
            raise self._failed
        return len(self._synced) == len(self._informers)

    @property
    def why_not(self) -> str:
        """Reason why not all was read yet; empty where only time is missing."""
        return "; ".join(self._down.values())

    def pods_by_node(self, pod: Pod) -> Mapping[str, Sequence[PlacedPod]]:
        """Pods with room on a node, by its name, as the scheduler of ``pod`` knows them; that one
        is left out, and so are pods that another scheduler has nominated."""
        by_node: defaultdict[str, list[PlacedPod]] = defaultdict(list)
        for uid, other in self._pods.items():
            is_known = not other.nominated or other.scheduler == preemption.scheduler_of(pod)
            if uid != pod.metadata.uid and is_known:
                by_node[other.node].append(other)
        return by_node

    def filtered(self, pod: Pod) -> FilteredNodes:
        """The nodes as the filters divide them; the pod itself holds nothing of them."""
        by_node = self.pods_by_node(pod)
        loads = {node: preemption.load_for(pod, pods) for node, pods in by_node.items()}
        filtered = node_filters.filtered(pod, self._nodes.values(), loads)
        short = [
            self._nodes[left_out.node]
            for left_out in filtered.left_out
            if left_out.filter is NodeFilter.RESOURCES
        ]
        has_candidate = bool(filtered.candidates)
        outlook = preemption.outlook(pod, short, by_node, has_candidate=has_candidate)
        return replace(filtered, outlook=outlook)

    def _on_event(
        self, kind: str, take: Callable[[ObjectSeen | ObjectGone], None], event: WatchEvent
    ) -> None:
        match event:
            case ObjectSeen() | ObjectGone():
                try:
                    take(event)
                except BadInput as error:
                    self._failed = BadInput(f"{kind} of the cluster cannot be read: {error}")
            case CacheSynced():
                self._synced.add(kind)
            case WatchConnected():
                self._down.pop(kind, None)
            case WatchLost(error=error):
                self._down[kind] = str(error)

    def _take_node(self, event: ObjectSeen | ObjectGone) -> None:
        if isinstance(event, ObjectGone):
            self._nodes.pop(event.name, None)
        else:
            node = Node.from_object(event.object)
            self._nodes[node.name] = node

    def _take_pod(self, event: ObjectSeen | ObjectGone) -> None:
        if isinstance(event, ObjectGone):
            self._pods.pop(event.uid, None)
            return
        pod = Pod.from_object(event.object)
        placed = preemption.placed_pod(pod)
        if placed is None:
            self._pods.pop(pod.metadata.uid, None)
        else:
            self._pods[pod.metadata.uid] = placed


def wait_until(is_there: Callable[[], bool], why_not: Callable[[], str], seconds: float) -> None:
    """Wait until the cluster was read. Raises Unreadable where that takes longer."""
    until = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > until:
            why = why_not() or "it has not sent all objects yet"
            raise Unreadable(f"the cluster was not read within {seconds:g} s: {why}")
        time.sleep(_CHECK_SECONDS)
