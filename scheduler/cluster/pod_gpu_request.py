# SPDX-License-Identifier: Apache-2.0
"""Pods' requests for whole GPUs, as the scheduler's cache keeps them: few values of each pod."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from api import keys
from api.gpu_request import ContainerRequest, GpuRequest, Link
from kube.amounts.gpu_amounts import device_count
from kube.objects.pod import Container, Pod
from kube.objects.typed_object import Metadata
from scheduler.pod_request import PodRequest

GPU: Final = "nvidia.com/gpu"
"""Whole GPUs, as NVIDIA's device plugin offers them. Shared GPUs may carry another name, MIG
devices have names of their own: neither is a whole GPU."""

JOB_LABELS: Final = (
    "jobset.sigs.k8s.io/jobset-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "kueue.x-k8s.io/pod-group-name",
)
"""Labels whose pods belong together though their controllers may differ; the widest first.
Source: JobSet, the coscheduling plugin (its present and its former key), Kueue's plain pods."""
JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
"""Labels of pods of one Job; the second is the name before Kubernetes 1.27."""

_LINKS: Final = {link.value: link for link in Link}
_REMEMBERED_WISHES = 1024
_REMEMBERED_STEPS = 16
"""Containers of a wish that is remembered: a pod may have thousands."""

_MOST_GPUS: Final = 10**9
"""More than this no device plugin can serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Names of the resources that count as GPUs and NICs in this cluster."""

    gpu: str = GPU
    """Resource name of whole GPUs."""
    nics: frozenset[str] = frozenset()
    """Resource names of RDMA NICs: who asks for one wishes to be close to it."""


def ask(pod: Pod, rules: Rules) -> PodRequest | None:
    """The pod's request for whole GPUs; None where it requests none.

    So MIG devices, shared GPUs under another name and claims are left alone, and so is a
    number of GPUs that no device plugin can serve.
    """
    spec = pod.spec
    containers = tuple(spec.all_containers)
    many_end = len(spec.init_containers)
    steps = []
    for index, container in enumerate(containers):
        if count := _count(container, rules.gpu):
            ends = index < many_end and not container.is_sidecar
            steps.append((count, ends))
    if not steps:
        return None
    annotations = pod.metadata.annotations
    asks_nic = any(_count(container, nic) for nic in rules.nics for container in containers)
    remembered = _gpu_request if len(steps) <= _REMEMBERED_STEPS else _gpu_request.__wrapped__
    nic = asks_nic or annotations.get(keys.NIC) == "true"
    link = _LINKS.get(annotations.get(keys.LINK, ""), Link.ANY)
    return PodRequest(
        namespace=sys.intern(pod.metadata.namespace),
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        wish=remembered(tuple(steps), link, nic),
        job=_job(pod.metadata),
    )


def _count(container: Container, resource: str) -> int:
    """Whole devices of this kind that a container asks for.

    Requests and limits of devices are equal where both are written; the API server sees to it.
    """
    for amounts in (container.resources.requests, container.resources.limits):
        if resource in amounts:
            count = device_count(resource, amounts[resource])
            return count if 0 < count < _MOST_GPUS else 0
    return 0


@lru_cache(maxsize=_REMEMBERED_WISHES)
def _gpu_request(steps: tuple[tuple[int, bool], ...], link: Link, nic: bool) -> GpuRequest:
    """The request of a pod, the same object for equal requests: pods are many, their kinds few.

    ``steps``: the GPUs of each container, and whether it ends before those of the pod start.
    """
    containers = tuple([ContainerRequest(gpus=gpus, ends=ends) for gpus, ends in steps])
    return GpuRequest(steps=containers, link=link, nic=nic)


def _job(metadata: Metadata) -> str | None:
    """Key of the pod's job, equal for all its pods; None for a pod on its own.

    A group that spans controllers goes before the controller: each Job of a JobSet is
    a controller of its own, and pods of one controller carry the same group.
    """
    labels, controller = metadata.labels, metadata.controller
    for label in JOB_LABELS:
        if labels.get(label):
            return sys.intern(f"{metadata.namespace}/{label}/{labels[label]}")
    if controller is not None and controller.uid:
        return sys.intern(controller.uid)
    for label in JOB_NAMES:
        if labels.get(label):
            return sys.intern(f"{metadata.namespace}/job-name/{labels[label]}")
    return None
