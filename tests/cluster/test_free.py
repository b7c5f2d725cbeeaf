# SPDX-License-Identifier: Apache-2.0
"""``kubectl gpuscape free`` with the real kubectl, on a real API server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api import keys, names
from kube.api import LEASES
from kube.lease import micro_time
from tests.agent.agent_process import GPUSCAPE
from tests.controlplane.builds import binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, KUBERNETES
from tests.controlplane.plane import Plane
from tests.kube.clusters import client
from tests.scheduler import fleets

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"
READER = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-reader}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: NAMESPACE}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """With two nodes of eight GPUs, of which one is half full and the other cordoned."""
    folder = tmp_path_factory.mktemp("plane")
    with Plane.start(folder, controller_manager=False) as made:
        made.kubectl("create", "namespace", names.NAMESPACE)
        publish(made, "gpu-a", {"p": 0b11110000})
        publish(made, "gpu-b", {})
        made.make_node("cpu-a")
        made.kubectl("cordon", "gpu-b")
        yield made


def publish(plane: Plane, node: str, pods: dict[str, int]) -> None:
    """A Node and a Lease as an agent leaves them."""
    annotations = {keys.TOPOLOGY: fleets.topology()}
    plane.make_node(node, annotations=annotations, capacity={GPU: "8"}, labels={"pool": node})
    lease = fleets.lease(pods=pods)
    lease["metadata"] = {
        "name": names.agent_lease(node),
        "annotations": lease["metadata"]["annotations"],
    }
    lease["spec"]["renewTime"] = micro_time(datetime.now(UTC))
    with contextlib.closing(client("tests", plane.kubeconfig())) as api:
        api.create(LEASES, lease, namespace=names.NAMESPACE)


def kubectl(kubeconfig: str | Path, *words: str) -> subprocess.CompletedProcess[str]:
    """kubectl, which finds its plugins in PATH."""
    path = f"{GPUSCAPE.parent}:{os.environ.get('PATH', '')}"
    return subprocess.run(
        [binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl", *words],
        env={"PATH": path, "HOME": "/nonexistent", "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def found(plane: Plane, *words: str) -> Any:
    done = kubectl(plane.kubeconfig(), "gpuscape", "free", *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plugin_shows_what_is_free(plane: Plane) -> None:
    document = found(plane)
    first, second = document["nodes"]
    assert (first["node"], first["free"]) == ("gpu-a", [0, 1, 2, 3])
    assert first["linked"]["gpus"] == [0, 1]
    assert (second["node"], second["cordoned"]) == ("gpu-b", True)
    (total,) = document["totals"]
    assert (total["nodes"], total["out"], total["free"]) == (2, 1, 4)
    assert [node["node"] for node in found(plane, "-l", "pool=gpu-b")["nodes"]] == ["gpu-b"]
    table = kubectl(plane.kubeconfig(), "gpuscape", "free").stdout
    assert [line.split()[0] for line in table.splitlines()[:3]] == ["NODE", "gpu-a", "gpu-b"]


def test_a_pod_of_two_gets_a_bridged_pair_and_bound_pods_count(plane: Plane) -> None:
    (node,) = found(plane, "2")["nodes"]
    assert (node["node"], node["sets"][0]["gpus"], node["gbps"]) == ("gpu-a", [0, 1], 300.0)
    plane.account("default", "default")
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "3"}}}
    pod = {"metadata": {"name": "late"}, "spec": {"nodeName": "gpu-a", "containers": [container]}}
    plane.demand("POST", "/api/v1/namespaces/default/pods", pod)
    assert found(plane, "2", "--pods")["nodes"] == []
    assert len(found(plane, "--pods")["nodes"][0]["free"]) == 1


def test_a_missing_right_is_named_with_verb_and_resource(plane: Plane) -> None:
    namespace = plane.namespace("readers")
    plane.account(namespace, "reader")
    kubeconfig = plane.kubeconfig(token=plane.token(namespace, "reader"))
    nothing = kubectl(kubeconfig, "gpuscape", "free")
    assert nothing.returncode == 4
    assert "nodes" in nothing.stderr
    assert "forbidden" in nothing.stderr
    plane.kubectl("apply", "-f", "-", stdin=READER.replace("NAMESPACE", namespace))
    nodes_only = kubectl(kubeconfig, "gpuscape", "free")
    assert nodes_only.returncode == 4
    assert "leases" in nodes_only.stderr
    assert "get, list and watch" in nodes_only.stderr


def test_kubectl_completes_it(plane: Plane) -> None:
    listed = kubectl(plane.kubeconfig(), "plugin", "list")
    assert "/kubectl-gpuscape" in listed.stdout
    completed = kubectl(plane.kubeconfig(), "__complete", "gpuscape", "fr")
    assert completed.stdout.split() == ["free", ":4"]
    completed = kubectl(plane.kubeconfig(), "__complete", "gpuscape", "free", "--wat")
    assert completed.stdout.split() == ["--watch", ":4"]
