# SPDX-License-Identifier: Apache-2.0
"""Pods and Nodes as the API server writes them, with the fields that kube-scheduler's filters read.

More fields than :mod:`scheduler.cluster.pod_objects` has, which the extender reads in each request.
Source: k8s.io/api, core/v1/types.go.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube.amounts.pod_requests import RequestingContainer, RequestingSpec
from kube.amounts.quantities import Amount

_ENDED: Final = ("Succeeded", "Failed")


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a container."""

    host_port: int | None = None
    """Port of the node that it takes, where it takes one."""


class ConstrainedContainer(RequestingContainer, frozen=True, rename="camel"):
    """A container of a pod, with the ports that it takes."""

    name: str = ""
    ports: list[ContainerPort] | None = None


class NodeRequirement(msgspec.Struct, frozen=True):
    """An expression about a label or a field of a Node."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Expressions that all have to hold; without any it matches no node."""

    match_expressions: list[NodeRequirement] | None = None
    """About labels."""
    match_fields: list[NodeRequirement] | None = None
    """About ``metadata.name``."""


class NodeTerms(msgspec.Struct, frozen=True, rename="camel"):
    """Terms for nodes; at least one has to match."""

    node_selector_terms: list[NodeTerm] | None = None


class RequiredNodes(msgspec.Struct, frozen=True, rename="camel"):
    """Node affinity; what is only preferred keeps no node out."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None


class RequiredPods(msgspec.Struct, frozen=True, rename="camel"):
    """Affinity or anti-affinity to other pods; here only whether any is required."""

    required_during_scheduling_ignored_during_execution: list[Any] | None = None


class PodAffinities(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's affinity to nodes and to other pods."""

    node_affinity: RequiredNodes | None = None
    pod_affinity: RequiredPods | None = None
    pod_anti_affinity: RequiredPods | None = None


class Toleration(msgspec.Struct, frozen=True):
    """Taints that a pod tolerates."""

    key: str = ""
    """Empty: any."""
    operator: str = ""
    """``Exists``, or ``Equal`` and empty, which compare the value."""
    value: str = ""
    effect: str = ""
    """Empty: any."""


class SpreadConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """How evenly pods are to lie over a topology."""

    when_unsatisfiable: str = "DoNotSchedule"


class ConstrainedSpec(RequestingSpec, frozen=True, rename="camel"):
    """Spec of a pod: its demands on a node."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: PodAffinities | None = None
    tolerations: list[Toleration] | None = None
    containers: list[ConstrainedContainer] | None = None
    init_containers: list[ConstrainedContainer] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[dict[str, Any]] | None = None
    resource_claims: list[Any] | None = None
    scheduling_gates: list[Any] | None = None


class ConstrainedMeta(msgspec.Struct, frozen=True):
    """A pod's identity."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class ConstrainedStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's status, as far as filters read it."""

    phase: str | None = None
    nominated_node_name: str | None = None
    """Node on which preemption makes room for the pod."""


class ConstrainedPod(msgspec.Struct, frozen=True):
    """A v1.Pod; fields that no filter reads are passed over when decoding."""

    metadata: ConstrainedMeta = ConstrainedMeta()
    spec: ConstrainedSpec = ConstrainedSpec()
    status: ConstrainedStatus = ConstrainedStatus()

    @property
    def has_ended(self) -> bool:
        """Whether the pod will never run again, and holds nothing of its node any more."""
        return self.status.phase in _ENDED


class Taint(msgspec.Struct, frozen=True):
    """A taint of a node: pods that do not tolerate it are kept off."""

    key: str = ""
    value: str = ""
    effect: str = ""


class CandidateSpec(msgspec.Struct, frozen=True):
    """Spec of a Node: what an admin or a controller sets."""

    unschedulable: bool = False
    """Cordoned."""
    taints: list[Taint] | None = None


class CandidateStatus(msgspec.Struct, frozen=True):
    """Status of a Node, as its kubelet reports it."""

    allocatable: dict[str, Amount] | None = None


class CandidateMeta(msgspec.Struct, frozen=True):
    """A Node's name and labels."""

    name: str = ""
    labels: dict[str, str] | None = None


class CandidateNode(msgspec.Struct, frozen=True):
    """A v1.Node; fields that no filter reads are passed over when decoding."""

    metadata: CandidateMeta = CandidateMeta()
    spec: CandidateSpec = CandidateSpec()
    status: CandidateStatus = CandidateStatus()

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.metadata.name
