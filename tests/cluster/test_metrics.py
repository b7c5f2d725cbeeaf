# SPDX-License-Identifier: Apache-2.0
"""Metrics of a real agent whose kubelet gives GPUs to pods of a real API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, until
from tests.cluster.agents import Site, agent
from tests.kubelet_nodes.cases import FirstOffered, pod
from tests.kubelet_nodes.kubelet import Kubelets
from tests.kubelet_nodes.node import Node
from tools.access.files import parts_of, text

pytestmark = pytest.mark.cluster

QUICK = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}
LABELLED = {
    "GPUSCAPE_POD_UID_LABEL": "true",
    "GPUSCAPE_POD_LABELS": "true",
    "GPUSCAPE_POD_LABEL_ALLOWLIST": "^team$",
}
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path / "machine")


@pytest.fixture
def node(site: Site, simulation: Simulation, tmp_path: Path) -> Iterator[Node]:
    with Kubelets(site.plane, FirstOffered(), tmp_path / "kubelets") as kubelets:
        joined = kubelets.join(simulation)
        (tmp_path / "sockets").symlink_to(joined.sockets)
        yield joined


def run_a_pod(site: Site, node: Node) -> tuple[str, str]:
    """Namespace and UID of a pod named ``train`` that holds one GPU and has two labels."""
    namespace = site.plane.namespace("jobs")
    body = pod("train", gpus=1, node=node.name, namespace=namespace)
    body["metadata"]["labels"] = {"team": "vision", "secret": "s"}
    del body["metadata"]["uid"]
    made = site.plane.demand("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    return namespace, made["metadata"]["uid"]


def held(process: AgentProcess) -> list[str]:
    """Temperature series that name a pod."""
    lines = process.metrics().splitlines()
    return [line for line in lines if line.startswith(TEMPERATURE) and "pod=" in line]


def test_a_pods_gpu_names_it_until_the_pod_is_gone(
    site: Site, node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    with agent(site, node.name, simulation, tmp_path, options=QUICK) as process:
        until(lambda: TEMPERATURE in process.metrics())
        assert held(process) == []
        namespace, _ = run_a_pod(site, node)
        until(lambda: bool(held(process)))
        (line,) = held(process)
        assert f'container="main",namespace="{namespace}",pod="train"' in line
        assert "gpuscape_free_gpus" in process.metrics()
        site.plane.demand("DELETE", f"/api/v1/namespaces/{namespace}/pods/train")
        until(lambda: not held(process))


def test_uid_and_chosen_labels_come_with_the_right_to_read_pods(
    site: Site, node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    site.plane.kubectl("apply", "-f", "-", stdin=text(parts_of(site.namespace)["pods"]))
    with agent(site, node.name, simulation, tmp_path, options={**QUICK, **LABELLED}) as process:
        _, uid = run_a_pod(site, node)
        until(lambda: any("pod_uid=" in line for line in held(process)))
        (line,) = held(process)
    assert f'pod_uid="{uid}"' in line
    assert 'team="vision"' in line
    assert "secret" not in line


def test_without_that_right_the_pods_name_still_stands_there_and_the_log_says_why(
    site: Site, node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    site.plane.kubectl(
        "delete", "--ignore-not-found", "-f", "-", stdin=text(parts_of(site.namespace)["pods"])
    )
    with agent(site, node.name, simulation, tmp_path, options={**QUICK, **LABELLED}) as process:
        run_a_pod(site, node)
        until(lambda: bool(held(process)))
        (line,) = held(process)
        until(lambda: bool(re.search("may not read pods", str(process.logged) + process.said)))
    assert "pod_uid=" not in line


def test_counters_come_from_a_config_map_and_from_the_default_where_it_cannot_be_read(
    site: Site, node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    options = {**QUICK, "GPUSCAPE_COUNTERS_FROM": f"{site.namespace}:exporter-metrics"}
    with agent(site, node.name, simulation, tmp_path, options=options) as process:
        until(lambda: "DCGM_FI_DEV_POWER_USAGE" in process.metrics())

    allow_config_maps(site)
    with agent(site, node.name, simulation, tmp_path, options=options) as process:
        until(lambda: TEMPERATURE in process.metrics())
        assert "DCGM_FI_DEV_POWER_USAGE" not in process.metrics()


def allow_config_maps(site: Site) -> None:
    """Make the ConfigMap of counters, and a role to read it as an admin would."""
    plane, namespace = site.plane, site.namespace
    core, rbac = f"/api/v1/namespaces/{namespace}", "/apis/rbac.authorization.k8s.io/v1"
    data = {"metrics": f"{TEMPERATURE}, gauge, how warm it is\n"}
    plane.demand(
        "POST", f"{core}/configmaps", {"metadata": {"name": "exporter-metrics"}, "data": data}
    )
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    plane.demand(
        "POST",
        f"{rbac}/namespaces/{namespace}/roles",
        {"metadata": {"name": "read-counters"}, "rules": [rule]},
    )
    plane.demand(
        "POST",
        f"{rbac}/namespaces/{namespace}/rolebindings",
        {
            "metadata": {"name": "read-counters"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "read-counters",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "gpuscape-agent", "namespace": namespace}
            ],
        },
    )
