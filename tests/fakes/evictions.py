# SPDX-License-Identifier: Apache-2.0
"""What the eviction of a pod does in an API server, PodDisruptionBudgets included.

Source: kube-apiserver 1.37, registry/core/pod/storage/eviction.go; the contract suite holds it to
the real server. No controller counts here: a budget's status is what somebody wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.api import POD_DISRUPTION_BUDGETS, PODS, Object
from kube.api_errors import BudgetRefused, Conflict, SeveralBudgets
from tests.fakes.server import Server

_GRACE_SECONDS = 30


def evict(server: Server, name: str, namespace: str, uid: str, *, dry_run: bool) -> None:
    """Delete the pod if no budget keeps it; one with a node and a grace period is only marked."""
    with server.changed:
        server.require_namespace(namespace)
        pod = server.get(PODS, name, namespace)
        if pod["metadata"]["uid"] != uid:
            raise Conflict(f"the UID in the precondition ({uid}) does not match that in record")
        if not _is_free(pod):
            _take(server, pod, namespace, dry_run=dry_run)
        if dry_run:
            return
        spec = pod.get("spec") or {}
        if spec.get("nodeName") and spec.get("terminationGracePeriodSeconds", _GRACE_SECONDS):
            server.mark_deleted(PODS, name, namespace)
        else:
            server.delete(PODS, name, namespace)


def _is_free(pod: Object) -> bool:
    """Whether no budget is asked: it has ended, waits to start, or leaves already."""
    phase = (pod.get("status") or {}).get("phase", "Pending")
    return phase != "Running" or "deletionTimestamp" in pod["metadata"]


def _take(server: Server, pod: Object, namespace: str, *, dry_run: bool) -> None:
    """Take one disruption from the pod's budget."""
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in server.objects(POD_DISRUPTION_BUDGETS)
        if budget["metadata"]["namespace"] == namespace and _selects(budget, labels)
    ]
    if len(budgets) > 1:
        raise SeveralBudgets("This pod has more than one PodDisruptionBudget")
    for budget in budgets:
        status = budget.get("status") or {}
        if not _is_ready(pod) and _is_enough(budget):
            return
        if status.get("disruptionsAllowed", 0) < 1:
            raise BudgetRefused("Cannot evict pod as it would violate the pod's disruption budget.")
        if not dry_run:
            left = {"disruptionsAllowed": status["disruptionsAllowed"] - 1}
            server.patch(
                POD_DISRUPTION_BUDGETS,
                budget["metadata"]["name"],
                {"status": left},
                namespace,
                status=True,
            )


def _is_enough(budget: Object) -> bool:
    """Whether a pod that is not ready may go without it."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status: Mapping[str, int] = budget.get("status") or {}
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return healthy >= wanted > 0


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def _selects(budget: Object, labels: Mapping[str, Any]) -> bool:
    """By exact labels alone; an empty selector has every pod of the namespace."""
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())
