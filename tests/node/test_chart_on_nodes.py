# SPDX-License-Identifier: Apache-2.0
"""The chart on real nodes, by the lines of README and docs/helm.md as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from api import names
from tests import pages
from tests.agent.agent_process import until
from tests.cluster.scheduling import PROFILE
from tests.node import prometheus_pod
from tests.node.chart_cluster import HOW_TO_CHANGE, ChartCluster, chart_cluster
from tests.node.container_agents import labels_of
from tests.node.gpu_cluster import NAMESPACE, PODS
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.real_cluster import AGENT
from tests.node.real_node import SOON, RealNode
from tests.node.traces import Traces

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

README: Final = pages.page("README.md")
HELM: Final = pages.page("docs/helm.md")
MACHINE: Final = "a100-pcie-pairs"
"""Eight GPUs, of which 0 and 1, 2 and 3, and so on have links, and no others."""
OURS: Final = "/var/lib/gpuscape"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartCluster]:
    """Two nodes with GPUs, on which nothing of gpuscape is."""
    with chart_cluster(tmp_path_factory.mktemp("chart"), MACHINE, MACHINE) as found:
        yield found


def test_three_commands_lead_to_labels_metrics_and_ranked_pods_and_two_back(
    stage: ChartCluster,
) -> None:
    cluster = stage.cluster
    bare, pair = (cluster.nodes[name] for name in stage.gpus)
    before = Traces.of(cluster)

    stage.type(pages.marked(README, "helm"))
    stage.type(pages.marked(HELM, "label"))
    until(lambda: all(is_labelled(node) for node in (bare, pair)), SOON)
    with prometheus_pod.running(cluster, bare, cluster.plane.folder / "prometheus") as prometheus:
        by_node = "count by (instance) (DCGM_FI_DEV_GPU_TEMP)"
        until(lambda: len(prometheus.query(by_node)) == len(stage.gpus), SOON)
        counts = {it.labels["instance"]: it.value for it in prometheus.query(by_node)}
        assert counts == dict.fromkeys(stage.gpus, 8)

    stage.type(pages.marked(HELM, "scheduler"))
    stage.start_scheduling()
    leave_free(stage, bare, {1, 2})
    leave_free(stage, pair, {4, 5, 7})  # the emptier one, which whoever packs would leave alone
    until(lambda: stage.free(bare) == {1, 2} and stage.free(pair) == {4, 5, 7}, SOON)
    make(stage, "ranked", 2, scheduler=PROFILE)
    assert cluster.plane.demand("GET", f"{PODS}/ranked")["spec"]["nodeName"] == pair.name
    assert stage.held(pair)[f"{NAMESPACE}/ranked"] == {4, 5}

    cluster.plane.demand("DELETE", f"{PODS}?gracePeriodSeconds=0")
    until(lambda: not cluster.plane.demand("GET", PODS)["items"], SOON)
    stage.type(pages.marked(HELM, "remove"))
    stage.type(pages.marked(HELM, "namespace"))
    left = [it for it in Traces.of(cluster).left_since(before) if "monitoring-" not in it]
    assert left == [], "\n".join(left)


def test_with_every_part_that_writes_files_those_stay_that_uninstall_speaks_of(
    stage: ChartCluster,
) -> None:
    cluster = stage.cluster
    before = Traces.of(cluster)
    stage.type(pages.marked(README, "helm"))
    parts = ("mig.mode=enforce", "agent.migDevices=sys-admin", "agent.hostState=true")
    switches = "".join(f" --set {each}" for each in parts)
    stage.type(f"{HOW_TO_CHANGE}{switches}")
    stage.roll_out(f"daemonset/{AGENT}", f"deployment/{names.COORDINATOR}")
    until(lambda: all(is_labelled(cluster.nodes[name]) for name in stage.gpus), SOON)
    printed = stage.type(pages.marked(HELM, "remove"))
    stage.type(pages.marked(HELM, "namespace"))
    left = Traces.of(cluster).left_since(before)
    assert {it.partition(" ")[0] for it in left} == stage.gpus.keys()
    assert [it for it in left if not it.partition(" ")[2].startswith(OURS)] == []
    assert OURS in printed


def is_labelled(node: RealNode) -> bool:
    """Whether its Node has every label of its machine."""
    return bool(labels_of(MACHINE).keys() <= node.object()["metadata"]["labels"].keys())


def make(
    stage: ChartCluster, name: str, number: int, *, scheduler: str | None = None, node: str = ""
) -> None:
    """Make a pod with so many GPUs; it runs when this returns."""
    pod = gpu_pod(name, gpus("main", number), node=node or None)
    if scheduler:
        pod["spec"]["schedulerName"] = scheduler
    plane = stage.cluster.plane
    plane.demand("POST", PODS, pod)
    path = f"{PODS}/{name}"
    until(lambda: plane.demand("GET", path)["status"]["phase"] == "Running", SOON)


def leave_free(stage: ChartCluster, node: RealNode, wanted: set[int]) -> None:
    """Have pods of one GPU each on all of its GPUs but these."""
    for number in range(8):
        make(stage, f"{node.name}-{number}", 1, node=node.name)
    for name, its in stage.held(node).items():
        if its & wanted:
            path = f"{PODS}/{name.removeprefix(f'{NAMESPACE}/')}"
            stage.cluster.plane.demand("DELETE", f"{path}?gracePeriodSeconds=0")
    until(lambda: set().union(*stage.held(node).values()) == set(range(8)) - wanted, SOON)
