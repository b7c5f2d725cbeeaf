# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster and the pods that have room there, read once for the scheduler's filters."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from base import threads
from base.errors import BadInput, Unreadable
from kube.api import NODES, PODS, Api
from kube.api_errors import ApiError
from kube.objects.node import Node
from kube.objects.pod import Pod
from kube.present_objects import present_objects
from scheduler.filters import node_filters, preemption
from scheduler.filters.node_filters import FilteredNodes, NodeFilter
from scheduler.filters.preemption import PlacedPod

_CHECK_SECONDS: Final = 0.05
_AGAIN_SECONDS: Final = 1.0


class ClusterReading:
    """Reads all nodes and pods in a thread, until it is closed; keeps the few values that count."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, PlacedPod] = {}  # by UID
        self._is_read = False
        self._failed: BadInput | None = None
        self._closed = threading.Event()
        self.why_not = ""
        """Reason why not all was read yet; empty where only time is missing."""
        threads.started(self._read, "read-cluster")

    def close(self) -> None:
        """Try no more. A request under way runs out, or ends with the program."""
        self._closed.set()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    @property
    def is_whole(self) -> bool:
        """Whether all nodes and pods were read. Raises BadInput for a damaged one."""
        if self._failed is not None:
            raise self._failed
        return self._is_read

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

    def _read(self) -> None:
        """Read all; again after a while where the server is away or refuses."""
        while not (self._is_read or self._failed or self._closed.is_set()):
            kind = NODES.plural
            try:
                nodes = map(Node.from_object, present_objects(self._api, NODES))
                self._nodes = {node.name: node for node in nodes}
                kind = PODS.plural
                pods = map(Pod.from_object, present_objects(self._api, PODS))
                placed = ((pod.metadata.uid, preemption.placed_pod(pod)) for pod in pods)
                self._pods = {uid: pod for uid, pod in placed if pod is not None}
                self._is_read = True
            except ApiError as error:
                self.why_not = str(error)
                self._closed.wait(_AGAIN_SECONDS)
            except BadInput as error:
                self._failed = BadInput(f"{kind} of the cluster cannot be read: {error}")


def wait_until(is_there: Callable[[], bool], why_not: Callable[[], str], seconds: float) -> None:
    """Wait until the cluster was read. Raises Unreadable where that takes longer."""
    until = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > until:
            why = why_not() or "it has not sent all objects yet"
            raise Unreadable(f"the cluster was not read within {seconds:g} s: {why}")
        time.sleep(_CHECK_SECONDS)
