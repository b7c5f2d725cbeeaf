# SPDX-License-Identifier: Apache-2.0
"""Fake kubelets on a real API server, and a real agent beside one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube.api import Object
from kubelet.podresources.podresources_client import PodResources
from simulator.simulation import Return, Simulation
from tests.agent.agent_process import until
from tests.cluster.agents import Site, agent
from tests.controlplane.plane import MERGE_PATCH, Answer, Plane
from tests.kubelet_nodes.allocator import Allocator
from tests.kubelet_nodes.cases import claim, pod
from tests.kubelet_nodes.kubelet import Kubelets
from tests.kubelet_nodes.node import Node
from tests.kubelet_nodes.offer import GPU

pytestmark = pytest.mark.cluster

LOST = Return(code=15)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path / "machine")


@pytest.fixture
def kubelets(plane: Plane, allocator: Allocator, tmp_path: Path) -> Iterator[Kubelets]:
    with Kubelets(plane, allocator, tmp_path / "kubelets") as running:
        yield running


@pytest.fixture
def node(kubelets: Kubelets, simulation: Simulation) -> Node:
    return kubelets.join(simulation)


class Pods:
    """A namespace for pods of one test, and what becomes of them."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.namespace = plane.namespace("jobs")
        self._path = f"/api/v1/namespaces/{self.namespace}/pods"

    def bind(self, node: Node, name: str, gpus: int) -> None:
        """Make a pod that is bound from the start."""
        self.make(pod(name, gpus=gpus, node=node.name, namespace=self.namespace))

    def make(self, body: Object) -> None:
        """Make a pod."""
        self._plane.demand("POST", self._path, body)

    def status(self, name: str) -> Object:
        """Of a pod that exists."""
        found: Object = self._plane.demand("GET", f"{self._path}/{name}").get("status") or {}
        return found

    def runs(self, name: str) -> bool:
        return bool(self.status(name).get("phase") == "Running")

    def delete(self, name: str) -> None:
        """As people do, and wait for the kubelet to end it."""
        self._plane.demand("DELETE", f"{self._path}/{name}")
        until(lambda: self._plane.request("GET", f"{self._path}/{name}").status == 404)


@pytest.fixture
def pods(plane: Plane) -> Pods:
    return Pods(plane)


def gpus_of(plane: Plane, node: Node) -> tuple[str, str]:
    """Capacity and allocatable as the Node has them."""
    status = plane.demand("GET", f"/api/v1/nodes/{node.name}")["status"]
    return status["capacity"][GPU], status["allocatable"][GPU]


def test_a_node_joins_ready_and_with_its_gpus(plane: Plane, node: Node) -> None:
    found = plane.demand("GET", f"/api/v1/nodes/{node.name}")
    assert not found["spec"].get("taints")
    assert [it["status"] for it in found["status"]["conditions"] if it["type"] == "Ready"] == [
        "True"
    ]
    assert gpus_of(plane, node) == ("2", "2")


def test_the_lease_of_a_node_is_renewed(
    plane: Plane, allocator: Allocator, simulation: Simulation, tmp_path: Path
) -> None:
    with Kubelets(plane, allocator, tmp_path / "kubelets", renew_seconds=0.5) as kubelets:
        node = kubelets.join(simulation)
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
        until(lambda: plane.request("GET", path).status == 200)
        first = plane.demand("GET", path)["spec"]["renewTime"]
        until(lambda: plane.demand("GET", path)["spec"]["renewTime"] > first)


def test_a_lost_gpu_is_not_allocatable_until_it_is_back(
    plane: Plane, node: Node, simulation: Simulation
) -> None:
    simulation.fault(LOST, bus_id="0000:31:00.0")
    until(lambda: gpus_of(plane, node) == ("2", "1"))
    simulation.clear()
    until(lambda: gpus_of(plane, node) == ("2", "2"))


