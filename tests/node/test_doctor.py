# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor`` on a real node: with a kubelet, NVIDIA's device plugin and a real agent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import names
from api.mig_resources import GPU_RESOURCE
from diagnosis.facts.cluster_facts import doctor_client
from diagnosis.facts.pod_facts import read_pod
from diagnosis.facts.remote_node_facts import read_remote_node
from diagnosis.finding import examine
from diagnosis.finding_catalog import NODE_CHECKS, POD_CHECKS
from kube.api import InspectedApi
from kube.credentials import find
from tests.agent.agent_process import until
from tests.node.container_agents import labels_of
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.node_doctor import examined, examined_in_its_pod
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

MACHINE = "dgx-a100"
RIVAL = "nvidia-mig-manager-abcde"
NOT_MOUNTED = {"device-plugin", "held-devices", "numa-nodes"}
"""What takes the kubelet's own files."""


def test_a_healthy_node_has_no_finding_and_one_that_lost_its_plugin_has(
    tmp_path: Path,
) -> None:
    with gpu_cluster(tmp_path, MACHINE) as there:
        node, wanted = there.node, labels_of(MACHINE)
        plugin = NvidiaPlugin.start(there.cluster.plane, node)
        until(lambda: wanted.keys() <= node.object()["metadata"]["labels"].keys(), SOON)

        healthy = examined(there)

        assert healthy.causes == {}
        assert set(healthy.not_looked_at) <= {"feature-discovery", "dcgm-exporter", "mig-managers"}
        versions = set(healthy.document["versions"])
        assert versions == {
            *("gpuscape", "image", "driver", "NVML", "Kubernetes", "kubelet", "runtime"),
        }

        in_its_pod = examined_in_its_pod(there)

        assert in_its_pod.causes == {}
        assert set(in_its_pod.document["versions"]) == versions
        assert set(in_its_pod.not_looked_at) == NOT_MOUNTED

        assert outside(there) == {}

        rival = gpu_pod(RIVAL, gpus("main", 0))
        rival["spec"]["nodeName"] = node.name
        there.cluster.plane.demand("POST", PODS, rival)
        until(lambda: set(examined_in_its_pod(there).causes) == {"other-mig-manager"}, SOON)
        assert (
            examined_in_its_pod(there)
            .causes["other-mig-manager"]
            .endswith(f"(pod {NAMESPACE}/{RIVAL})")
        )
        there.cluster.plane.demand("DELETE", f"{PODS}/{RIVAL}?gracePeriodSeconds=0")

        plugin.stop()
        until(lambda: not plugin.allocatable().get(GPU_RESOURCE), SOON)

        assert set(examined(there).causes) == {"no-device-plugin"}
        assert set(outside(there)) == {"node-offers-no-gpu"}

        bound = gpu_pod("late", gpus("main", 1))
        bound["spec"]["nodeName"] = node.name
        there.cluster.plane.demand("POST", PODS, bound)
        until(lambda: of_pod(there, "late") != {}, SOON)

        refused = of_pod(there, "late")
        assert set(refused) == {"pod-refused-by-devices"}
        assert refused["pod-refused-by-devices"].startswith("UnexpectedAdmissionError: ")


def outside(there: GpuCluster) -> dict[str, str]:
    """What an admin finds of the Node: finding to what was found."""
    with admin(there) as api:
        facts = read_remote_node(api, there.node.name, names.NAMESPACE)
    made = examine(NODE_CHECKS, facts)
    assert made.missed_checks == ()
    return {each.name: each.cause for each in made.findings}


def of_pod(there: GpuCluster, name: str) -> dict[str, str]:
    """The same of a pod."""
    with admin(there) as api:
        made = examine(POD_CHECKS, read_pod(api, NAMESPACE, name, SOON))
    return {each.name: each.cause for each in made.findings}


@contextlib.contextmanager
def admin(there: GpuCluster) -> Iterator[InspectedApi]:
    """The cluster with an admin's rights."""
    access = find(str(there.cluster.plane.kubeconfig()))
    with contextlib.closing(doctor_client("gpuscape-doctor", access)) as api:
        yield api
