# SPDX-License-Identifier: Apache-2.0
"""Devices of DRA drivers on a node, from their ResourceSlices where reading them is allowed.

Source: Kubernetes API resource.k8s.io/v1, ResourceSlice; NVIDIA's DRA driver, whose devices
carry an attribute ``uuid``.
"""

from __future__ import annotations

import threading

from kube.api import Object
from kube.informer import ObjectGone, ObjectSeen, WatchEvent

UUID = "uuid"
FIELD = "spec.nodeName"
"""Field by which the slices of one node, and its pods, are selected."""


class ResourceSlices:
    """The devices in a node's slices, by driver, pool and name. Any thread may call anything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_slice: dict[str, dict[tuple[str, str, str], str]] = {}
        self._drivers: dict[str, str] = {}

    def on_watch_event(self, event: WatchEvent) -> None:
        """Take one event of a watch of the slices."""
        with self._lock:
            match event:
                case ObjectSeen(object=resource_slice):
                    name = resource_slice["metadata"]["name"]
                    self._by_slice[name] = _devices(resource_slice["spec"])
                    self._drivers[name] = resource_slice["spec"].get("driver", "")
                case ObjectGone(name=name):
                    self._by_slice.pop(name, None)
                    self._drivers.pop(name, None)

    def drivers(self) -> frozenset[str]:
        """The drivers that have slices of this node."""
        with self._lock:
            return frozenset(self._drivers.values())

    def uuid(self, driver: str, pool: str, device: str) -> str | None:
        """UUID of the GPU or MIG device that a claim names; None where no slice has it."""
        with self._lock:
            slices = tuple(self._by_slice.values())
        key = (driver, pool, device)
        return next((devices[key] for devices in slices if key in devices), None)


def _devices(spec: Object) -> dict[tuple[str, str, str], str]:
    """UUIDs of a slice's devices; one without a UUID is left out."""
    pool = (spec.get("pool") or {}).get("name", "")
    uuids = {
        device["name"]: ((device.get("attributes") or {}).get(UUID) or {}).get("string")
        for device in spec.get("devices") or ()
    }
    return {(spec.get("driver", ""), pool, name): uuid for name, uuid in uuids.items() if uuid}
