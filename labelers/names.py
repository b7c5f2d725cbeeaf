"""Names of gpuscape's objects in the cluster, where more than one program must know them.

Roles and admission policies are generated from these and from :mod:`labelers.keys`.
"""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "gpuscape"
"""Where it is installed unless somebody chooses another."""

AGENT: Final = "gpuscape-agent"
"""Account, field manager, and reporting controller of Events; so are the next two."""
COORDINATOR: Final = "gpuscape-coordinator"
SCHEDULER: Final = "gpuscape-scheduler"

COORDINATOR_LEASE: Final = "coordinator"
SLOT_LEASE_PREFIX: Final = "mig-slot-"

EVENT_NAMESPACE: Final = "default"
"""Where Events about Nodes live, which have no namespace of their own."""

NODE_FEATURE_NODE_LABEL: Final = "nfd.node.kubernetes.io/node-name"
"""Label by which nfd-master tells the Node of a NodeFeature."""
FEATURE_LABELS: Final = "nfd.node.kubernetes.io/feature-labels"
"""Node annotation: the labels that nfd-master owns, separated by commas."""


def lease(node: str) -> str:
    """The Lease of a node's agent."""
    return f"gpuscape-{node}"


def node_feature(node: str) -> str:
    """The NodeFeature of a node's agent; gpu-feature-discovery's own has the same name."""
    return f"nvidia-features-for-{node}"
