# SPDX-License-Identifier: Apache-2.0
"""Amounts of GPU resources that a pod requests, a Node offers or a quota allows. Pure.

A request of amount 0 asks for nothing: charts render it for the CPU variants of their pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from api.mig_resources import GPU_RESOURCES, is_gpu_resource
from base.errors import BadInput
from kube.amounts.pod_requests import pod_requests
from kube.amounts.quantities import Amount, counted_amount
from kube.objects.pod import PodSpec


def gpu_requests(spec: PodSpec, named: Collection[str] = GPU_RESOURCES) -> dict[str, int]:
    """GPU resources that a pod requests as a whole, to their amounts; none of 0.

    ``named``: as :func:`api.mig_resources.is_gpu_resource` takes them. Raises BadInput for a spec
    that names a GPU resource and has an amount that is no quantity.
    """
    if not any(is_gpu_resource(name, named) for name in _named_resources(spec)):
        return {}  # a cheap check before amounts are read: watches of all pods ask it of each
    return gpu_amounts(pod_requests(spec), named)


def asks_gpus(spec: PodSpec, named: Collection[str] = GPU_RESOURCES) -> bool:
    """Whether a pod requests a GPU resource; amounts that cannot be read count as requesting."""
    try:
        return bool(gpu_requests(spec, named))
    except BadInput:
        return True


def gpu_amounts(
    amounts: Mapping[str, Amount], named: Collection[str] = GPU_RESOURCES
) -> dict[str, int]:
    """The GPU resources among amounts of any resources, by name; none of 0."""
    gpus = {
        name: device_count(name, amount)
        for name, amount in sorted(amounts.items())
        if is_gpu_resource(name, named)
    }
    return {name: count for name, count in gpus.items() if count > 0}


def device_count(resource: str, amount: Amount) -> int:
    """An amount of devices; what is no quantity counts as 0."""
    try:
        return counted_amount(resource, amount)
    except BadInput:
        return 0


def _named_resources(spec: PodSpec) -> set[str]:
    names = set(spec.overhead)
    for container in (*spec.init_containers, *spec.containers):
        names.update(container.resources.requests, container.resources.limits)
    return names
