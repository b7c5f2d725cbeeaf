# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets counted together: how many pods of a set each lets go. Pure.

The API server judges one eviction at a time, so it would let the first of two pods go and then
keep the second for ever. Source: kube-apiserver 1.37, registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleet.drain.drain_blocker import BlockerKind, DrainBlocker, blocker_of, named
from fleet.drain.drain_pod import DrainPod
from kube.api import Object
from kube.objects.disruption_budget import DisruptionBudget
from kube.objects.pod_constraints import NodeRequirement
from kube.objects.typed_object import Metadata


def budget_blockers(
    leaving: Sequence[DrainPod], budgets: Iterable[Object]
) -> Iterator[DrainBlocker]:
    """Budgets that keep these pods from going all together, and pods that several select.

    A budget is not asked about a pod that has not started, and, as its policy says, about one
    that is not ready. Raises BadInput where a budget has a field of a wrong type.
    """
    known = [DisruptionBudget.from_object(budget) for budget in budgets]
    needs: dict[str, list[DrainPod]] = {}
    for pod in leaving:
        has_started = pod.pod.status.phase == "Running"
        selecting = [budget for budget in known if has_started and _selects(budget, pod.meta)]
        if len(selecting) > 1:
            several = named([budget.metadata.full_name for budget in selecting])
            text = f"Several PodDisruptionBudgets select it, so it is never evicted: {several}."
            yield blocker_of(pod, BlockerKind.SEVERAL_BUDGETS, text)
        for budget in selecting:
            if pod.pod.is_ready or not _frees_unready(budget):
                needs.setdefault(budget.metadata.full_name, []).append(pod)
    for budget in sorted(known, key=lambda budget: budget.metadata.full_name):
        pods = needs.get(budget.metadata.full_name, [])
        if len(pods) > (allowed := _allowed(budget)):
            pod_names = named([pod.meta.full_name for pod in pods])
            yield DrainBlocker(
                kind=BlockerKind.BUDGET,
                name=budget.metadata.full_name,
                owner=named(sorted({pod.owner for pod in pods if pod.owner})),
                text=f"{len(pods)} of its pods would have to go, and {allowed} may: {pod_names}.",
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


def _selects(budget: DisruptionBudget, pod: Metadata) -> bool:
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
    meets = {
        "In": value in requirement.values,
        "NotIn": value not in requirement.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return meets.get(requirement.operator, True)
