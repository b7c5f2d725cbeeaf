# SPDX-License-Identifier: Apache-2.0
"""Quotas that lack what appears in a rollout, or count what goes. Pure.

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
    """What is wrong with a quota after a rollout."""

    NOT_LIMITED = "not-limited"
    """A namespace whose GPUs are limited has no limit for a resource that appears."""
    NONE_ALLOWED = "none-allowed"
    """It has 0 of a resource that appears."""
    NOT_COVERED = "not-covered"
    """A ClusterQueue admits nothing that asks for a resource that appears."""
    TOO_MUCH = "too-much"
    """It lets through more of a resource that goes than the cluster has then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFinding:
    """One quota and one resource."""

    quota: str
    """``ResourceQuota namespace/name``, ``ClusterQueue name``, or ``Namespace name``."""
    resource: str
    fault: QuotaFault
    text: str
    """A sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersChange:
    """What the cluster offers in all, now and then."""

    now: Mapping[str, int]
    then: Mapping[str, int]

    @property
    def difference(self) -> dict[str, int]:
        """Resource to what is gained; negative where it is lost. Nothing that stays."""
        names = sorted(self.now.keys() | self.then.keys())
        change = {name: self.then.get(name, 0) - self.now.get(name, 0) for name in names}
        return {name: by for name, by in change.items() if by}

    @property
    def gained(self) -> tuple[str, ...]:
        """Resources of which there is more then."""
        return tuple(name for name, by in self.difference.items() if by > 0)

    @property
    def lost(self) -> tuple[str, ...]:
        """Resources of which there is less then."""
        return tuple(name for name, by in self.difference.items() if by < 0)


def quota_findings(quotas: Sequence[Object], change: OffersChange) -> list[QuotaFinding]:
    """By ResourceQuotas; a namespace that limits no GPUs today is passed over."""
    by_namespace: dict[str, list[tuple[str, _Amounts]]] = {}
    for quota in quotas:
        hard = _hard(quota)
        if hard:
            meta = quota["metadata"]
            by_namespace.setdefault(meta["namespace"], []).append((meta["name"], hard))
    return [
        finding
        for namespace, limits in sorted(by_namespace.items())
        for finding in _of_namespace(namespace, limits, change)
    ]


def queue_findings(queues: Sequence[Object], change: OffersChange) -> list[QuotaFinding]:
    """By Kueue's ClusterQueues; one that covers no GPUs today is passed over."""
    found: list[QuotaFinding] = []
    for queue in sorted(queues, key=lambda one: str(one["metadata"]["name"])):
        covered = _covered(queue)
        if covered:
            found += _of_queue(f"ClusterQueue {queue['metadata']['name']}", covered, change)
    return found


def _of_namespace(
    namespace: str, limits: Sequence[tuple[str, _Amounts]], change: OffersChange
) -> Iterator[QuotaFinding]:
    for resource in change.gained:
        listed = [(name, hard[resource]) for name, hard in limits if resource in hard]
        if not listed:
            yield QuotaFinding(
                quota=f"Namespace {namespace}",
                resource=resource,
                fault=QuotaFault.NOT_LIMITED,
                text=f"its quotas limit GPUs, and not {resource}: pods there may take all of them",
            )
        for name, most in listed:
            if not most:
                yield QuotaFinding(
                    quota=f"ResourceQuota {namespace}/{name}",
                    resource=resource,
                    fault=QuotaFault.NONE_ALLOWED,
                    text=f"it allows no {resource} in this namespace",
                )
    for name, hard in limits:
        yield from _too_much(f"ResourceQuota {namespace}/{name}", hard, change)


def _of_queue(name: str, covered: _Amounts, change: OffersChange) -> Iterator[QuotaFinding]:
    for resource in change.gained:
        if resource not in covered:
            yield QuotaFinding(
                quota=name,
                resource=resource,
                fault=QuotaFault.NOT_COVERED,
                text=f"it does not cover {resource}: it admits nothing that asks for it",
            )
        elif not covered[resource]:
            yield QuotaFinding(
                quota=name,
                resource=resource,
                fault=QuotaFault.NONE_ALLOWED,
                text=f"its own quota of {resource} is 0: what asks for it has to borrow",
            )
    yield from _too_much(name, covered, change)


def _too_much(name: str, limits: _Amounts, change: OffersChange) -> Iterator[QuotaFinding]:
    for resource in change.lost:
        most, left = limits.get(resource, 0), change.then.get(resource, 0)
        if most > left:
            yield QuotaFinding(
                quota=name,
                resource=resource,
                fault=QuotaFault.TOO_MUCH,
                text=f"it lets {most} of {resource} through; the cluster would offer {left}",
            )


def _hard(quota: Object) -> _Amounts:
    """GPU resources that it limits."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    named = ((name.removeprefix(_REQUESTS), it) for name, it in hard.items())
    return dict(_counted(named))


def _covered(queue: Object) -> _Amounts:
    """GPU resources that it covers, with their quotas of all flavors together."""
    found: _Amounts = {}
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for resource in group.get("coveredResources") or ():
            if is_gpu_resource(resource):
                found[resource] = 0
        for flavor in group.get("flavors") or ():
            listed = flavor.get("resources") or ()
            named = ((str(one.get("name")), one.get("nominalQuota", 0)) for one in listed)
            for resource, count in _counted(named):
                found[resource] = found.get(resource, 0) + count
    return found


def _counted(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, int]]:
    """Those of GPUs; an amount that is none counts as 0."""
    for name, amount in named:
        if is_gpu_resource(name):
            yield name, device_count(name, amount)
