# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's MIG manager on real nodes, unchanged: a DaemonSet as its example manifest has it.

There is no image of it here: its own program and script, nvidia-mig-parted, kubectl and bash with
what the script starts are put into one. It sees the node's driver as the actuator does, below
``/host``, and, before it starts, the machine's ``/proc`` over its own, which has no driver. Host
services are not stopped, no node is rebooted: nodes here have no systemd.
Source: mig-parted 0.10.0, deployments/container.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBERNETES, MIG_MANAGER, NVIDIA
from tests.controlplane.plane import MERGE_PATCH, Object, Plane
from tests.node import images
from tests.node.machine import LOGS
from tests.node.node_mig import HOST
from tests.node.nvidia_plugin import NAMESPACE as CLIENTS
from tests.node.nvidia_plugin import RUNTIME_CLASS
from tests.node.plugin_daemonset import NAME as PLUGIN
from tests.node.real_node import RealNode

NAME: Final = "nvidia-mig-manager"
NAMESPACE: Final = "gpu-operator"
HERE: Final = "nvidia.com/gpu.deploy.mig-manager"
PLUGIN_HERE: Final = "nvidia.com/gpu.deploy.device-plugin"
"""Labels of Nodes by which the GPU operator's DaemonSets choose them."""
IMAGE: Final = "localhost/mig-manager:1"
_CONFIG: Final = "mig-parted-config"
_RULES: Final = ({"apiGroups": [""], "resources": ["*"], "verbs": ["*"]},)
_START: Final = "mount --rbind /host/proc /proc && exec nvidia-mig-manager"
_STOPS: Final = "Shutting down all GPU clients in Kubernetes"
"""In its log, before each change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigManager:
    """The DaemonSet; its pods are where a Node's label says so."""

    plane: Plane

    @classmethod
    def install(cls, plane: Plane, nodes: list[RealNode], folder: Path) -> Self:
        """Install it; the device plugin's DaemonSet obeys its Node label from now on as well."""
        file = _image(folder)
        for node in nodes:
            node.import_image(file)
        plane.cluster_account(NAMESPACE, NAME, _RULES)
        config = (binaries(NVIDIA) / "config-default.yaml").read_text(encoding="utf-8")
        data = {"metadata": {"name": _CONFIG}, "data": {"config.yaml": config}}
        plane.demand("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", data)
        plugin = {
            "metadata": {"labels": {"app": "nvidia-device-plugin-daemonset"}},
            "spec": {"nodeSelector": {PLUGIN_HERE: "true"}},
        }
        path = f"/apis/apps/v1/namespaces/{CLIENTS}/daemonsets/{PLUGIN}"
        change: Object = {"spec": {"template": plugin}}
        plane.demand("PATCH", path, change, content_type=MERGE_PATCH)
        labels = {"app": NAME}
        daemonset: Object = {
            "metadata": {"name": NAME, "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod()},
            },
        }
        plane.demand("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", daemonset)
        return cls(plane=plane)

    @property
    def user(self) -> str:
        """Of its requests."""
        return f"system:serviceaccount:{NAMESPACE}:{NAME}"

    def pods(self) -> list[Object]:
        """Those that there are, on all nodes."""
        found: list[Object] = self.plane.demand("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")[
            "items"
        ]
        return found

    def stops(self, node: RealNode) -> int:
        """How often its pod there has stopped the node's clients; logs go with their pods."""
        pods = node.folder / LOGS / "pods"
        files = sorted(pods.glob(f"{NAMESPACE}_{NAME}-*/*/*.log"))
        return sum(file.read_text(errors="replace").count(_STOPS) for file in files)


def _image(folder: Path) -> Path:
    root = folder / NAME
    there = root / "usr/bin"
    there.mkdir(parents=True)
    script = "reconfigure-mig.sh"
    for program in (
        binaries(MIG_MANAGER) / NAME,
        binaries(MIG_MANAGER) / script,
        binaries(NVIDIA) / "nvidia-mig-parted",
        binaries(KUBERNETES["1.37"]) / "kubectl",
        *(Path(str(shutil.which(name))) for name in ("bash", "env", "mount", "sleep")),
    ):
        placed = there / program.name
        shutil.copy2(program, placed)
        placed.chmod(0o755)
        if program.name != script:
            images.place_libraries(placed, root)
    for name in ("proc", "sys", "host", "tmp"):
        (root / name).mkdir(exist_ok=True)
    config = {"Entrypoint": ["bash", "-c", _START], "Env": ["PATH=/usr/bin"]}
    return images.write(folder / f"{NAME}.tar", IMAGE, root, config)


def _pod() -> dict[str, Any]:
    variables: list[dict[str, Any]] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        *(
            {"name": name, "value": text}
            for name, text in (
                ("CONFIG_FILE", f"/{_CONFIG}/config.yaml"),
                ("HOST_ROOT_MOUNT", "/host"),
                ("DEFAULT_GPU_CLIENTS_NAMESPACE", CLIENTS),
                ("WITH_REBOOT", "false"),
                ("NVIDIA_VISIBLE_DEVICES", "all"),
                ("NVIDIA_MIG_CONFIG_DEVICES", "all"),
                ("NVIDIA_DRIVER_CAPABILITIES", "utility"),
            )
        ),
    ]
    folders = {"host-root": "/host", _CONFIG: f"/{_CONFIG}"}
    return {
        "hostPID": True,
        "hostIPC": True,
        "nodeSelector": {HERE: "true"},
        "runtimeClassName": RUNTIME_CLASS,
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": NAME,
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "env": variables,
                "securityContext": {"privileged": True},
                "volumeMounts": [
                    {"name": name, "mountPath": path} for name, path in folders.items()
                ],
            }
        ],
        "volumes": [
            {"name": "host-root", "hostPath": {"path": str(HOST), "type": "Directory"}},
            {"name": _CONFIG, "configMap": {"name": _CONFIG}},
        ],
    }