def test_a_claim_is_waited_for_and_then_told(plane: Plane, node: Node, pods: Pods) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/{pods.namespace}/resourceclaims"
    chosen = claim("mine", "gpu-0", pool=node.name, namespace=pods.namespace)
    plane.demand("POST", path, chosen)
    waiting = pod("job", gpus=0, node=node.name, namespace=pods.namespace)
    waiting["spec"]["resourceClaims"] = [{"name": "mine", "resourceClaimName": "mine"}]
    waiting["spec"]["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    pods.make(waiting)
    pods.bind(node, "after", 1)
    until(lambda: pods.runs("after"))
    assert not pods.runs("job")

    status = {"status": chosen["status"]}
    plane.demand("PATCH", f"{path}/mine/status", status, content_type=MERGE_PATCH)
    until(lambda: pods.runs("job"))
    (told,) = [each for each in PodResources(node.server.path).list() if each.name == "job"]
    assert [each.device for each in told.containers[0].claims] == ["gpu-0"]


def test_pods_run_until_they_are_deleted_and_one_too_many_fails(node: Node, pods: Pods) -> None:
    pods.bind(node, "first", 2)
    until(lambda: pods.runs("first"))
    pods.bind(node, "second", 1)
    until(lambda: pods.status("second").get("phase") == "Failed")
    refusal = pods.status("second")
    assert refusal["reason"] == "UnexpectedAdmissionError"
    assert "Requested: 1, Available: 0" in refusal["message"]
    pods.delete("first")
    pods.bind(node, "third", 2)
    until(lambda: pods.runs("third"))


def test_a_pod_whose_containers_ended_gives_its_gpus_back(
    plane: Plane, node: Node, pods: Pods
) -> None:
    pods.bind(node, "job", 2)
    until(lambda: pods.runs("job"))
    path = f"/api/v1/namespaces/{pods.namespace}/pods/job/status"
    ended = {"status": {"phase": "Succeeded"}}
    plane.demand("PATCH", path, ended, content_type=MERGE_PATCH)
    until(lambda: not node.devices.pods)


def test_a_pod_that_went_before_its_status_was_taken_holds_nothing(
    plane: Plane,
    node: Node,
    pods: Pods,
    simulation: Simulation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is tried again is not what has been overtaken by the pod's end."""
    request = plane.request

    def lossy(method: str, path: str, *rest: Any, **options: Any) -> Answer:
        if path.endswith("/ghost/status"):
            raise ConnectionResetError
        return request(method, path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(plane, "request", lossy)
        pods.bind(node, "ghost", 2)
        until(lambda: bool(node.devices.pods))
        pods.delete("ghost")
        until(lambda: not node.devices.pods)

    simulation.fault(LOST, bus_id="0000:31:00.0")
    until(lambda: gpus_of(plane, node) == ("2", "1"))  # by now everything was tried again
    assert not node.devices.pods


def test_what_the_api_server_did_not_take_is_written_when_it_is_back(
    allocator: Allocator, simulation: Simulation, tmp_path: Path
) -> None:
    with (
        Plane.start(tmp_path / "plane", controller_manager=False) as plane,
        Kubelets(plane, allocator, tmp_path / "kubelets") as kubelets,
    ):
        node = kubelets.join(simulation)
        plane.stop_apiserver()
        simulation.fault(LOST, bus_id="0000:31:00.0")
        until(lambda: node.resources()["allocatable"] == {GPU: "1"})
        plane.start_apiserver()
        until(lambda: gpus_of(plane, node) == ("2", "1"))


# with a real agent


class Scene:
    """A node with its kubelet and an agent that has told the node's state."""

    def __init__(self, site: Site, node: Node) -> None:
        self.site = site
        self.node = node

    def state(self) -> dict[str, Any]:
        """As the agent's Lease has it; empty before the first."""
        lease = self.site.lease(self.node.name) or {"metadata": {}}
        annotations = lease["metadata"].get("annotations") or {}
        told: dict[str, Any] = json.loads(annotations.get("gpuscape.io/state", "{}"))
        return told


@pytest.fixture(scope="module")
def own_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Shipped policies hold for a whole cluster, so it is one of this module's own."""
    with Plane.start(tmp_path_factory.mktemp("plane"), controller_manager=False) as plane:
        yield Site.create(plane, "gpuscape")


@pytest.fixture
def scene(
    own_site: Site, allocator: Allocator, simulation: Simulation, tmp_path: Path
) -> Iterator[Scene]:
    with contextlib.ExitStack() as running:
        kubelets = Kubelets(own_site.plane, allocator, tmp_path / "kubelets")
        node = running.enter_context(kubelets).join(simulation)
        quick = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}
        (tmp_path / "sockets").symlink_to(node.sockets)
        running.enter_context(agent(own_site, node.name, simulation, tmp_path, options=quick))
        made = Scene(own_site, node)
        until(lambda: made.state().get("ok") == "3")
        yield made


def test_the_agents_lease_tells_who_has_which_gpu_and_forgets_a_deleted_pod(scene: Scene) -> None:
    pods = Pods(scene.site.plane)
    pods.bind(scene.node, "job", 2)
    until(lambda: scene.state()["used"] == "3")
    assert list(scene.state()["pods"].values()) == ["3"]
    pods.delete("job")
    until(lambda: (scene.state()["used"], scene.state()["pods"]) == ("0", {}))


def test_an_agent_finds_the_socket_of_a_restarted_kubelet(scene: Scene) -> None:
    pods = Pods(scene.site.plane)
    scene.node.server.stop()
    pods.bind(scene.node, "job", 1)
    until(lambda: pods.runs("job"))
    assert scene.state()["used"] == "0"
    scene.node.server.start()
    until(lambda: scene.state()["used"] in ("1", "2"))


def test_a_lost_gpu_leaves_what_is_ok(scene: Scene, simulation: Simulation) -> None:
    simulation.fault(LOST, bus_id="0000:31:00.0")
    until(lambda: scene.state()["ok"] == "1")
    simulation.clear()
    until(lambda: scene.state()["ok"] == "3")
