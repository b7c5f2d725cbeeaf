# SPDX-License-Identifier: Apache-2.0
"""Nodes, pods with GPUs and the slots' Leases, watched for the cache."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from api import names
from base.defects import Defects
from fleet import gpu_pod
from fleet.fleet_cache import FleetCache, FleetSource
from fleet.slot_lease import is_slot, number_of
from kube.api import LEASES, NODES, PODS, Api
from kube.informer import Informer, ObjectGone, ObjectSeen, WatchEvent
from kube.watched_sources import WatchedSources

_BOUND: Final = {"spec.nodeName!": ""}


class FleetWatches(WatchedSources[FleetSource]):
    """Three watches, each in a thread of its own. Of all that comes only values are kept.

    Pods come bound ones only; those without GPUs are passed over before anything is kept of them,
    but for device plugins and the parts of the GPU operator that keep GPUs open.
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
        informer = partial(Informer, api, uniform=uniform, defects=defects)
        informers = {
            FleetSource.NODES: informer(NODES, self.take_node),
            FleetSource.SLOTS: informer(LEASES, self.take_lease, namespace=namespace, keep=is_slot),
            FleetSource.PODS: informer(
                PODS,
                self.take_pod,
                fields=_BOUND,
                keep=lambda pod: gpu_pod.is_gpu_or_client_pod(pod, cache.terms),
            ),
        }
        super().__init__(
            informers,
            synced=cache.mark_synced,
            rights="deploy/coordinator",
            connected=cache.begin_anew,
        )

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
