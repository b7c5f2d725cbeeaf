# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for GPUs, and a policy for tests that are not about it."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import Object
from tests.kubelet_nodes.links import LinkTypes
from tests.kubelet_nodes.offer import GPU


def container(name: str, gpus: int, *, resource: str = GPU, **spec: str) -> Object:
    """A container that asks for so many GPUs, or of another resource; ``spec`` is added."""
    limits = {resource: str(gpus)}
    return {"name": name, "image": "none", "resources": {"limits": limits}, **spec}


def pod(
    name: str,
    *containers: Object,
    init: tuple[Object, ...] = (),
    gpus: int = 1,
    resource: str = GPU,
    node: str | None = None,
    namespace: str = "default",
) -> Object:
    """A pod with these containers, or one that asks for GPUs; its name is its UID too."""
    spec: Object = {
        "containers": list(containers) or [container("main", gpus, resource=resource)],
        "terminationGracePeriodSeconds": 0,
    }
    if init:
        spec["initContainers"] = list(init)
    if node is not None:
        spec["nodeName"] = node
    meta = {"name": name, "namespace": namespace, "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def claim(name: str, *devices: str, pool: str = "node-a", namespace: str = "default") -> Object:
    """A ResourceClaim with a request for each of these GPUs, r0, r1, …, allocated already."""
    results = [
        {"request": f"r{at}", "driver": "gpu.nvidia.com", "pool": pool, "device": device}
        for at, device in enumerate(devices)
    ]
    requests = [
        {"name": each["request"], "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        for each in results
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": "0b7c6d1e-5c3a-4d55-9d2e-6a1f0c9b8e77",
        },
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


class FirstOffered:
    """Takes what is required, and then what comes first."""

    def prefer(
        self,
        _devices: Sequence[str],
        _links: LinkTypes,
        *,
        available: Sequence[str],
        required: Sequence[str] = (),
        size: int,
    ) -> tuple[str, ...]:
        """See :class:`tests.kubelet_nodes.allocator.Allocator`."""
        others = [each for each in available if each not in required]
        return (*required, *others)[:size]
