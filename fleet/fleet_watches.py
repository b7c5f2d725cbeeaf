# SPDX-License-Identifier: Apache-2.0
"""Nodes, pods with GPUs and the slots' Leases, watched for the cache."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Final

from api import names
from base import threads
from base.defects import Defects
from fleet import gpu_pod
from fleet.fleet_cache import FleetCache, FleetSource
from fleet.slot_lease import is_slot, number_of
from kube.api import LEASES, NODES, PODS, Api
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

log = logging.getLogger(__name__)

_BOUND: Final = {"spec.nodeName!": ""}
_END_SECONDS: Final = 5.0


class FleetWatches:
    """Three watches, each in a thread of its own. Of all that comes only values are kept.

    Pods come bound ones only; those without GPUs, device plugins apart, are passed over before
    anything is kept of them.
    """

    def __init__(
        self,
        api: Api,
        cache: FleetCache,
        changed: Callable[[], None],
        *,
        namespace: str = names.NAMESPACE,
        on_node: Callable[[WatchEvent], None] = lambda _event: None,
        defects: Defects | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``namespace``: where the Leases are.

        ``changed`` is called after events that may change what is to be done; ``on_node`` gets
        every event of Nodes, whole.
        """
        self._cache = cache
        self._changed = changed
        self._on_node = on_node
        self._down: dict[FleetSource, str] = {}
        self._followers = {
            FleetSource.NODES: Follower(
                api, NODES, self.take_node, uniform=uniform, defects=defects
            ),
            FleetSource.SLOTS: Follower(
                api,
                LEASES,
                self.take_lease,
                namespace=namespace,
                keep=is_slot,
                uniform=uniform,
                defects=defects,
            ),
            FleetSource.PODS: Follower(
                api,
                PODS,
                self.take_pod,
                fields=_BOUND,
                keep=lambda pod: gpu_pod.counts(pod, cache.terms),
                uniform=uniform,
                defects=defects,
            ),
        }
        self._threads: list[threading.Thread] = []

    @property
    def down(self) -> Mapping[FleetSource, str]:
        """Sources whose watch is lost now, each with its reason."""
        return dict(self._down)

    def start(self) -> None:
        """Open the watches."""
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
        self._on_node(event)
        match event:
            case ObjectSeen(object=seen):
                if not self._cache.node(seen):
                    return
            case ObjectGone(name=name):
                self._cache.node_gone(name)
            case other:
                self._connection(FleetSource.NODES, other)
        self._changed()

    def take_lease(self, event: WatchEvent) -> None:
        """Take an event of the watch of Leases into the cache."""
        match event:
            case ObjectSeen(object=seen):
                self._cache.slot(seen)
            case ObjectGone(name=name):
                self._cache.slot_gone(number_of(name))
            case other:
                self._connection(FleetSource.SLOTS, other)
        self._changed()

    def take_pod(self, event: WatchEvent) -> None:
        """Take an event of the watch of pods into the cache."""
        match event:
            case ObjectSeen(object=seen):
                if not self._cache.pod(seen):
                    return
            case ObjectGone(namespace=namespace, name=name):
                self._cache.pod_gone(namespace or "", name)
            case other:
                self._connection(FleetSource.PODS, other)
        self._changed()

    def _connection(self, source: FleetSource, event: WatchEvent) -> None:
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


def _why(source: FleetSource, error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return f"{error}; the account may not watch {source}: apply deploy/coordinator"
    return str(error)
