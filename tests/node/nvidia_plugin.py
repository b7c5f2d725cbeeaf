# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's device plugin on a real node, unchanged: a pod as its own manifest has it.

It needs the node's GPUs (:mod:`tests.node.node_gpus`). There is no image of it here: the pod has
ours, for its C library, and the program from the folder of builds.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from api.mig_resources import MigStrategy
from tests.agent.agent_process import until
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.controlplane.plane import Object, Plane
from tests.deploy.daemonset import container, daemonset
from tests.node.machine import LOGS
from tests.node.real_node import SOON, RealNode

NAMESPACE: Final = "kube-system"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
RUNTIME_CLASS: Final = "nvidia"
SOCKETS: Final = "/var/lib/kubelet/device-plugins"
CONFIG: Final = "plugin-config"
"""Below the node's /var/log, which can be written to from outside."""

GPU: Final = "nvidia.com/gpu"
REGISTERED: Final = "Registered device plugin for"
"""In its log, once for each resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaPlugin:
    """The plugin of one node."""

    plane: Plane
    node: RealNode
    pod: str
    """Its name."""

    @classmethod
    def start(
        cls,
        plane: Plane,
        node: RealNode,
        *,
        strategy: MigStrategy = MigStrategy.NONE,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Start it; the kubelet offers its devices when this returns.

        ``settings``: of its configuration file, such as ``{"sharing": …}``.
        """
        plugin = cls(plane=plane, node=node, pod=f"nvidia-device-plugin-{node.name}")
        make_runtime_class(plane)
        config = node.folder / LOGS / CONFIG
        config.mkdir(exist_ok=True)
        content = {"version": "v1", **(settings or {})}
        (config / "config.yaml").write_text(json.dumps(content), encoding="utf-8")
        plane.demand("POST", PODS, plugin.manifest(strategy))
        until(lambda: REGISTERED in plugin.log(), SOON)
        until(lambda: any(plugin.allocatable().values()), SOON)
        return plugin

    def stop(self) -> None:
        """End it, and wait until it is gone: what it offered is then unhealthy."""
        self.plane.demand("DELETE", f"{PODS}/{self.pod}?gracePeriodSeconds=5")
        until(self._is_gone, SOON)

    def allocatable(self) -> dict[str, int]:
        """Resource to how many devices the Node offers to pods."""
        offered = self.node.object()["status"].get("allocatable", {})
        return {name: int(text) for name, text in offered.items() if name.startswith("nvidia.com/")}

    def log(self) -> str:
        """What it has written, all its containers together."""
        pods = self.node.folder / LOGS / "pods"
        files = sorted(pods.glob(f"{NAMESPACE}_{self.pod}_*/*/*.log"))
        return "".join(file.read_text(errors="replace") for file in files)

    def _is_gone(self) -> bool:
        return self.plane.request("GET", f"{PODS}/{self.pod}").status == http.client.NOT_FOUND

    def manifest(self, strategy: MigStrategy) -> Object:
        """Rights and mounts as its release's static manifest for a plugin that sees MIG devices.

        Source: k8s-device-plugin 0.19.0, deployments/static and its Helm chart.
        """
        program = "/plugin"
        folders = {
            "sockets": (SOCKETS, SOCKETS),
            "program": (str(binaries(NVIDIA)), program),
            "config": (f"/var/log/{CONFIG}", "/config"),
        }
        variables = {
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "utility",
            "NVIDIA_MIG_MONITOR_DEVICES": "all",
            "MIG_STRATEGY": strategy.value,
            "CONFIG_FILE": "/config/config.yaml",
            "DEVICE_DISCOVERY_STRATEGY": "nvml",
        }
        return {
            "metadata": {"name": self.pod, "namespace": NAMESPACE},
            "spec": {
                "nodeName": self.node.name,
                "runtimeClassName": RUNTIME_CLASS,
                "priorityClassName": "system-node-critical",
                "automountServiceAccountToken": False,
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": "nvidia-device-plugin",
                        "image": container(daemonset())["image"],
                        "imagePullPolicy": "Never",
                        "command": [f"{program}/nvidia-device-plugin"],
                        "env": [{"name": key, "value": text} for key, text in variables.items()],
                        "securityContext": {
                            "runAsUser": 0,
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [
                            {"name": name, "mountPath": there}
                            for name, (_, there) in folders.items()
                        ],
                    }
                ],
                "volumes": [
                    {"name": name, "hostPath": {"path": here}}
                    for name, (here, _) in folders.items()
                ],
            },
        }


def make_runtime_class(plane: Plane) -> None:
    """Make the RuntimeClass that the GPU operator makes, which GPU clusters have."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    if plane.request("GET", f"{path}/{RUNTIME_CLASS}").status == http.client.NOT_FOUND:
        body = {"metadata": {"name": RUNTIME_CLASS}, "handler": "nvidia"}
        plane.demand("POST", path, body)
