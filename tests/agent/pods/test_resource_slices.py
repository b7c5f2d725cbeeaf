# SPDX-License-Identifier: Apache-2.0
"""Devices of DRA claims by the ResourceSlices of their node."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.pods.resource_slices import FIELD, ResourceSlices
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import RESOURCE_SLICES, Api, Object
from kube.api_errors import ApiError, Forbidden, NotFound, Unreachable
from kube.informer import (
    CacheSynced,
    Informer,
    ObjectGone,
    ObjectSeen,
    WatchConnected,
    WatchEvent,
    WatchLost,
)
from tests.fakes.api import FakeApi
from tests.kube.clusters import client
from tests.kube.objects.slice_forms import FORMS
from tests.kube.test_hostile_answers import client_of
from tests.kube.test_served_versions import AgedServer

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


def unmeasured() -> ResourceSlices:
    """Slices whose watch shows in no metrics."""
    return ResourceSlices(lambda _change: None)


def test_a_device_is_known_by_its_driver_pool_and_name() -> None:
    slices = unmeasured()
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_0="GPU-a", gpu_1="GPU-b")))
    assert slices.uuid(DRIVER, "node-a", "gpu-1") == "GPU-b"
    assert slices.uuid("other", "node-a", "gpu-1") is None
    assert slices.uuid(DRIVER, "node-b", "gpu-1") is None


def test_a_device_without_a_uuid_is_not_known() -> None:
    slices = unmeasured()
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_0=None)))
    assert slices.uuid(DRIVER, "node-a", "gpu-0") is None


def test_a_slice_that_changes_or_goes_takes_its_devices_along() -> None:
    slices = unmeasured()
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_0="GPU-a")))
    slices.on_watch_event(ObjectSeen(object=a_slice(gpu_1="GPU-b")))
    assert slices.uuid(DRIVER, "node-a", "gpu-0") is None
    slices.on_watch_event(ObjectGone(namespace=None, name="one", uid="1"))
    assert slices.uuid(DRIVER, "node-a", "gpu-1") is None


def test_a_driver_is_there_as_long_as_it_has_a_slice_with_devices_or_without() -> None:
    slices = unmeasured()
    for name, devices in (("one", {"gpu_0": "GPU-a"}), ("two", {})):
        slices.on_watch_event(ObjectSeen(object=a_slice(name, **devices)))
    assert slices.drivers() == {DRIVER}
    slices.on_watch_event(ObjectGone(namespace=None, name="one", uid="1"))
    assert slices.drivers() == {DRIVER}
    slices.on_watch_event(ObjectGone(namespace=None, name="two", uid="2"))
    assert slices.drivers() == frozenset()


@pytest.mark.parametrize("version", FORMS)
def test_a_device_has_its_uuid_in_the_form_of_each_version(version: str) -> None:
    slices = unmeasured()
    slices.on_watch_event(ObjectSeen(object=FORMS[version]))
    assert slices.drivers() == {DRIVER}
    known = [slices.uuid(DRIVER, "node-a", f"gpu-{number}") for number in range(3)]
    assert known == ["GPU-a", "GPU-b", None]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Forbidden("watch resourceslices: 403: no"), "deploy/dra"),
        (NotFound("watch resourceslices: 404: 404 page not found"), "v1, v1beta2, v1beta1"),
        (Unreachable("watch resourceslices: no route"), "no route"),
    ],
)
def test_slices_that_cannot_be_read_are_logged_once_and_shown(
    error: ApiError, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = AgentMetrics("0", lambda: 0.0)
    slices = ResourceSlices(lambda change: change(own), lambda: 0.0)
    for _ in range(2):
        slices.on_watch_event(WatchLost(error=error))
    (line,) = caplog.records
    assert (line.getMessage(), line.__dict__["source"]) == ("watch lost", "resource-slices")
    assert why in line.__dict__["why"]
    shown = b'gpuscape_source_up{source="resource-slices"} '
    assert shown + b"0.0" in own.render()
    slices.on_watch_event(WatchConnected())
    assert shown + b"1.0" in own.render()


def test_slices_of_other_nodes_are_not_followed() -> None:
    api = FakeApi()
    for node in ("node-a", "node-b"):
        api.server.create(RESOURCE_SLICES, a_slice(node, node, gpu_0=f"GPU-{node}"))
    slices = followed(api, "node-a")
    assert slices.uuid(DRIVER, "node-a", "gpu-0") == "GPU-node-a"
    assert slices.uuid(DRIVER, "node-b", "gpu-0") is None


@pytest.mark.parametrize("version", FORMS)
def test_a_server_of_any_age_is_followed_in_the_version_that_it_serves(
    version: str, tmp_path: Path
) -> None:
    server = AgedServer(version)
    with client_of(tmp_path, server.scripted) as api:
        slices = followed(api, "node-a")
    assert slices.uuid(DRIVER, "node-a", "gpu-1") == "GPU-b"


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
    slices = unmeasured()

    def tell(news: WatchEvent) -> None:
        slices.on_watch_event(news)
        if isinstance(news, CacheSynced):
            informer.close()

    informer = Informer(api, RESOURCE_SLICES, tell, fields={FIELD: node})
    informer.run()
    return slices
