# SPDX-License-Identifier: Apache-2.0
"""An admin annotates Nodes, and nothing else: real nodes change their MIG layouts, one at a time,
next to real pods, with the shipped manifests and NVIDIA's device plugin."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from api import keys, mig_status_annotation, names
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MigStatusAnnotation
from tests.agent.agent_process import until
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.node import mig_holder
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.injecting_runtime import LIBRARIES
from tests.node.mig_change_trial import single_machine
from tests.node.mig_holder import MigHolderPod
from tests.node.node_mig import HOST, NodeMig
from tests.node.nvidia_plugin import RUNTIME_CLASS, NvidiaPlugin
from tests.node.plugin_daemonset import NAME as PLUGIN
from tests.node.plugin_daemonset import start_plugins
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

LAYOUT: Final = json.dumps({"0": {"3g.20gb": 2}})
WANTED: Final = {"nvidia.com/mig-3g.20gb": 2}
SMALL: Final = "nvidia.com/mig-1g.5gb"
SERVED: Final = {"app": "served"}
REPLICA_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
BUDGETS: Final = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
BUDGET: Final[Object] = {
    "metadata": {"name": "one-serves"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": SERVED}},
}
COORDINATOR: Final = "gpuscape coordinator --listen=:9402"
LONG: Final = 240.0
"""Seconds for a change with all that is around it on a busy machine of two cores."""
OVERLAY: Final = f"""\
resources: [gpuscape/deploy/base, gpuscape/deploy/coordinator]
components: [gpuscape/deploy/actuator]
patches:
- target: {{kind: DaemonSet, name: {names.AGENT}}}
  patch: |
    apiVersion: apps/v1
    kind: DaemonSet
    metadata: {{name: {names.AGENT}}}
    spec:
      template:
        spec:
          containers:
          - name: agent
            env:
            - {{name: GPUSCAPE_MIG_MODE, value: enforce}}
            - {{name: GPUSCAPE_MIG_STRATEGY, value: mixed}}
          - name: actuator
            env:
            - {{name: GPUSCAPE_LIBRARY, value: {LIBRARIES}/libnvidia-ml.so.1}}
            volumeMounts:
            - {{name: kubelet, mountPath: /var/lib/kubelet, readOnly: true}}
          volumes:
          - name: host
            hostPath: {{path: {HOST}, type: Directory}}
          - name: kubelet
            hostPath: {{path: /var/lib/kubelet, type: Directory}}
- target: {{kind: Deployment, name: {names.COORDINATOR}}}
  patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: {names.COORDINATOR}}}
    spec:
      template:
        spec:
          containers:
          - name: coordinator
            env:
            - {{name: GPUSCAPE_CANARY, value: 1s}}
"""


class FleetTrial:
    """Two nodes, and what their admin sees."""

    def __init__(self, there: GpuCluster) -> None:
        self.there = there
        self.plane = there.cluster.plane
        self.nodes = there.cluster.nodes

    def annotate(self, node: str, **annotations: str | None) -> None:
        """As ``kubectl annotate node`` does."""
        written = {f"gpuscape.io/{key.replace('_', '-')}": it for key, it in annotations.items()}
        body = {"metadata": {"annotations": written}}
        self.plane.demand("PATCH", f"/api/v1/nodes/{node}", body, content_type=MERGE_PATCH)

    def object(self, node: str) -> Object:
        return self.nodes[node].object()

    def status(self, node: str) -> MigStatusAnnotation | None:
        text = (self.object(node)["metadata"].get("annotations") or {}).get(keys.MIG_STATUS)
        return None if text is None else mig_status_annotation.decode(text)

    def phase(self, node: str) -> str:
        status = self.status(node)
        return "" if status is None else status.phase

    def is_open(self, node: str) -> bool:
        """Pods may be scheduled there, and nothing of a change is left."""
        found = self.object(node)
        notes = found["metadata"].get("annotations") or {}
        return not found["spec"].get("unschedulable") and keys.MIG_GRANT not in notes

    def served(self) -> list[Object]:
        """The ReplicaSet's pods."""
        found: list[Object] = self.plane.demand("GET", f"{PODS}?labelSelector=app%3Dserved")[
            "items"
        ]
        return found

    def events(self, node: str) -> dict[str, str]:
        """Reason to the last note of the Events about a Node."""
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        return {
            event["reason"]: event["note"]
            for event in self.plane.demand("GET", path)["items"]
            if event["regarding"].get("name") == node
        }

    def begun(self) -> set[str]:
        """Nodes whose change has begun and not ended."""
        return {node for node in self.nodes if not self.is_open(node)}

    def offers(self, node: str) -> dict[str, int]:
        plugin = NvidiaPlugin(plane=self.plane, node=self.nodes[node], pod=PLUGIN)
        return {name: count for name, count in plugin.allocatable().items() if count}

    def is_changed(self, node: str, wanted: Mapping[str, int] = WANTED) -> bool:
        offers = self.offers(node)
        return self.phase(node) == "unchanged" and offers == wanted and self.is_open(node)

    def looked_at(self) -> dict[str, Any]:
        """For messages."""
        return {
            node: (self.status(node), self.offers(node), self.is_open(node)) for node in self.nodes
        }


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    folder = tmp_path_factory.mktemp("fleet")
    with gpu_cluster(folder, single_machine(), single_machine()) as found:
        for node in found.cluster.nodes.values():
            node.import_image(mig_holder.image(folder / f"image-{node.name}"))
            NodeMig.on(found.gpus[node.name])
        start_plugins(found, MigStrategy.MIXED)
        overlay = found.cluster.overlay()
        (overlay / "kustomization.yaml").write_text(OVERLAY)
        found.cluster.plane.kubectl("apply", "-k", overlay)
        yield found


