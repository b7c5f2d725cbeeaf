# SPDX-License-Identifier: Apache-2.0
"""Amounts of GPU resources that a pod requests, a Node offers or a quota allows. Pure.

A request of amount 0 asks for nothing: charts render it for the CPU variants of their pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from api.mig_resources import GPU_RESOURCES, is_gpu_resource
from base.errors import BadInput
from kube.amounts.pod_requests import RequestingSpec, pod_requests
from kube.amounts.quantities import Amount, counted_amount


def gpu_requests(
    spec: Mapping[str, Any], named: Collection[str] = GPU_RESOURCES
) -> Mapping[str, int]:
    """GPU resources that a v1.PodSpec requests as a whole, to their amounts; none of 0.

    ``named``: as :func:`api.mig_resources.is_gpu_resource` takes them. Raises BadInput for a spec
    that names a GPU resource and cannot be read.
    """
    if not _names_gpus(spec, named):
        return {}
    try:
        read = msgspec.convert(spec, RequestingSpec)
    except msgspec.ValidationError as error:
        raise BadInput(f"spec: {error}") from error
    return gpu_amounts(pod_requests(read), named)


def asks_gpus(spec: Mapping[str, Any], named: Collection[str] = GPU_RESOURCES) -> bool:
    """Whether a pod requests a GPU resource; a spec that cannot be read counts as requesting."""
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


def _names_gpus(spec: Mapping[str, Any], named: Collection[str]) -> bool:
    """A cheap check before the spec is read: watches of all pods ask it of each."""
    parts: Iterable[Mapping[str, Any]] = (
        *(spec.get("containers") or ()),
        *(spec.get("initContainers") or ()),
    )
    resources = [part.get("resources") or {} for part in parts]
    written = [amounts.get(kind) for amounts in resources for kind in ("requests", "limits")]
    return any(
        is_gpu_resource(name, named)
        for amounts in (*written, spec.get("overhead"))
        for name in amounts or ()
    )
