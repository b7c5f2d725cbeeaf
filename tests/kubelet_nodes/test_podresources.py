# SPDX-License-Identifier: Apache-2.0
"""The pod-resources socket as the agent's own client sees it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from base.errors import Transient
from kubelet.podresources.allocation_model import ResourceDevices
from kubelet.podresources.podresources_client import PodResources
from tests import build
from tests.kubelet.podresources_server import Aborted
from tests.kubelet_nodes.cases import FirstOffered, claim, container, pod
from tests.kubelet_nodes.devices import DeviceManager
from tests.kubelet_nodes.offer import GPU, offer
from tests.kubelet_nodes.podresources import PodResourcesServer

NODE = build.node([build.gpu(0, numa_node=1), build.gpu(1)])


@pytest.fixture
def devices() -> DeviceManager:
    made = DeviceManager(FirstOffered())
    made.register(offer(NODE), NODE)
    return made


@pytest.fixture
def server(devices: DeviceManager, tmp_path: Path) -> Iterator[PodResourcesServer]:
    made = PodResourcesServer(tmp_path)
    made.show(devices.offer, devices.pods.values())
    made.start()
    yield made
    made.stop()


def test_every_healthy_device_is_told_by_itself(server: PodResourcesServer) -> None:
    lost = build.node([build.gpu(0), build.silent(1)])
    server.show(offer(lost, before=offer(build.node([build.gpu(0), build.gpu(1)]))), ())
    told = PodResources(server.path).allocatable()
    assert told == (ResourceDevices(resource=GPU, ids=(build.gpu(0).uuid or "",)),)


def test_pods_are_told_with_their_devices_and_without_ended_init_containers(
    server: PodResourcesServer, devices: DeviceManager
) -> None:
    sidecar = container("sidecar", 1, restartPolicy="Always")
    devices.admit(pod("p", container("app", 1), init=(sidecar, container("init", 0))))
    devices.admit(pod("q", gpus=0))
    server.show(devices.offer, devices.pods.values())
    told = PodResources(server.path).list()
    assert [(each.namespace, each.name) for each in told] == [("default", "p"), ("default", "q")]
    given = {each.name: each.resources for each in told[0].containers}
    assert list(given) == ["sidecar", "app"]
    assert {part.ids for parts in given.values() for part in parts} == {
        (gpu.uuid,) for gpu in NODE.gpus
    }


def test_claimed_devices_are_told_beside_the_plugins(
    server: PodResourcesServer, devices: DeviceManager
) -> None:
    one = claim("one", "gpu-0")
    app = container("app", 1)
    app["resources"]["claims"] = [{"name": "mine"}]
    taken = devices.admit(pod("p", app), {"mine": one})
    server.show(devices.offer, devices.pods.values())
    (told,) = PodResources(server.path).list()
    (main,) = told.containers
    assert main.claims == taken.containers[0].claims
    assert [each.device for each in main.claims] == ["gpu-0"]
    assert [part.resource for part in main.resources] == [GPU]


def test_root_alone_may_connect(server: PodResourcesServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


def test_a_stopped_kubelet_leaves_no_socket_and_the_next_one_answers(
    server: PodResourcesServer,
) -> None:
    asking = PodResources(server.path)
    before = asking.allocatable()
    server.stop()
    with pytest.raises(Transient, match="no such socket"):
        asking.allocatable()
    server.start()
    assert asking.allocatable() == before


def test_a_slow_kubelet_answers_too_late(server: PodResourcesServer) -> None:
    server.delay_seconds = 60
    with pytest.raises(Transient, match="did not answer within"):
        PodResources(server.path, deadline_seconds=0.1).list()


def test_a_refusing_kubelet_says_why(server: PodResourcesServer) -> None:
    server.refusal = Aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    with pytest.raises(Transient, match="rejected by rate limit"):
        PodResources(server.path).list()