def test_nodes_change_when_their_pods_allow_it_and_no_sooner(there: GpuCluster) -> None:
    trial = FleetTrial(there)
    busy, idle = trial.nodes
    until(lambda: {trial.phase(node) for node in trial.nodes} == {"idle"}, LONG)
    holder = MigHolderPod.start(there, trial.nodes[busy], "holder", SMALL)
    since = there.cluster.resource_version()

    for node in trial.nodes:
        trial.annotate(node, mig_layout=LAYOUT)

    until(lambda: trial.is_changed(idle), LONG)
    until(lambda: trial.phase(busy) == "waiting", SOON)
    status = trial.status(busy)
    assert status is not None
    assert status.pods == ("default/holder",), status
    assert trial.is_open(busy)
    holder.check()
    late = MigHolderPod.start(there, trial.nodes[idle], "late", "nvidia.com/mig-3g.20gb")
    holder.delete()
    until(lambda: trial.is_changed(busy), LONG)
    late.check()

    after = MigHolderPod.start(there, trial.nodes[busy], "after", "nvidia.com/mig-3g.20gb")
    after.check()
    check_cordons(there, since)
    for pod in (late, after):
        pod.delete()
        until(lambda pod=pod: not pod.is_there, SOON)  # type: ignore[misc]


def test_pods_are_evicted_where_that_is_asked_for_and_their_budget_allows_it(
    there: GpuCluster,
) -> None:
    """None is, and nothing else happens, while a PodDisruptionBudget forbids it."""
    trial = FleetTrial(there)
    node = next(iter(trial.nodes))
    plane = there.cluster.plane
    plane.demand("POST", REPLICA_SETS, served(node))
    plane.demand("POST", BUDGETS, BUDGET)
    until(lambda: [pod["status"]["phase"] for pod in trial.served()] == ["Running"], LONG)
    (first,) = trial.served()

    trial.annotate(node, drain="evict", mig_layout=json.dumps({"0": {"1g.5gb": 7}}))

    until(lambda: "MigDrainBlocked" in trial.events(node), LONG)
    assert BUDGET["metadata"]["name"] in trial.events(node)["MigDrainBlocked"]
    assert trial.is_open(node)
    assert [pod["metadata"]["uid"] for pod in trial.served()] == [first["metadata"]["uid"]]
    plane.demand("DELETE", f"{BUDGETS}/{BUDGET['metadata']['name']}")
    until(lambda: trial.is_changed(node, {SMALL: 7}), LONG)

    (second,) = trial.served()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["status"]["phase"] == "Pending"
    trial.annotate(node, drain=None, mig_layout=LAYOUT)
    until(lambda: [pod["status"]["phase"] for pod in trial.served()] == ["Running"], LONG)
    plane.demand("DELETE", f"{REPLICA_SETS}/served?propagationPolicy=Background")
    until(lambda: not trial.served() and trial.is_changed(node), LONG)


def served(node: str) -> Object:
    """A ReplicaSet of one pod with a MIG device, on one node."""
    pod = gpu_pod("served", gpus("main", 1, resource="nvidia.com/mig-3g.20gb"), node=node)
    pod["metadata"] = {"labels": SERVED}
    pod["spec"]["runtimeClassName"] = RUNTIME_CLASS
    pod["spec"]["containers"][0]["image"] = mig_holder.IMAGE
    selector = {"matchLabels": SERVED}
    return {
        "metadata": {"name": "served"},
        "spec": {"replicas": 1, "selector": selector, "template": pod},
    }


def test_changes_end_although_kubelet_coordinator_and_agent_are_killed_in_the_middle(
    there: GpuCluster,
) -> None:
    """Each of them at another moment of a change, on both nodes; pods on GPUs run on."""
    trial = FleetTrial(there)
    until(lambda: {trial.phase(node) for node in trial.nodes} <= {"idle", "unchanged"}, LONG)
    since = there.cluster.resource_version()
    layout = json.dumps({"0": {"1g.5gb": 7}})
    for node in trial.nodes:
        trial.annotate(node, mig_layout=layout)
    struck: set[str] = set()

    def is_done(node: str) -> bool:
        return trial.is_changed(node, {SMALL: 7})

    while not all(map(is_done, trial.nodes)):
        until(lambda: bool(trial.begun() - struck) or all(map(is_done, trial.nodes)), LONG)
        for node in trial.begun() - struck:
            struck.add(node)
            strike(trial, node)
    assert struck
    check_cordons(there, since)


def strike(trial: FleetTrial, node: str) -> None:
    """SIGKILL the kubelet of a node that is cordoned for its change, all coordinators, and then its
    agent."""
    machine = trial.nodes[node]
    machine.stop("kubelet", signal.SIGKILL)
    kill_all(trial, COORDINATOR)
    machine.start_kubelet()
    until(lambda: trial.phase(node) in ("changing", "unchanged"), LONG)
    for process in machine.processes("gpuscape agent"):
        process.kill()


def kill_all(trial: FleetTrial, program: str) -> None:
    """SIGKILL the program wherever it runs; the kubelet starts its container again."""
    for node in trial.nodes.values():
        for process in node.processes(program):
            process.kill()


def check_cordons(there: GpuCluster, since: str) -> None:
    """Never more than one node was cordoned, and none is left so."""
    cordoned: set[str] = set()
    for version in there.cluster.versions("/api/v1/nodes", since=since):
        name, spec = version["metadata"]["name"], version["spec"]
        (cordoned.add if spec.get("unschedulable") else cordoned.discard)(name)
        assert len(cordoned) <= 1
    assert not cordoned
