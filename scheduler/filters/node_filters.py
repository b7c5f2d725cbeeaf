# SPDX-License-Identifier: Apache-2.0
"""Nodes that kube-scheduler leaves out for a pod, each with its reason in kube-scheduler's words.

It asks its extender about the other nodes. Pure.
Source: kube-scheduler, pkg/scheduler/apis/config/v1/default_plugins.go and
pkg/scheduler/framework/plugins of 1.37, with the same meaning in 1.32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from base.errors import BadInput
from kube.amounts.pod_requests import Amounts, pod_requests
from kube.objects.node import Node
from kube.objects.pod import Pod
from scheduler.filters import node_selection, resource_fit, taints
from scheduler.filters.preemption import NO_PREEMPTION, PreemptionOutlook
from scheduler.filters.resource_fit import NodeLoad

NO_LOAD: Final = NodeLoad()


class NodeFilter(StrEnum):
    """The scheduler's plugin that leaves a node out, by its name in a scheduler's configuration."""

    NODE_NAME = "NodeName"
    UNSCHEDULABLE = "NodeUnschedulable"
    TAINTS = "TaintToleration"
    AFFINITY = "NodeAffinity"
    RESOURCES = "NodeResourcesFit"


class LeftOutNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a filter leaves out."""

    node: str
    filter: NodeFilter
    """The first filter that leaves the node out; later ones are not run."""
    reasons: tuple[str, ...]
    """Reasons as the pod's Event FailedScheduling counts them; the Event of 1.37 names no taint."""
    why: str
    """The reasons with the requested and the available amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredNodes:
    """The nodes of a cluster, as a pod divides them."""

    candidates: tuple[str, ...]
    """Nodes that the scheduler asks its extender about, by name."""
    left_out: tuple[LeftOutNode, ...]
    """Nodes that a filter leaves out, by name."""
    outlook: PreemptionOutlook = NO_PREEMPTION
    """What the scheduler does where there is no candidate."""


def filtered(pod: Pod, nodes: Iterable[Node], loads: Mapping[str, NodeLoad]) -> FilteredNodes:
    """The nodes divided; ``loads`` are by name, none where nothing is bound, and without this pod.

    Raises BadInput for an amount that is no quantity.
    """
    requests = pod_requests(pod.spec)
    named = node_selection.named_nodes(pod.spec)
    candidates, left_out = [], []
    for node in sorted(nodes, key=lambda candidate: candidate.name):
        left_out_node = _left_out(pod, requests, named, node, loads.get(node.name, NO_LOAD))
        if left_out_node is None:
            candidates.append(node.name)
        else:
            left_out.append(left_out_node)
    return FilteredNodes(candidates=tuple(candidates), left_out=tuple(left_out))


def check_constraints(pod: Pod) -> None:
    """Raises BadInput for what no API server takes or no node can match; it names the key."""
    pod_requests(pod.spec)
    for fault in (
        *node_selection.selection_faults(pod.spec),
        *taints.toleration_faults(pod.spec.tolerations),
    ):
        raise BadInput(fault)


def _left_out(
    pod: Pod,
    requests: Amounts,
    named: frozenset[str] | None,
    node: Node,
    held: NodeLoad,
) -> LeftOutNode | None:
    """Result of the first filter that leaves the node out; None if it passes all."""
    spec = pod.spec
    not_selected = "node(s) didn't match Pod's node affinity/selector"
    if named is not None and node.name not in named:  # before all filters
        return _out(node, NodeFilter.AFFINITY, [not_selected])
    if spec.node_name and spec.node_name != node.name:
        return _out(node, NodeFilter.NODE_NAME, ["node(s) didn't match the requested node name"])
    tolerations = spec.tolerations
    if node.spec.unschedulable and not taints.is_tolerated(taints.CORDONED, tolerations):
        return _out(node, NodeFilter.UNSCHEDULABLE, ["node(s) were unschedulable"])
    untolerated = taints.untolerated(node.spec.taints, tolerations)
    if untolerated:
        words = f"node(s) had untolerated taint {{{untolerated[0].key}: {untolerated[0].value}}}"
        return _out(node, NodeFilter.TAINTS, [words])
    if not node_selection.selects_node(spec, node):
        return _out(node, NodeFilter.AFFINITY, [not_selected])
    short = list(resource_fit.shortages(requests, node, held))
    if short:
        words = ", ".join(f"{shortage.reason} ({shortage.detail})" for shortage in short)
        return _out(node, NodeFilter.RESOURCES, [shortage.reason for shortage in short], words)
    return None


def _out(node: Node, filter_: NodeFilter, reasons: Sequence[str], why: str = "") -> LeftOutNode:
    return LeftOutNode(
        node=node.name, filter=filter_, reasons=tuple(reasons), why=why or ", ".join(reasons)
    )
