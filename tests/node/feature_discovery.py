# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's gpu-feature-discovery on real nodes, unchanged: a DaemonSet as its chart has it.

There is no image of it here: its pods have ours, for the C library, and the program from the
folder of builds. What it publishes reaches the Nodes through nfd-master.
"""

from __future__ import annotations

from typing import Any, Final

from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.controlplane.plane import Plane
from tests.deploy.daemonset import container, daemonset
from tests.node.nvidia_plugin import RUNTIME_CLASS
from tests.node.real_cluster import GPU_NODE

NAME: Final = "gpu-feature-discovery"
PROGRAM: Final = "/plugin"
_RULES: Final = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    {
        "apiGroups": ["nfd.k8s-sigs.io"],
        "resources": ["nodefeatures"],
        "verbs": ["get", "list", "watch", "create", "update"],
    },
)
"""Source: k8s-device-plugin 0.19.0, its Helm chart's role."""


def grant(plane: Plane, namespace: str) -> None:
    """Make its account, with the rights that its chart gives."""
    plane.cluster_account(namespace, NAME, _RULES)


def install(plane: Plane, namespace: str) -> None:
    """Have it run on every GPU node."""
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    labels = {"app.kubernetes.io/name": NAME}
    plane.demand(
        "POST",
        path,
        {
            "metadata": {"name": NAME},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod()},
            },
        },
    )


def _pod() -> dict[str, Any]:
    variables: list[dict[str, Any]] = [
        {"name": name, "value": text}
        for name, text in (
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("NVIDIA_DRIVER_CAPABILITIES", "utility"),
            ("DEVICE_DISCOVERY_STRATEGY", "nvml"),
            ("GFD_USE_NODE_FEATURE_API", "true"),
            ("GFD_SLEEP_INTERVAL", "5s"),
        )
    ]
    variables += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
        for name, field in (
            ("NODE_NAME", "spec.nodeName"),
            ("NAMESPACE", "metadata.namespace"),
            ("POD_NAME", "metadata.name"),
        )
    ]
    return {
        "nodeSelector": {GPU_NODE: "true"},
        "runtimeClassName": RUNTIME_CLASS,
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": NAME,
                "image": container(daemonset())["image"],
                "imagePullPolicy": "Never",
                "command": [f"{PROGRAM}/{NAME}"],
                "env": variables,
                "securityContext": {"runAsUser": 0},
                "volumeMounts": [{"name": "program", "mountPath": PROGRAM}],
            }
        ],
        "volumes": [{"name": "program", "hostPath": {"path": str(binaries(NVIDIA))}}],
    }
