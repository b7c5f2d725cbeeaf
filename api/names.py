# SPDX-License-Identifier: Apache-2.0
"""Names of gpuscape's objects in the cluster, where more than one program must know them.

Roles and admission policies are generated from these and from :mod:`api.keys`.
"""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "gpuscape"
"""Where it is installed unless somebody chooses another."""

AGENT: Final = "gpuscape-agent"
"""Account, field manager, and reporting controller of Events; so are the next two."""
COORDINATOR: Final = "gpuscape-coordinator"
SCHEDULER: Final = "gpuscape-scheduler"
"""The extender, and its Service."""
CERTIFICATES: Final = "gpuscape-certificates"
"""Account and field manager of the program that makes the extender's certificates."""

AGENT_DAEMON_SET: Final = "gpuscape-agent"
"""Whose status tells an agent how many there are."""

AGENT_FLOOR: Final = "gpuscape-agent-floor"
"""Admission policies that the agent asks whether they hold it; so are the next four."""
AGENT_NODE: Final = "gpuscape-agent-node"
AGENT_LEASE: Final = "gpuscape-agent-lease"
AGENT_EVENT: Final = "gpuscape-agent-event"
AGENT_NODE_FEATURE: Final = "gpuscape-agent-nodefeature"
MIG_GRANT: Final = "gpuscape-mig-grant"
"""Admission policy that keeps everybody but the coordinator from granting a MIG change."""

COORDINATOR_LEASE: Final = "coordinator"
MIG_POLICY: Final = "gpuscape-mig-policy"
"""ConfigMap of the fleet policy."""
SCHEDULER_CA: Final = "gpuscape-scheduler-ca"
"""Secret of the authority that signs the next two: the extender's, and kube-scheduler's."""
SCHEDULER_TLS: Final = "gpuscape-scheduler-tls"
KUBE_SCHEDULER_TLS: Final = "gpuscape-kube-scheduler-tls"
SLOT_LEASE_PREFIX: Final = "mig-slot-"

ACTUATOR_SOCKET: Final = "/run/gpuscape/actuator/actuator.sock"
"""Where the actuator is asked unless somebody chooses another place."""

EVENT_NAMESPACE: Final = "default"
"""Where Events about Nodes live, which have no namespace of their own."""

NODE_FEATURE_NODE_LABEL: Final = "nfd.node.kubernetes.io/node-name"
"""Label that names the Node of a NodeFeature to nfd-master."""
FEATURE_LABELS: Final = "nfd.node.kubernetes.io/feature-labels"
"""Node annotation: the labels that nfd-master owns, separated by commas."""
DEPLOY_LABELS: Final = r"nvidia\.com/gpu\.deploy\.[a-z0-9.-]+"
"""Node labels by which the GPU operator deploys its parts; their values pause them."""
SCALE_DOWN_GUARDS: Final = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)
"""Node annotations that keep cluster-autoscaler and Karpenter from removing a Node."""


def clusterwide(name: str, namespace: str) -> str:
    """Name of an object that lies outside ``namespace`` but belongs to the installation there."""
    return name if namespace == NAMESPACE else f"{name}.{namespace}"


def is_clusterwide(name: str, of: str) -> bool:
    """Whether ``of`` is the object of that name of an installation in any namespace."""
    return of == name or of.startswith(f"{name}.")


def username(account: str, namespace: str) -> str:
    """What the API server calls a service account."""
    return f"system:serviceaccount:{namespace}:{account}"


def lease(node: str) -> str:
    """The Lease of a node's agent."""
    return f"gpuscape-{node}"


def node_feature(node: str) -> str:
    """The NodeFeature of a node's agent; gpu-feature-discovery's own has the same name."""
    return f"nvidia-features-for-{node}"


def pod_event(uid: str) -> str:
    """The scheduler's Event about a pod: one name for one pod, so it never adds up."""
    return f"gpuscape-{uid}"
