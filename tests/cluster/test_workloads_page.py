# SPDX-License-Identifier: Apache-2.0
"""docs/workloads.md: each of its pods lands where the page says, on nodes as it lists them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from api import names
from tests import pages
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.extender import PATIENT, extender
from tests.cluster.gpu_nodes import GpuNode, gpu_node, leave_free, mask
from tests.cluster.scheduling import GPU, Stage, configuration
from tests.controlplane.plane import Plane
from tests.kubelet_nodes.allocator import Allocator
from tests.kubelet_nodes.kubelet import Kubelets

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PAGE = pages.page("docs/workloads.md")
MACHINES = dict(re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \|", PAGE, re.MULTILINE))
"""By node."""
FREE = {"pairs-1": (0, 2, 4, 6), "pairs-2": (0, 1, 2, 3, 4, 5)}
"""As the page says it in words; all of the others."""
PODS = [
    pytest.param(yaml.safe_load(text), node, id=yaml.safe_load(text)["metadata"]["name"])
    for text, node in re.findall(r"```yaml\n(.*?)```\s+It lands on `([\w-]+)`", PAGE, re.DOTALL)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The page's."""

    stage: Stage
    nodes: dict[str, GpuNode]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as running:
        plane = running.enter_context(
            Plane.start(folder / "plane", controller_manager=False, kwok=True)
        )
        site = Site.create(plane, names.NAMESPACE)
        stage = Stage.create(plane, folder / "admin")
        allocator = running.enter_context(Allocator())
        kubelets = running.enter_context(Kubelets(plane, allocator, folder / "kubelets"))
        nodes = {
            name: running.enter_context(gpu_node(site, kubelets, machine, name, folder / name))
            for name, machine in MACHINES.items()
        }
        helper = running.enter_context(extender(stage, folder, PATIENT))
        stage.start_scheduler(configuration(helper.address, stage.client, timeout="30s"))
        for name, gpus in FREE.items():
            leave_free(stage, nodes[name], gpus)
        yield Cluster(stage=stage, nodes=nodes)


def test_every_manifest_says_where_it_lands() -> None:
    assert len(PODS) == len(pages.blocks(PAGE, "yaml")) == 5
    assert {"pairs-1", "pairs-2", *(param.values[1] for param in PODS)} == set(MACHINES)


def test_without_a_model_free_nodes_of_the_other_models_are_kept(cluster: Cluster) -> None:
    """As the page says below its first example."""
    (pod,) = (_manifest(param) for param in PODS if param.id == "two-linked")
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeSelector"}
    body = {**pod, "metadata": {**pod["metadata"], "name": "of-any-model"}, "spec": spec}
    stage = cluster.stage
    stage.plane.demand("POST", f"/api/v1/namespaces/{stage.namespace}/pods", body)
    node = cluster.nodes[stage.placed("of-any-model")]
    uid = stage.pod("of-any-model")["metadata"]["uid"]
    until(lambda: uid in node.node.devices.pods)
    stage.remove_pod("of-any-model")
    until(lambda: uid not in node.node.devices.pods)

    assert "Without a model in `nodeSelector` it lands there too" in " ".join(PAGE.split())
    assert node.name == "pairs-2"


@pytest.mark.parametrize(("pod", "node"), PODS)
def test_it_lands_where_the_page_says_and_is_given_what_it_asks_for(
    cluster: Cluster, pod: dict[str, Any], node: str
) -> None:
    stage, name = cluster.stage, pod["metadata"]["name"]
    stage.plane.demand("POST", f"/api/v1/namespaces/{stage.namespace}/pods", pod)
    landed = cluster.nodes[stage.placed(name)]
    uid = stage.pod(name)["metadata"]["uid"]
    until(lambda: uid in landed.node.devices.pods)
    gpus = landed.gpus_of(uid)
    (container,) = landed.node.devices.pods[uid].containers
    given = {resource: len(devices) for resource, devices in container.given.items()}
    stage.remove_pod(name)
    until(lambda: uid not in landed.node.devices.pods)
    if landed.name in FREE:
        until(lambda: landed.free() == mask(FREE[landed.name]))

    assert landed.name == node
    assert given == pod["spec"]["containers"][0]["resources"]["limits"]
    if given.get(GPU, 0) > 1:
        assert landed.links(gpus) > 0


def _manifest(param: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = param.values[0]
    return manifest
