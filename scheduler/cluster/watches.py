# SPDX-License-Identifier: Apache-2.0
"""Nodes, the agents' Leases and pods with GPUs, watched for the cache."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from api import keys, names
from base import threads
from base.defects import Defects
from kube.api import LEASES, NODES, PODS, Api, Object
from kube.api_errors import ApiError, Forbidden
from kube.follower import (
    CacheSynced,
    Follower,
    ObjectGone,
    ObjectSeen,
    WatchConnected,
    WatchEvent,
    WatchLost,
)
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.pod_objects import Pod, Rules, ask

log = logging.getLogger(__name__)

_BOUND = {"spec.nodeName!": ""}
_END_SECONDS = 5.0
_REST_SECONDS = 0.01
"""While news of pods gather. Where hundreds are bound a second, waking up for each one keeps the
requests between them waiting for longer than what there is to do."""
_LEASE_PREFIX = names.lease("")


class Watches:
    """Three watches, each in a thread of its own. Of all that comes only values are kept.

    Nodes come as metadata alone. Pods come bound ones only, and those without GPUs are passed
    over before anything is kept of them.
    """

    def __init__(
        self,
        api: Api,
        cache: NodeCache,
        *,
        namespace: str = names.NAMESPACE,
        rules: Rules | None = None,
        defects: Defects | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``namespace``: where the agents' Leases are. ``clock`` is the cache's; ``uniform``
        spreads the watches of replicas.
        """
        self._cache = cache
        self._rules = rules or Rules()
        self._clock = clock
        self._sleep = sleep
        self._rested_at = clock()
        self._down: dict[CacheSource, str] = {}
        self._followers = {
            CacheSource.NODES: Follower(
                api,
                NODES,
                self.take_node,
                metadata_only=True,
                uniform=uniform,
                defects=defects,
            ),
            CacheSource.LEASES: Follower(
                api,
                LEASES,
                self.take_lease,
                namespace=namespace,
                keep=_is_agents,
                uniform=uniform,
                defects=defects,
            ),
            CacheSource.PODS: Follower(
                api,
                PODS,
                self.take_pod,
                fields=_BOUND,
                keep=self._has_gpus,
                uniform=uniform,
                defects=defects,
            ),
        }
        self._threads: list[threading.Thread] = []

    @property
    def down(self) -> Mapping[CacheSource, str]:
        """Sources whose watch is lost now, each with its reason; empty while all are connected."""
        return dict(self._down)

    def start(self) -> None:
        """Open the watches: the cache follows the cluster from now on."""
        for source, follower in self._followers.items():
            self._threads.append(threads.started(follower.run, f"watch-{source}"))

    def close(self) -> None:
        """Close the watches; waits a little for the threads, which end with the program anyway."""
        for follower in self._followers.values():
            follower.close()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    def take_node(self, event: WatchEvent) -> None:
        """Take an event of the watch of Nodes into the cache."""
        match event:
            case ObjectSeen(object={"metadata": meta}):
                self._cache.node(
                    meta["name"],
                    topology=(meta.get("annotations") or {}).get(keys.TOPOLOGY),
                    clique=(meta.get("labels") or {}).get(keys.CLIQUE),
                    product=(meta.get("labels") or {}).get(keys.GPU_PRODUCT),
                )
            case ObjectGone(name=name):
                self._cache.node_gone(name)
            case other:
                self._connection(CacheSource.NODES, other)

    def take_lease(self, event: WatchEvent) -> None:
        """Take an event of the watch of Leases into the cache."""
        match event:
            case ObjectSeen(object={"metadata": {"name": name}} as lease):
                self._cache.lease(_node_of(name), lease, self._clock())
            case ObjectGone(name=name):
                self._cache.lease_gone(_node_of(name))
            case other:
                self._connection(CacheSource.LEASES, other)

    def take_pod(self, event: WatchEvent) -> None:
        """Take an event of the watch of pods into the cache."""
        match event:
            case ObjectSeen(object=seen):
                self._take(seen)
                self._rest()
            case ObjectGone(uid=uid):
                self._cache.pod_gone(uid)
            case other:
                self._connection(CacheSource.PODS, other)

    def _take(self, seen: Object) -> None:
        try:
            pod = msgspec.convert(seen, Pod)
        except msgspec.ValidationError as error:
            name = seen["metadata"]["name"]
            log.warning("pod not counted", extra={"pod": name, "why": str(error)})
            return
        wanted = ask(pod, self._rules)
        if wanted is not None and pod.spec.node_name:
            at, ended = pod.bound_at, pod.ended
            self._cache.pod(wanted, pod.spec.node_name, bound_at=at, ended=ended)

    def _rest(self) -> None:
        """A moment for each such moment of work, but for the first reading of all there is."""
        if self._cache.synced and self._clock() - self._rested_at > _REST_SECONDS:
            self._sleep(_REST_SECONDS)
            self._rested_at = self._clock()

    def _has_gpus(self, pod: Object) -> bool:
        """Whether the pod may ask for whole GPUs: a cheap check, before the pod is read."""
        spec = pod.get("spec") or {}
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        return any(_names(each, self._rules.gpu) for each in containers)

    def _connection(self, source: CacheSource, event: WatchEvent) -> None:
        match event:
            case CacheSynced():
                self._cache.mark_synced(source)
                log.info("cache synced", extra={"source": source})
            case WatchConnected():
                if self._down.pop(source, None) is not None:
                    log.info("watch reconnected", extra={"source": source})
            case WatchLost(error=error):
                why = _why(source, error)
                if why != self._down.get(source):  # once, not at every attempt
                    log.warning("watch lost", extra={"source": source, "why": why})
                self._down[source] = why


def _node_of(lease: str) -> str:
    return lease.removeprefix(_LEASE_PREFIX)


def _is_agents(lease: Object) -> bool:
    return str(lease["metadata"]["name"]).startswith(_LEASE_PREFIX)


def _names(container: Mapping[str, Any], resource: str) -> bool:
    """Whether the container asks for the resource; requests default to limits."""
    asked = container.get("resources") or {}
    return any(resource in (asked.get(kind) or ()) for kind in ("requests", "limits"))


def _why(source: CacheSource, error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return f"{error}; the account may not watch {source}: apply deploy/scheduler"
    return str(error)
