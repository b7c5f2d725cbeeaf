# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's device plugin as a DaemonSet: a pod of it that leaves comes back by itself."""

from __future__ import annotations

import json
from typing import Final

from api.mig_resources import MigStrategy
from tests.agent.agent_process import until
from tests.node.gpu_cluster import GpuCluster
from tests.node.machine import LOGS
from tests.node.nvidia_plugin import CONFIG, NAMESPACE, NvidiaPlugin
from tests.node.real_node import SOON

NAME: Final = "nvidia-device-plugin-daemonset"
LABELS: Final = {"name": "nvidia-device-plugin-ds"}
"""As its release's static manifest has them."""
DEPLOYED: Final = "nvidia.com/gpu.deploy.device-plugin"
"""Label of Nodes by which the GPU operator has it there. Source: NVIDIA/gpu-operator,
assets/state-device-plugin/0500_daemonset.yaml."""


def start_plugins(there: GpuCluster, strategy: MigStrategy, *, by_operator: bool = False) -> None:
    """Start it on all nodes, which offer their devices when this returns.

    ``by_operator``: it is where a Node's label says so, as the GPU operator deploys it.
    """
    for name, node in there.cluster.nodes.items():
        there.cluster.label(name, {DEPLOYED: "true"} if by_operator else {})
        folder = node.folder / LOGS / CONFIG
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(json.dumps({"version": "v1"}), encoding="utf-8")
    plane = there.cluster.plane
    nodes = list(there.cluster.nodes.values())
    spec = NvidiaPlugin(plane=plane, node=nodes[0], pod=NAME).manifest(strategy)["spec"]
    del spec["nodeName"]
    spec["nodeSelector"] = {DEPLOYED: "true"} if by_operator else {}
    body = {
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }
    plane.demand("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", body)
    for node in nodes:
        plugin = NvidiaPlugin(plane=plane, node=node, pod=NAME)
        until(lambda plugin=plugin: any(plugin.allocatable().values()), SOON)  # type: ignore[misc]
