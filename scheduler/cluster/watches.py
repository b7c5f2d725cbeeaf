# SPDX-License-Identifier: Apache-2.0
"""Nodes, the agents' Leases and pods with GPUs, watched for the cache."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from api import keys, names
from base.defects import Defects
from base.errors import BadInput
from kube.api import LEASES, NODES, PODS, Api, Object
from kube.informer import Informer, ObjectGone, ObjectSeen, WatchEvent
from kube.lease import owning_nodes
from kube.objects.pod import Pod
from kube.objects.typed_object import Metadata
from kube.watched_sources import WatchedSources
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.pod_gpu_request import Rules, ask

log = logging.getLogger(__name__)

_BOUND = {"spec.nodeName!": ""}
_REST_SECONDS = 0.01
"""Pause in which events of pods gather. Where hundreds are bound a second, waking up for each one
delays requests for longer than the work itself."""


class Watches(WatchedSources[CacheSource]):
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
        self._nodes_of_cut_names: dict[str, str] = {}
        informer = partial(Informer, api, uniform=uniform, defects=defects)
        informers = {
            CacheSource.NODES: informer(NODES, self.take_node, metadata_only=True),
            CacheSource.LEASES: informer(
                LEASES, self.take_lease, namespace=namespace, keep=_is_agents
            ),
            CacheSource.PODS: informer(PODS, self.take_pod, fields=_BOUND, keep=self._has_gpus),
        }
        super().__init__(informers, synced=cache.mark_synced, rights="deploy/scheduler")

    def take_node(self, event: WatchEvent) -> None:
        """Take an event of the watch of Nodes into the cache."""
        match event:
            case ObjectSeen(object={"metadata": meta}):
                # as it comes: a conversion copies all labels, and takes twice as long as this
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
                node = _node_of(lease)
                # a deletion reports only the Lease's name, in which a long node name is cut
                if node != names.node_of_lease(name, ()):
                    self._nodes_of_cut_names[name] = node
                self._cache.lease(node, lease, self._clock())
            case ObjectGone(name=name):
                known = self._nodes_of_cut_names.pop(name, names.node_of_lease(name, ()))
                self._cache.lease_gone(known)
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
            pod = Pod.from_object(seen)
        except BadInput as error:
            name = seen["metadata"]["name"]
            log.warning("pod not counted", extra={"pod": name, "why": str(error)})
            return
        request = ask(pod, self._rules)
        if request is not None and pod.is_bound:
            bound_at, ended = pod.bound_at, pod.is_finished
            self._cache.pod(request, pod.spec.node_name, bound_at=bound_at, ended=ended)

    def _rest(self) -> None:
        """Pause after as much time of work, except during the first reading of all objects."""
        if self._cache.synced and self._clock() - self._rested_at > _REST_SECONDS:
            self._sleep(_REST_SECONDS)
            self._rested_at = self._clock()

    def _has_gpus(self, pod: Object) -> bool:
        """Whether the pod may ask for whole GPUs: a cheap check, before the pod is read.

        It takes a third of the time in which a pod is converted, and most pods have no GPU.
        """
        spec = pod.get("spec") or {}
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        return any(_names(container, self._rules.gpu) for container in containers)


def _node_of(lease: Object) -> str:
    meta = Metadata.from_object(lease["metadata"])
    return names.node_of_lease(meta.name, owning_nodes(meta))


def _is_agents(lease: Object) -> bool:
    return str(lease["metadata"]["name"]).startswith(names.LEASE_PREFIX)


def _names(container: Mapping[str, Any], resource: str) -> bool:
    """Whether the container asks for the resource; requests default to limits."""
    amounts = container.get("resources") or {}
    return any(resource in (amounts.get(kind) or ()) for kind in ("requests", "limits"))
