# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets counted together: how many pods of a set each lets go. Pure.

The API server judges one eviction at a time, so it would let the first of two pods go and then
keep the second for ever. Source: kube-apiserver 1.37, registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.drain.drain_pod import DrainPod
from kube.api import Object
from kube.objects.disruption_budget import DisruptionBudget
from kube.objects.pod_constraints import NodeRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShortage:
    """A budget that does not let all of its pods in a set go."""

    name: str
    """``namespace/name``."""
    allowed: int
    pods: tuple[DrainPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetVerdict:
    """Pods of a set that the budgets do not let go."""

    short: tuple[BudgetShortage, ...]
    several: tuple[tuple[DrainPod, tuple[str, ...]], ...]
    """Pods that more than one budget selects, with the budgets' names: never evicted."""


def budget_verdict(leaving: Sequence[DrainPod], budgets: Iterable[Object]) -> BudgetVerdict:
    """Budgets that keep these pods from going all together.

    A budget is not asked about a pod that has not started, and, as its policy says, about one
    that is not ready. Raises BadInput where a budget has a field of a wrong type.
    """
    needs: dict[str, list[DrainPod]] = {}
    several = []
    known = {
        budget.metadata.full_name: budget for budget in map(DisruptionBudget.from_object, budgets)
    }
    for pod in leaving:
        selecting = [
            name for name, budget in known.items() if pod.running and _selects(budget, pod)
        ]
        if len(selecting) > 1:
            several.append((pod, tuple(selecting)))
        for name in selecting:
            if pod.ready or not _frees_unready(known[name]):
                needs.setdefault(name, []).append(pod)
    return BudgetVerdict(
        short=tuple(
            BudgetShortage(name=name, allowed=allowed, pods=tuple(pods))
            for name, pods in sorted(needs.items())
            if len(pods) > (allowed := _allowed(known[name]))
        ),
        several=tuple(several),
    )


def _allowed(budget: DisruptionBudget) -> int:
    """Pods that may go now; 0 where the controller has not seen the newest budget."""
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        return 0
    return max(0, status.disruptions_allowed)


def _frees_unready(budget: DisruptionBudget) -> bool:
    """Whether a pod that is not ready goes without counting."""
    status = budget.status
    is_healthy = status.current_healthy >= status.desired_healthy > 0
    return is_healthy or budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"


def _selects(budget: DisruptionBudget, pod: DrainPod) -> bool:
    """Whether the budget selects the pod; an empty selector selects all of its namespace."""
    selector = budget.spec.selector
    if selector is None or budget.metadata.namespace != pod.namespace:
        return False
    return selector.match_labels.items() <= pod.labels.items() and all(
        _meets(requirement, pod.labels) for requirement in selector.match_expressions
    )


def _meets(requirement: NodeRequirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement; an operator that is not known counts as met."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True
