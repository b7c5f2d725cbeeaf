# SPDX-License-Identifier: Apache-2.0
"""GPU resources that pods, and the pod templates of workloads, request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from kube.amounts.gpu_amounts import gpu_requests
from kube.api import Object
from kube.objects.pod import Pod
from kube.objects.typed_object import Metadata
from kube.objects.workloads import CronJob, Job, JobSet, QueuedWorkload, ReplicatedWorkload

_JOB_CONTROLLERS: Final = ("CronJob", "JobSet")
"""Controllers of Jobs, whose own templates are read."""
_WORKLOAD_OWNERS: Final = ("Job", "JobSet", "Pod", "StatefulSet", "Deployment")
"""Owners of Kueue's Workloads, whose own templates are read."""
_Workload = ReplicatedWorkload | CronJob | Job | JobSet | QueuedWorkload
_TYPES: Final[Mapping[str, type[_Workload]]] = {
    "Deployment": ReplicatedWorkload,
    "StatefulSet": ReplicatedWorkload,
    "CronJob": CronJob,
    "Job": Job,
    "JobSet": JobSet,
    "Workload": QueuedWorkload,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """Pods of a workload, which run or may be created."""

    owner: str
    """``Kind namespace/name``."""
    count: int
    """Number of pods at a time; at least 1, because a workload at 0 may be scaled up."""
    pod: Pod
    asks: Mapping[str, int]
    """GPU resources of each pod; not empty."""
    rests: bool = False
    """Whether the workload is suspended, or scaled to 0."""


def pod_templates(kind: str, manifest: Object) -> Iterator[PodTemplate]:
    """Pod templates of an object of this kind; only those that request GPU resources.

    Empty where the object has ended, or belongs to another object that is read itself.
    Raises BadInput where the object has a field of a wrong type.
    """
    workload = _TYPES[kind].from_object(manifest)
    for count, pod, rests in _parts(workload):
        if asks := gpu_requests(pod.spec):
            yield PodTemplate(
                owner=f"{kind} {workload.metadata.full_name}",
                count=max(count, 1),
                pod=pod,
                asks=asks,
                rests=rests or count == 0,
            )


def _parts(workload: _Workload) -> Iterator[tuple[int, Pod, bool]]:
    """Number of pods, their template, and whether they are suspended now."""
    owner_kind = _owner_kind(workload.metadata)
    match workload:
        case ReplicatedWorkload(spec=spec):
            yield spec.replicas, spec.template, False
        case CronJob(spec=spec):
            job = spec.job_template.spec
            yield job.parallelism, job.template, spec.suspend or job.suspend
        case Job(spec=spec):
            if owner_kind not in _JOB_CONTROLLERS and not workload.is_finished:
                yield spec.parallelism, spec.template, spec.suspend
        case JobSet(spec=spec):
            for part in () if workload.status.terminal_state else spec.replicated_jobs:
                job = part.template.spec
                yield part.replicas * job.parallelism, job.template, spec.suspend
        case QueuedWorkload(spec=spec, status=status):
            if owner_kind not in _WORKLOAD_OWNERS and not workload.is_finished:
                for pod_set in spec.pod_sets:
                    yield pod_set.count, pod_set.template, not status.admission
        case _:
            assert_never(workload)


def _owner_kind(metadata: Metadata) -> str:
    return "" if metadata.controller is None else metadata.controller.kind
