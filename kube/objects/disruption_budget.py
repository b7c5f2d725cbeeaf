# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets as the API server writes them. Pure. Source: k8s.io/api, policy/v1."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube.objects.pod_constraints import NodeRequirement
from kube.objects.typed_object import Metadata, TypedObject


class BudgetSelector(TypedObject, frozen=True):
    """Selects pods by their labels; an empty one selects all of the namespace."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[NodeRequirement, ...] = ()


class BudgetMetadata(Metadata, frozen=True):
    """Metadata with the number of the newest spec."""

    generation: int = 0


class BudgetSpec(TypedObject, frozen=True):
    """Spec of a budget."""

    selector: BudgetSelector | None = None
    """None selects no pod."""
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(TypedObject, frozen=True):
    """Status of a budget, by its controller."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    desired_healthy: int = 0
    current_healthy: int = 0


class DisruptionBudget(TypedObject, frozen=True):
    """A policy/v1 PodDisruptionBudget."""

    metadata: BudgetMetadata = BudgetMetadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


msgspec.convert({}, DisruptionBudget)  # before there is a thread, as in kube.objects.pod
