# SPDX-License-Identifier: Apache-2.0
"""A pod's demands on its node, as its spec has them. Pure. Source: k8s.io/api, core/v1/types.go."""

from __future__ import annotations

from typing import Any

from kube.objects.typed_object import TypedObject


class NodeRequirement(TypedObject, frozen=True):
    """An expression about a label or a field of a Node."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(TypedObject, frozen=True):
    """Expressions that all have to hold; without any it matches no node."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    """About labels."""
    match_fields: tuple[NodeRequirement, ...] = ()
    """About ``metadata.name``."""


class NodeTerms(TypedObject, frozen=True):
    """Terms for nodes; at least one has to match."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(TypedObject, frozen=True):
    """Affinity to nodes; what is only preferred keeps no node out."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    """None: no node is kept out, which terms that are empty do to all."""


class PodAffinity(TypedObject, frozen=True):
    """Affinity or anti-affinity to other pods; here only whether any is required."""

    required_during_scheduling_ignored_during_execution: tuple[Any, ...] = ()


class Affinity(TypedObject, frozen=True):
    """A pod's affinity to nodes and to other pods."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Toleration(TypedObject, frozen=True):
    """Taints that a pod tolerates."""

    key: str = ""
    """Empty: any."""
    operator: str = ""
    """``Exists``, or ``Equal`` and empty, which compare the value."""
    value: str = ""
    effect: str = ""
    """Empty: any."""


class SpreadConstraint(TypedObject, frozen=True):
    """How evenly pods are to lie over a topology."""

    when_unsatisfiable: str = "DoNotSchedule"


class SchedulingGate(TypedObject, frozen=True):
    """A gate that keeps the scheduler from looking at a pod."""

    name: str = ""
