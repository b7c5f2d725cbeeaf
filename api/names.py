# SPDX-License-Identifier: Apache-2.0
"""Names of gpuscape's objects in the cluster, where more than one program must know them.

Roles and admission policies are generated from these and from :mod:`api.keys`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from api.limits import MOST_NODE_NAME_CHARACTERS

NAMESPACE: Final = "gpuscape"
"""Namespace of an installation, unless an admin chooses another."""

AGENT: Final = "gpuscape-agent"
"""Account, field manager, and reporting controller of Events; so are the next two."""
COORDINATOR: Final = "gpuscape-coordinator"
SCHEDULER: Final = "gpuscape-scheduler"
"""The extender, and its Service."""
CERTIFICATES: Final = "gpuscape-certificates"
"""Account and field manager of the program that makes the extender's certificates."""

AGENT_DAEMON_SET: Final = "gpuscape-agent"
"""The DaemonSet whose status gives an agent the number of agents."""

AGENT_FLOOR: Final = "gpuscape-agent-floor"
"""Admission policy that the agent tests for being in force; so are the next four."""
AGENT_NODE: Final = "gpuscape-agent-node"
AGENT_LEASE: Final = "gpuscape-agent-lease"
AGENT_EVENT: Final = "gpuscape-agent-event"
AGENT_NODE_FEATURE: Final = "gpuscape-agent-nodefeature"
MIG_PERMIT: Final = "gpuscape-mig-permit"
"""Admission policy that keeps everybody but the coordinator from permitting a MIG change."""

COORDINATOR_LEASE: Final = "coordinator"
MIG_POLICY: Final = "gpuscape-mig-policy"
"""ConfigMap of the fleet policy."""
SCHEDULER_CA: Final = "gpuscape-scheduler-ca"
"""Secret of the authority that signs the next two: the extender's, and kube-scheduler's."""
SCHEDULER_TLS: Final = "gpuscape-scheduler-tls"
KUBE_SCHEDULER_TLS: Final = "gpuscape-kube-scheduler-tls"
SLOT_LEASE_PREFIX: Final = "mig-slot-"

ACTUATOR_SOCKET: Final = "/run/gpuscape/actuator/actuator.sock"
"""Path of the actuator's socket, unless an admin chooses another."""

EVENT_NAMESPACE: Final = "default"
"""Namespace of Events about Nodes, which have none of their own."""

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


def is_clusterwide(name: str, object_name: str) -> bool:
    """Whether ``object_name`` is what :func:`clusterwide` makes of ``name`` in any namespace."""
    return object_name == name or object_name.startswith(f"{name}.")


def username(account: str, namespace: str) -> str:
    """What the API server calls a service account."""
    return f"system:serviceaccount:{namespace}:{account}"


LEASE_PREFIX: Final = "gpuscape-"
NODE_FEATURE_PREFIX: Final = "nvidia-features-for-"
"""Prefix of the name of a node's NodeFeature, as LEASE_PREFIX is of its Lease."""
NODE_CHARACTERS_KEPT: Final = 200
"""Characters of a node's name that stay in the names of its objects where it has to be cut."""


def agent_lease(node: str) -> str:
    """The Lease of a node's agent."""
    return _of_node(LEASE_PREFIX, node)


def node_feature(node: str) -> str:
    """The NodeFeature of a node's agent; gpu-feature-discovery's own has the same name."""
    return _of_node(NODE_FEATURE_PREFIX, node)


def _of_node(prefix: str, node: str) -> str:
    """The prefix and the node's name, cut where the whole has no room in an object's name."""
    whole = prefix + node
    return whole if len(whole) <= MOST_NODE_NAME_CHARACTERS else shortened_name(prefix, node)


def shortened_name(prefix: str, node: str) -> str:
    """The prefix, the start of the node's name and 16 digits of its SHA-256.

    A letter stands between them, because the start may end in a dot or a dash.
    """
    digest = hashlib.sha256(node.encode()).hexdigest()[:16]
    return f"{prefix}{node[:NODE_CHARACTERS_KEPT]}x{digest}"


def node_of_lease(name: str, owners: Iterable[str]) -> str:
    """The node whose agent's Lease this is, ``owners`` being the Nodes that own the object.

    A cut name does not hold the node's: the owner counts that has this name for its Lease.
    """
    return next(
        (node for node in owners if agent_lease(node) == name), name.removeprefix(LEASE_PREFIX)
    )


def kubelet_node_name(text: str) -> str:
    """The Node's name that a kubelet makes of a host's name: trimmed, in small letters.

    Source: Kubernetes, ``GetHostname`` in pkg/util/node.
    """
    return text.strip().lower()


def pod_event(uid: str) -> str:
    """The scheduler's Event about a pod: one name for one pod, so it never adds up."""
    return f"gpuscape-{uid}"
