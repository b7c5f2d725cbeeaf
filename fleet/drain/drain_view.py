# SPDX-License-Identifier: Apache-2.0
"""Reads the objects by which draining is judged, and has the API server judge each pod as well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from api.mig_request_annotation import MigRequestAnnotation
from base.errors import Permanent
from fleet.drain.drain_blocker import BlockerKind, DrainBlocker, blocker_of
from fleet.drain.drain_plan import DrainPlan, DrainSettings, plan_drain
from fleet.drain.drain_pod import DrainPod
from kube.api import (
    JOB_SETS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Api,
    EvictingApi,
    Object,
)
from kube.api_errors import (
    ApiError,
    BudgetRefused,
    Conflict,
    Forbidden,
    NamespaceTerminating,
    NotFound,
    SeveralBudgets,
)
from kube.objects.pod import Pod
from kube.objects.typed_object import Metadata
from kube.present_objects import present_object, present_objects

_OWNERS: Final = (JOBS, JOB_SETS, REPLICA_SETS, STATEFUL_SETS)
_READABLE: Final = {(resource.group, resource.kind): resource for resource in _OWNERS}
"""A ReplicaSet has its Deployment's annotations: the Deployment's controller copies them."""


def read_pods(api: Api, pods: Iterable[tuple[str, str]]) -> tuple[list[DrainPod], list[Object]]:
    """These pods, each a namespace and a name, with their owners; and the PodDisruptionBudgets of
    their namespaces. Raises ApiError.

    Pods that are gone are left out, and owners that are gone, of another kind, or that the
    account may not read: what they say cannot be known then.
    """
    found = (present_object(api, PODS, name, namespace=namespace) for namespace, name in pods)
    bound = [Pod.from_object(pod) for pod in found if pod is not None]
    owners: dict[str, Object] = {}
    for pod in bound:
        _read_owners(api, pod.metadata, owners)
    namespaces = sorted({pod.metadata.namespace for pod in bound})
    read = partial(present_objects, api, POD_DISRUPTION_BUDGETS)
    budgets = [budget for namespace in namespaces for budget in read(namespace=namespace)]
    return [DrainPod.owned(pod, owners) for pod in bound], budgets


def evaluate_drain(
    api: EvictingApi,
    pods: Iterable[tuple[str, str]],
    request: MigRequestAnnotation,
    terms: DrainSettings,
    *,
    whole_node: bool = False,
    now: float | None = None,
) -> DrainPlan:
    """The plan of :func:`plan_drain`, each pod's eviction also tried as a dry run.

    Nothing changes by it. Raises ApiError where the API server cannot answer now.
    """
    plan = plan_drain(*read_pods(api, pods), request, terms, whole_node=whole_node, now=now)
    blockers = tuple(filter(None, (_try_eviction(api, pod) for pod in plan.evict)))
    return replace(plan, evict=(), blockers=blockers) if blockers else plan


def refused_eviction(pod: DrainPod, error: ApiError) -> DrainBlocker | None:
    """Blocker by the error of an eviction; None where the pod is gone or goes anyway.

    Raises the error where it says nothing of the pod.
    """
    match error:
        case NotFound() | Conflict() | NamespaceTerminating():
            return None
        case BudgetRefused():
            return blocker_of(pod, BlockerKind.BUDGET, f"{error}.")
        case SeveralBudgets():
            return blocker_of(pod, BlockerKind.SEVERAL_BUDGETS, f"{error}.")
        case Permanent():
            return blocker_of(pod, BlockerKind.REFUSED, f"{error}.")
        case _:
            raise error


def _try_eviction(api: EvictingApi, pod: DrainPod) -> DrainBlocker | None:
    try:
        api.evict(pod.meta.name, namespace=pod.meta.namespace, uid=pod.meta.uid, dry_run=True)
    except ApiError as error:
        return refused_eviction(pod, error)
    return None


def _read_owners(api: Api, owned: Metadata, owners: dict[str, Object]) -> None:
    """Add the controller of an object, the controller's, and so on."""
    while (reference := owned.controller) is not None:
        group = reference.api_version.rpartition("/")[0]
        resource = _READABLE.get((group, reference.kind))
        if resource is None or reference.uid in owners:
            return
        try:
            owner = api.get(resource, reference.name, namespace=owned.namespace)
        except (NotFound, Forbidden):
            return
        owned = Metadata.from_object(owner["metadata"])
        if owned.uid != reference.uid:
            return  # made anew under its name
        owners[owned.uid] = owner
