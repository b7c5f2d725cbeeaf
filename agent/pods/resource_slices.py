# SPDX-License-Identifier: Apache-2.0
"""Devices of DRA drivers on a node, from their ResourceSlices where reading them is allowed.

Source: NVIDIA's DRA driver, whose devices carry an attribute ``uuid``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from agent.metrics.source_reports import WatchReport
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api_errors import Forbidden, NotFound
from kube.informer import ObjectGone, ObjectSeen, WatchConnected, WatchEvent, WatchLost
from kube.objects.resource_slice import ResourceSlice

UUID = "uuid"
FIELD = "spec.nodeName"
"""Field by which the slices of one node, and its pods, are selected."""
SOURCE: Final = "resource-slices"

_RIGHT = "the agent may not read ResourceSlices: apply deploy/dra, or switch resource-slices off"
_UNSERVED = (
    "the API server serves no ResourceSlices that the agent reads (resource.k8s.io v1, v1beta2,"
    " v1beta1): turn that API on, or switch resource-slices off"
)


class ResourceSlices:
    """The devices in a node's slices, by driver, pool and name. Any thread may call anything."""

    def __init__(
        self,
        update_metrics: Callable[[Callable[[AgentMetrics], None]], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``update_metrics`` gets changes of the metrics of the watch; ``wall`` is Unix time."""
        self._lock = threading.Lock()
        self._by_slice: dict[str, ResourceSlice] = {}
        self._watch = WatchReport(update_metrics, SOURCE, wall)

    def on_watch_event(self, event: WatchEvent) -> None:
        """Take one event of a watch of the slices."""
        match event:
            case ObjectSeen(object=seen):
                resource_slice = ResourceSlice.from_object(seen)
                with self._lock:
                    self._by_slice[resource_slice.metadata.name] = resource_slice
            case ObjectGone(name=name):
                with self._lock:
                    self._by_slice.pop(name, None)
            case WatchConnected():
                self._watch.connected()
            case WatchLost(error=Forbidden()):
                self._watch.lost(_RIGHT)
            case WatchLost(error=NotFound()):
                self._watch.lost(_UNSERVED)
            case WatchLost(error=error):
                self._watch.lost(str(error))

    def drivers(self) -> frozenset[str]:
        """The drivers that have slices of this node."""
        return frozenset(known.spec.driver for known in self._slices())

    def uuid(self, driver: str, pool: str, device: str) -> str | None:
        """UUID of the GPU or MIG device that a claim names; None where no slice has it."""
        uuids = (
            offered.text(UUID)
            for known in self._slices()
            if (known.spec.driver, known.spec.pool.name) == (driver, pool)
            for offered in known.spec.devices
            if offered.name == device
        )
        return next(filter(None, uuids), None)

    def _slices(self) -> tuple[ResourceSlice, ...]:
        with self._lock:
            return tuple(self._by_slice.values())
