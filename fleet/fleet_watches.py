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
from kube.api import LEASES, NODES, PODS, Api, Object
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
        self._changed = changed
        take_node = self._taking(
            FleetSource.NODES, cache.node, lambda gone: cache.node_gone(gone.name)
        )
        take_lease = self._taking(
            FleetSource.SLOTS, cache.slot, lambda gone: cache.slot_gone(number_of(gone.name))
        )
        take_pod = self._taking(
            FleetSource.PODS,
            cache.pod,
            lambda gone: cache.pod_gone(gone.namespace or "", gone.name),
        )

        def on_node_event(event: WatchEvent) -> None:
            on_node(event)
            take_node(event)

        informer = partial(Informer, api, uniform=uniform, defects=defects)
        informers = {
            FleetSource.NODES: informer(NODES, on_node_event),
            FleetSource.SLOTS: informer(LEASES, take_lease, namespace=namespace, keep=is_slot),
            FleetSource.PODS: informer(
                PODS,
                take_pod,
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

    def _taking(
        self,
        source: FleetSource,
        take: Callable[[Object], object],
        gone: Callable[[ObjectGone], None],
    ) -> Callable[[WatchEvent], None]:
        """Take the events of a watch; ``take`` gives False for what changes nothing."""

        def on_event(event: WatchEvent) -> None:
            match event:
                case ObjectSeen(object=seen):
                    if take(seen) is False:
                        return
                case ObjectGone():
                    gone(event)
                case other:
                    self._connection(source, other)
            self._changed()

        return on_event
