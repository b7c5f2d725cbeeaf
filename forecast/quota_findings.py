# SPDX-License-Identifier: Apache-2.0
"""Quotas that do not go with the resources after a rollout. Pure.

Source: Kubernetes documentation, "Resource Quotas", quota for extended resources; Kueue,
apis/kueue/v1beta1 and v1beta2, ClusterQueueSpec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from api.mig_resources import is_gpu_resource
from kube.amounts.gpu_amounts import device_count
from kube.api import Object

_REQUESTS: Final = "requests."
_Amounts = dict[str, int]


class QuotaFault(StrEnum):
    """Fault of a quota after a rollout."""

    NOT_LIMITED = "not-limited"
    """A namespace whose GPUs are limited has no limit for a resource that appears."""
    NONE_ALLOWED = "none-allowed"
    """A quota is 0 for a resource that appears."""
    NOT_COVERED = "not-covered"
    """A ClusterQueue admits nothing that asks for a resource that appears."""
    TOO_MUCH = "too-much"
    """A quota allows more of a lost resource than the cluster has after the rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFinding:
    """Fault of a quota for a resource."""

    quota: str
    """``ResourceQuota namespace/name``, ``ClusterQueue name``, or ``Namespace name``."""
    resource: str
    fault: QuotaFault
    text: str
    """The fault, a sentence in which "it" is the quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersChange:
    """Resources of the whole cluster, now and after the rollout."""

    now: Mapping[str, int]
    then: Mapping[str, int]

    @property
    def difference(self) -> dict[str, int]:
        """Resource to the gain in devices, negative for a loss; without unchanged resources."""
        names = sorted(self.now.keys() | self.then.keys())
        change = {name: self.then.get(name, 0) - self.now.get(name, 0) for name in names}
        return {name: count for name, count in change.items() if count}

    @property
    def gained(self) -> tuple[str, ...]:
        """Resources of which there is more after the rollout."""
        return tuple(name for name, count in self.difference.items() if count > 0)

    @property
    def lost(self) -> tuple[str, ...]:
        """Resources of which there is less after the rollout."""
        return tuple(name for name, count in self.difference.items() if count < 0)


def quota_findings(quotas: Sequence[Object], change: OffersChange) -> list[QuotaFinding]:
    """Findings about ResourceQuotas; a namespace that limits no GPUs today has none."""
    by_namespace: dict[str, list[tuple[str, _Amounts]]] = {}
    for quota in quotas:
        hard = _limits(quota)
        if hard:
            meta = quota["metadata"]
            by_namespace.setdefault(meta["namespace"], []).append((meta["name"], hard))
    return [
        finding
        for namespace, limits in sorted(by_namespace.items())
        for finding in _namespace_findings(namespace, limits, change)
    ]


def queue_findings(queues: Sequence[Object], change: OffersChange) -> list[QuotaFinding]:
    """Findings about Kueue's ClusterQueues; a queue that covers no GPUs today has none."""
    findings: list[QuotaFinding] = []
    for queue in sorted(queues, key=lambda queue: str(queue["metadata"]["name"])):
        covered = _queue_quotas(queue)
        if covered:
            findings += _queue_findings(
                f"ClusterQueue {queue['metadata']['name']}", covered, change
            )
    return findings


def _namespace_findings(
    namespace: str, limits: Sequence[tuple[str, _Amounts]], change: OffersChange
) -> Iterator[QuotaFinding]:
    for resource in change.gained:
        resource_limits = [(name, hard[resource]) for name, hard in limits if resource in hard]
        if not resource_limits:
            yield QuotaFinding(
                quota=f"Namespace {namespace}",
                resource=resource,
                fault=QuotaFault.NOT_LIMITED,
                text=f"its quotas limit GPUs, and not {resource}: pods there may take all of them",
            )
        for name, limit in resource_limits:
            if not limit:
                yield QuotaFinding(
                    quota=f"ResourceQuota {namespace}/{name}",
                    resource=resource,
                    fault=QuotaFault.NONE_ALLOWED,
                    text=f"it allows no {resource} in this namespace",
                )
    for name, hard in limits:
        yield from _excess_findings(f"ResourceQuota {namespace}/{name}", hard, change)


def _queue_findings(name: str, covered: _Amounts, change: OffersChange) -> Iterator[QuotaFinding]:
    for resource in change.gained:
        if resource not in covered:
            yield QuotaFinding(
                quota=name,
                resource=resource,
                fault=QuotaFault.NOT_COVERED,
                text=f"it does not cover {resource}: it admits nothing that requests it",
            )
        elif not covered[resource]:
            yield QuotaFinding(
                quota=name,
                resource=resource,
                fault=QuotaFault.NONE_ALLOWED,
                text=f"its own quota of {resource} is 0: pods that request it have to borrow",
            )
    yield from _excess_findings(name, covered, change)


def _excess_findings(name: str, limits: _Amounts, change: OffersChange) -> Iterator[QuotaFinding]:
    for resource in change.lost:
        limit, available = limits.get(resource, 0), change.then.get(resource, 0)
        if limit > available:
            yield QuotaFinding(
                quota=name,
                resource=resource,
                fault=QuotaFault.TOO_MUCH,
                text=f"it lets {limit} of {resource} through; the cluster would offer {available}",
            )


def _limits(quota: Object) -> _Amounts:
    """GPU resources that a ResourceQuota limits, with the limits."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    amounts = ((name.removeprefix(_REQUESTS), amount) for name, amount in hard.items())
    return dict(_device_counts(amounts))


def _queue_quotas(queue: Object) -> _Amounts:
    """GPU resources that a ClusterQueue covers, with their quotas of all flavors together."""
    quotas: _Amounts = {}
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for resource in group.get("coveredResources") or ():
            if is_gpu_resource(resource):
                quotas[resource] = 0
        for flavor in group.get("flavors") or ():
            flavor_quotas = flavor.get("resources") or ()
            amounts = (
                (str(quota.get("name")), quota.get("nominalQuota", 0)) for quota in flavor_quotas
            )
            for resource, count in _device_counts(amounts):
                quotas[resource] = quotas.get(resource, 0) + count
    return quotas


def _device_counts(amounts: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, int]]:
    """GPU resources with their number of devices; an amount that is not a number counts as 0."""
    for name, amount in amounts:
        if is_gpu_resource(name):
            yield name, device_count(name, amount)
