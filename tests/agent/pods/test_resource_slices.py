# SPDX-License-Identifier: Apache-2.0
"""Devices of DRA claims by the ResourceSlices of their node."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from agent.pods.resource_slices import FIELD, ResourceSlices
from kube.api import RESOURCE_SLICES, Api, Object
from kube.informer import CacheSynced, Informer, ObjectGone, ObjectSeen, WatchEvent
from tests.fakes.api import FakeApi
from tests.kube.clusters import client

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

DRIVER = "gpu.nvidia.com"


def a_slice(name: str = "one", node: str = "node-a", **devices: str | None) -> Object:
    """A slice with these devices and their UUIDs; None for a device that tells none."""
    listed = [
        {"name": device.replace("_", "-"), "attributes": {"uuid": {"string": uuid}} if uuid else {}}
        for device, uuid in devices.items()
    ]
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}, "devices": listed}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_device_is_known_by_its_driver_pool_and_name() -> None:
    slices = ResourceSlices()
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_0="GPU-a", gpu_1="GPU-b")))
    assert slices.uuid(DRIVER, "node-a", "gpu-1") == "GPU-b"
    assert slices.uuid("other", "node-a", "gpu-1") is None
    assert slices.uuid(DRIVER, "node-b", "gpu-1") is None


def test_a_device_without_a_uuid_is_not_known() -> None:
    slices = ResourceSlices()
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_0=None)))
    assert slices.uuid(DRIVER, "node-a", "gpu-0") is None


def test_a_slice_that_changes_or_goes_takes_its_devices_along() -> None:
    slices = ResourceSlices()
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_0="GPU-a")))
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_1="GPU-b")))
    assert slices.uuid(DRIVER, "node-a", "gpu-0") is None
    slices.on_watch_event(ObjectGone(namespace=None, name="one", uid="1"))
    assert slices.uuid(DRIVER, "node-a", "gpu-1") is None


def test_a_driver_is_there_as_long_as_it_has_a_slice_with_devices_or_without() -> None:
    slices = ResourceSlices()
    for name, devices in (("one", {"gpu_0": "GPU-a"}), ("two", {})):
        slices.on_watch_event(ObjectSeen(object=a_slice(name, **devices)))
    assert slices.drivers() == {DRIVER}
    slices.on_watch_event(ObjectGone(namespace=None, name="one", uid="1"))
    assert slices.drivers() == {DRIVER}
    slices.on_watch_event(ObjectGone(namespace=None, name="two", uid="2"))
    assert slices.drivers() == frozenset()


def test_slices_of_other_nodes_are_not_followed() -> None:
    api = FakeApi()
    for node in ("node-a", "node-b"):
        api.server.create(RESOURCE_SLICES, a_slice(node, node, gpu_0=f"GPU-{node}"))
    slices = followed(api, "node-a")
    assert slices.uuid(DRIVER, "node-a", "gpu-0") == "GPU-node-a"
    assert slices.uuid(DRIVER, "node-b", "gpu-0") is None


@pytest.mark.cluster
def test_nor_are_they_on_a_real_api_server(plane: Plane) -> None:
    ours, other = plane.make_node(), plane.make_node()
    for node in (ours, other):
        body = a_slice(node, node, gpu_0=f"GPU-{node}")
        body["spec"]["pool"] |= {"generation": 1, "resourceSliceCount": 1}
        plane.demand("POST", "/apis/resource.k8s.io/v1/resourceslices", body)
    with contextlib.closing(client("gpuscape-agent", plane.kubeconfig())) as api:
        slices = followed(api, ours)
    assert slices.uuid(DRIVER, ours, "gpu-0") == f"GPU-{ours}"
    assert slices.uuid(DRIVER, other, "gpu-0") is None


def followed(api: Api, node: str) -> ResourceSlices:
    """What a watch of the node's slices starts with."""
    slices = ResourceSlices()

    def tell(news: WatchEvent) -> None:
        slices.on_watch_event(news)
        if isinstance(news, CacheSynced):
            informer.close()

    informer = Informer(api, RESOURCE_SLICES, tell, fields={FIELD: node})
    informer.run()
    return slices
