# SPDX-License-Identifier: Apache-2.0
"""The objects that every case finds: the agent's, those of its neighbours, those of others."""

from __future__ import annotations

from typing import Any

from tests.access import certificate_cases
from tests.access.object_cases import (
    CORE_EVENTS,
    DAEMON_SETS,
    FEATURES,
    KNOWN,
    LEASES,
    NEIGHBOUR,
    OF_KUBELET,
    OF_NEIGHBOUR,
    SELF,
    core_event,
    feature,
    lease,
)

Object = dict[str, Any]

APPLIER = "other-applier"
APPLIED: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"labels": {"example.com/applied": "x", "nvidia.com/gpu.family": "hopper"}},
}
"""What somebody keeps on the agent's Node by server-side apply, a key of ours among it."""


def node(name: str) -> Object:
    """A Node with keys of everybody."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": "z",
                "example.com/team": "a",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.product": "H100",
                "nvidia.com/gpu.deploy.device-plugin": "true",
                "nvidia.com/gpu.deploy.dcgm-exporter": "false",
                "nvidia.com/mig.config": "all-disabled",
            },
            "annotations": {
                "example.com/note": "kept",
                "gpuscape.io/topology": "{}",
                "gpuscape.io/mig-layout": "{}",
                "gpuscape.io/mig-request": "",
            },
            "finalizers": ["example.com/keep"],
        },
        "spec": {"taints": [{"key": "example.com/kept", "effect": "NoSchedule"}]},
    }


def daemon_set(name: str) -> Object:
    """A DaemonSet for no node, as far as its controller runs."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"example.com/none": "x"},
                    "containers": [{"name": "main", "image": "none"}],
                },
            },
        },
    }


def _kept(**metadata: Any) -> Object:
    return {"annotations": {"example.com/note": "kept"}, **metadata}


OBJECTS: tuple[tuple[str, Object], ...] = (
    *(("/api/v1/nodes", node(name)) for name in ("$node", "$other", "$nodex", "$node.x")),
    *(
        (LEASES, lease(name, **_kept()))
        for name in ("gpuscape-$node", "gpuscape-$other", "mig-slot-0", "coordinator")
    ),
    (LEASES.replace("$ns", "kube-node-lease"), lease("$node")),
    *((DAEMON_SETS, daemon_set(name)) for name in ("gpuscape-agent", "other")),
    *certificate_cases.OBJECTS,
    (FEATURES, feature()),
    (FEATURES, feature("nvidia-features-for-$other", node="$other")),
    *(
        (CORE_EVENTS.format("default"), event)
        for event in (
            core_event(KNOWN, SELF),
            core_event(OF_NEIGHBOUR, NEIGHBOUR),
            core_event(OF_KUBELET, SELF, reporter="kubelet"),
        )
    ),
)
"""Where each is created, and the object; the Nodes first."""
