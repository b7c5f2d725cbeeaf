# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets counted together: how many pods of a set each lets go. Pure.

The API server judges one eviction at a time, so it would let the first of two pods go and then
keep the second for ever. Source: kube-apiserver 1.37, registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.drain.drain_pod import DrainPod
from kube.api import Object


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
    that is not ready.
    """
    needs: dict[str, list[DrainPod]] = {}
    known: dict[str, Object] = {}
    several = []
    budgets = tuple(budgets)
    for pod in leaving:
        selecting = [budget for budget in budgets if pod.running and _selects(budget, pod)]
        if len(selecting) > 1:
            several.append((pod, tuple(_name(budget) for budget in selecting)))
        for budget in selecting:
            if pod.ready or not _frees_unready(budget):
                known[_name(budget)] = budget
                needs.setdefault(_name(budget), []).append(pod)
    return BudgetVerdict(
        short=tuple(
            BudgetShortage(name=name, allowed=_allowed(known[name]), pods=tuple(pods))
            for name, pods in sorted(needs.items())
            if len(pods) > _allowed(known[name])
        ),
        several=tuple(several),
    )


def _name(budget: Object) -> str:
    return f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"


def _allowed(budget: Object) -> int:
    """Pods that may go now; 0 where the controller has not seen the newest budget."""
    status = budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        return 0
    return max(0, int(status.get("disruptionsAllowed") or 0))


def _frees_unready(budget: Object) -> bool:
    """Whether a pod that is not ready goes without counting."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired: int = status.get("desiredHealthy") or 0
    return int(status.get("currentHealthy") or 0) >= desired > 0


def _selects(budget: Object, pod: DrainPod) -> bool:
    """Whether the budget selects the pod; an empty selector selects all of its namespace."""
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None or budget["metadata"]["namespace"] != pod.namespace:
        return False
    match_labels: Mapping[str, str] = selector.get("matchLabels") or {}
    return all(pod.labels.get(key) == value for key, value in match_labels.items()) and all(
        _meets(expression, pod.labels) for expression in selector.get("matchExpressions") or ()
    )


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement; an operator that is not known counts as met."""
    value = labels.get(str(expression.get("key")))
    match expression.get("operator"):
        case "In":
            return value in (expression.get("values") or ())
        case "NotIn":
            return value not in (expression.get("values") or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True
