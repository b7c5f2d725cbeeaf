# SPDX-License-Identifier: Apache-2.0
"""An admin annotates Nodes, and nothing else: real nodes change their MIG layouts, one at a time,
next to real pods, with the shipped manifests and NVIDIA's device plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from api import keys, mig_status_annotation, names
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MigStatusAnnotation
from tests.agent.agent_process import until
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.node import mig_holder
from tests.node.gpu_cluster import GpuCluster, gpu_cluster
from tests.node.injecting_runtime import LIBRARIES
from tests.node.mig_change_trial import single_machine
from tests.node.mig_holder import MigHolderPod
from tests.node.node_mig import HOST, NodeMig
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.plugin_daemonset import NAME as PLUGIN
from tests.node.plugin_daemonset import start_plugins
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

LAYOUT: Final = json.dumps({"0": {"3g.20gb": 2}})
WANTED: Final = {"nvidia.com/mig-3g.20gb": 2}
SMALL: Final = "nvidia.com/mig-1g.5gb"
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

    def offers(self, node: str) -> dict[str, int]:
        plugin = NvidiaPlugin(plane=self.plane, node=self.nodes[node], pod=PLUGIN)
        return {name: count for name, count in plugin.allocatable().items() if count}

    def is_changed(self, node: str) -> bool:
        return (
            self.phase(node) == "unchanged" and self.offers(node) == WANTED and self.is_open(node)
        )

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
    cordoned: set[str] = set()
    for version in there.cluster.versions("/api/v1/nodes", since=since):
        name, spec = version["metadata"]["name"], version["spec"]
        (cordoned.add if spec.get("unschedulable") else cordoned.discard)(name)
        assert len(cordoned) <= 1
