# SPDX-License-Identifier: Apache-2.0
"""The cluster as watches and answers show it: Nodes, pods with GPUs, slots. Thread-safe.

Only values are kept: some 32 MiB for 5,000 nodes with a request and 8 pods each.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import replace
from enum import StrEnum

from fleet import gpu_pod, mig_node, slot_lease
from fleet.gpu_pod import GpuPod, GpuPodSelector
from fleet.mig_node import MigNode
from fleet.rollout_memory import RolloutMemory
from fleet.slot_gate import FleetView
from fleet.slot_lease import SlotLease
from kube.api import Object
from kube.versions import KnownVersions

_PodName = tuple[str, str]


class FleetSource(StrEnum):
    """Kinds of objects that are watched."""

    NODES = "nodes"
    PODS = "pods"
    SLOTS = "leases"


class FleetCache:
    """Takes objects as they come. An older version of one that it has is passed over."""

    def __init__(self, terms: GpuPodSelector) -> None:
        self.terms = terms
        self._lock = threading.Lock()
        self._nodes: dict[str, MigNode] = {}
        self._counting: set[str] = set()
        self._pods: dict[_PodName, GpuPod] = {}
        self._by_node: defaultdict[str, set[_PodName]] = defaultdict(set)
        self._slots: dict[int, SlotLease] = {}
        self._synced: set[FleetSource] = set()
        self._node_versions: KnownVersions[str] = KnownVersions()
        self._slot_versions: KnownVersions[int] = KnownVersions()

    @property
    def is_synced(self) -> bool:
        """Whether all that existed at the start has been seen: what is not here is not there."""
        return len(self._synced) == len(FleetSource)

    def mark_synced(self, source: FleetSource) -> None:
        """All objects of this source have been taken."""
        self._synced.add(source)

    def begin_anew(self, source: FleetSource) -> None:
        """Take the next version of each object of this source: its watch begins anew."""
        with self._lock:
            if source is FleetSource.NODES:
                self._node_versions.forget()
            elif source is FleetSource.SLOTS:
                self._slot_versions.forget()

    def node(self, seen: Object) -> bool:
        """Take a Node, from a watch or from an answer; whether it may change what is to be done.

        A kubelet's heartbeat does not: it changes the resourceVersion alone.
        """
        node = mig_node.node_of(seen, self.terms.resources)
        with self._lock:
            before = self._nodes.get(node.name)
            if not self._node_versions.take(node.name, seen["metadata"]):
                return False
            self._nodes[node.name] = node
            if node.counts:
                self._counting.add(node.name)
            else:
                self._counting.discard(node.name)
        counted = node.counts or (before is not None and before.counts)
        return counted and (before is None or replace(before, version=node.version) != node)

    def node_gone(self, name: str) -> None:
        """There is no Node of this name."""
        with self._lock:
            self._nodes.pop(name, None)
            self._node_versions.drop(name)
            self._counting.discard(name)

    def has_node(self, name: str) -> bool:
        """Whether there is a Node of this name."""
        with self._lock:
            return name in self._nodes

    def pod(self, seen: Object) -> bool:
        """Take a pod that is bound to a node; whether it is other than before."""
        pod = gpu_pod.gpu_pod_of(seen, self.terms)
        name = (pod.namespace, pod.name)
        with self._lock:
            before = self._drop_pod(name)
            if pod.node and pod.counts:
                self._pods[name] = pod
                self._by_node[pod.node].add(name)
                return pod != before
            return before is not None

    def pod_gone(self, namespace: str, name: str) -> None:
        """There is no pod of this name."""
        with self._lock:
            self._drop_pod((namespace, name))

    def slot(self, seen: Object) -> None:
        """Take a slot's Lease, from a watch or from an answer."""
        slot = slot_lease.slot_of(seen)
        with self._lock:
            if self._slot_versions.take(slot.number, seen["metadata"]):
                self._slots[slot.number] = slot

    def slot_gone(self, number: int) -> None:
        """There is no Lease of this slot."""
        with self._lock:
            self._slots.pop(number, None)
            self._slot_versions.drop(number)

    def view(self, memory: RolloutMemory, *, is_paused: bool) -> FleetView:
        """The cluster now, with the nodes that MIG changes concern or that a record names."""
        with self._lock:
            recorded = {slot.record.node for slot in self._slots.values() if slot.record}
            names = self._counting | (recorded & self._nodes.keys())
            return FleetView(
                nodes={name: self._nodes[name] for name in names},
                pods={
                    name: tuple(
                        self._pods[pod_name] for pod_name in sorted(self._by_node.get(name, ()))
                    )
                    for name in names
                },
                slots=tuple(self._slots[number] for number in sorted(self._slots)),
                memory=memory,
                is_paused=is_paused,
            )

    def _drop_pod(self, name: _PodName) -> GpuPod | None:
        before = self._pods.pop(name, None)
        if before is not None:
            of_node = self._by_node[before.node]
            of_node.discard(name)
            if not of_node:
                del self._by_node[before.node]
        return before
