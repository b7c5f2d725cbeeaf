# SPDX-License-Identifier: Apache-2.0
"""Nodes as the API server writes them. Pure. Source: k8s.io/api, core/v1/types.go."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube.amounts.quantities import Amount
from kube.objects.typed_object import Condition, Metadata, TypedObject


class Taint(TypedObject, frozen=True):
    """A taint of a node: pods that do not tolerate it are kept off."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""
    """Empty where nobody wrote it, which is usual."""


class NodeSpec(TypedObject, frozen=True):
    """Spec of a Node: what an admin or a controller sets."""

    unschedulable: bool = False
    """Cordoned."""
    taints: tuple[Taint, ...] = ()


class NodeSystemInfo(TypedObject, frozen=True):
    """Facts of a node's host, as its kubelet reports them."""

    kubelet_version: str = ""
    container_runtime_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(TypedObject, frozen=True):
    """Status of a Node, as its kubelet reports it."""

    allocatable: Mapping[str, Amount] = {}
    capacity: Mapping[str, Amount] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(TypedObject, frozen=True):
    """A v1.Node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.metadata.name


msgspec.convert({}, Node)  # before there is a thread, as in kube.objects.pod
