# SPDX-License-Identifier: Apache-2.0
"""Cache of all nodes, filled by the watches and read while requests wait.

The thread that reports a change works out what follows from it, so that a request need not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from api.state_annotation import pod_key
from kube.api import Object
from placement.score_table import PlacementOutcome
from scheduler.cluster.free_gpus import Bound, ReportedState
from scheduler.cluster.job_nodes import JobNodes
from scheduler.cluster.node_record import NodeRecord, TableLookup
from scheduler.cluster.node_views import NoView, View
from scheduler.cluster.predictions import PredictionCheck
from scheduler.pod_request import PodRequest


class CacheSource(StrEnum):
    """A kind of objects that fill the cache."""

    NODES = "nodes"
    LEASES = "leases"
    PODS = "pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedNode:
    """All that is known of a node, for people."""

    view: View
    gen: str | None
    """Its topology class."""
    state: ReportedState | None
    heard_seconds: float | None
    """Seconds since the last change of its Lease."""
    pods: tuple[Bound, ...]
    """Pods that are bound to the node, in the order of binding."""
    expected: Mapping[str, PlacementOutcome]
    """UID to prediction, of pods that the state does not name yet."""


class NodeCache:
    """See :class:`scheduler.cluster.node_views.Fleet`. Any thread may call anything."""

    def __init__(
        self,
        tables: TableLookup,
        *,
        landed: Callable[[PredictionCheck], None] = lambda _landing: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``landed`` is called with each pod that a state names after it was bound, but not with
        those that were there from the start; it must not raise.

        ``clock`` is monotonic, in seconds, the same as the ``now`` of :meth:`lease`.
        """
        self._tables = tables
        self._landed = landed
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeRecord] = {}
        self._views = _Views()
        self._fresh_until = float("inf")
        """Monotonic second until which no agent falls silent that is not silent in the views."""
        self._where: dict[str, str] = {}  # UID of a pod to its node
        self._jobs = JobNodes[str]()
        self._arrivals = 0
        self._synced: frozenset[CacheSource] = frozenset()

    # what requests read

    @property
    def synced(self) -> bool:
        """Whether all Nodes, Leases and pods were read once."""
        return len(self._synced) == len(CacheSource)

    def view(self, node: str) -> View:
        """The view of a node; a reason where it cannot be scored."""
        return self.views([node])[0]

    def views(self, nodes: Iterable[str]) -> list[View]:
        """See :class:`scheduler.cluster.node_views.Fleet`."""
        if self._clock() > self._fresh_until:
            self._look_for_silence()
        return list(map(self._views.__getitem__, nodes))

    def nodes_of(self, job: str) -> Iterable[str]:
        """See :class:`scheduler.cluster.node_views.Fleet`."""
        with self._lock:
            return self._jobs.of(job)

    def names(self) -> tuple[str, ...]:
        """All Nodes, in no order."""
        with self._lock:
            return tuple(name for name, node in self._nodes.items() if node.here)

    def detail(self, node: str) -> CachedNode | None:
        """All that is known of a node; None for one that no watch has reported."""
        view = self.view(node)
        with self._lock:
            record = self._nodes.get(node)
            if record is None:
                return None
            lease, state = record.lease, record.state
            return CachedNode(
                view=view,
                gen=record.gen or None,
                state=state if isinstance(state, ReportedState) else None,
                heard_seconds=None if lease is None else self._clock() - lease.changed_at,
                pods=tuple(sorted(record.bound.values(), key=lambda pod: pod.order)),
                expected=record.expected,
            )

    # what watches report

    def mark_synced(self, source: CacheSource) -> None:
        """All objects of a source were read."""
        with self._lock:
            self._synced |= {source}

    def node(
        self,
        name: str,
        *,
        topology: str | None,
        clique: str | None = None,
        product: str | None = None,
    ) -> None:
        """A Node is there, with this annotation, this NVLink clique and this model of GPUs."""
        with self._lock:
            self._node(name).appear(topology, clique, product)
            self._show(name)

    def node_gone(self, name: str) -> None:
        """A Node is there no more."""
        with self._lock:
            self._node(name).disappear()
            self._forget(name)

    def lease(self, node: str, lease: Object, now: float) -> None:
        """A node's agent has this Lease, seen at the monotonic second ``now``."""
        with self._lock:
            landings = self._node(node).renew(lease, now)
            self._show(node)
        # outside the lock: requests must not wait for what the callback does
        for landing in landings:
            self._landed(landing)

    def lease_gone(self, node: str) -> None:
        """A node's agent has no Lease."""
        with self._lock:
            self._node(node).fall_silent()
            self._forget(node)

    def pod(self, ask: PodRequest, node: str, *, bound_at: str = "", ended: bool = False) -> None:
        """A pod with GPUs is bound to a node; ``bound_at`` sorts as time does."""
        landing = None
        with self._lock:
            record = self._node(node)
            if ask.uid in (record.finished if ended else record.bound):
                return
            if self._where.get(ask.uid, node) != node:  # only in a store that was put back
                self._drop_pod(ask.uid)
            before = record.bound.get(ask.uid)
            self._where[ask.uid] = node
            self._arrivals += 1
            key = pod_key(ask.namespace, ask.name)
            pod = Bound(key=key, ask=ask, order=(bound_at, self._arrivals))
            if ended:
                record.finish(ask.uid, pod.key)
                if before:
                    self._jobs.count(before.ask.job, node, -1)
            else:
                landing = record.bind(pod, is_new=CacheSource.PODS in self._synced)
                self._jobs.count(ask.job, node, 1)
            self._show(node)
        if landing is not None:
            self._landed(landing)

    def pod_gone(self, uid: str) -> None:
        """Remove a pod that was deleted; one that was never reported is passed over."""
        with self._lock:
            self._drop_pod(uid)

    # how it is kept

    def _drop_pod(self, uid: str) -> None:
        node = self._where.pop(uid, None)
        if node is None:
            return
        record = self._node(node)
        if pod := record.bound.get(uid):
            self._jobs.count(pod.ask.job, node, -1)
        record.release(uid)
        self._forget(node)

    def _node(self, name: str) -> NodeRecord:
        record = self._nodes.get(name)
        if record is None:
            record = self._nodes[name] = NodeRecord(name, self._tables)
        return record

    def _forget(self, name: str) -> None:
        """Drop a node's record if it is empty; else show the node as it is now."""
        if self._nodes[name].is_empty:
            del self._nodes[name]
            self._views.pop(name, None)
        else:
            self._show(name)

    def _show(self, name: str) -> None:
        """Have requests see a node as it is now; the caller has the lock."""
        node = self._nodes[name]
        is_fresh = self._clock() <= node.fresh_until
        if is_fresh:
            self._fresh_until = min(self._fresh_until, node.fresh_until)
        is_shown = is_fresh or isinstance(node.view, NoView)
        self._views[name] = node.view if is_shown else NoView.STALE

    def _look_for_silence(self) -> None:
        """Show agents as silent that did not renew their Lease in time: a walk through all nodes,
        about once in the time that a Lease lasts."""
        with self._lock:
            self._fresh_until = float("inf")
            for name in self._nodes:
                self._show(name)


class _Views(dict[str, View]):
    """Views by node; a missing node has the view of an unknown one."""

    def __missing__(self, _: str) -> NoView:
        return NoView.UNKNOWN_NODE
