# SPDX-License-Identifier: Apache-2.0
"""GPU resources that pods, and the pod templates of workloads, request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.amounts.gpu_amounts import gpu_requests
from kube.api import Object
from kube.objects.pod import Pod

_JOB_CONTROLLERS: Final = ("CronJob", "JobSet")
"""Controllers of Jobs, whose own templates are read."""
_WORKLOAD_OWNERS: Final = ("Job", "JobSet", "Pod", "StatefulSet", "Deployment")
"""Owners of Kueue's Workloads, whose own templates are read."""
_FINISHED: Final = ("Complete", "Failed", "Finished")


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
    """
    meta, spec = manifest["metadata"], manifest.get("spec") or {}
    owner = f"{kind} {meta.get('namespace', '')}/{meta['name']}"
    makes = _PARTS[kind](manifest, spec)
    for count, template, rests in makes:
        pod = Pod.from_object(template)
        if asks := gpu_requests(pod.spec):
            yield PodTemplate(
                owner=owner, count=max(count, 1), pod=pod, asks=asks, rests=rests or count == 0
            )


_Parts = Iterator[tuple[int, Mapping[str, Any], bool]]
"""Number of pods, their template, and whether they are suspended now."""


def _replicated(_: Object, spec: Mapping[str, Any]) -> _Parts:
    yield _number(spec, "replicas"), spec.get("template") or {}, False


def _of_cron_job(_: Object, spec: Mapping[str, Any]) -> _Parts:
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    rests = bool(spec.get("suspend")) or bool(job.get("suspend"))
    yield _number(job, "parallelism"), job.get("template") or {}, rests


def _of_job(manifest: Object, spec: Mapping[str, Any]) -> _Parts:
    if _owner_kind(manifest) not in _JOB_CONTROLLERS and not _is_finished(manifest):
        yield _number(spec, "parallelism"), spec.get("template") or {}, bool(spec.get("suspend"))


def _of_job_set(manifest: Object, spec: Mapping[str, Any]) -> _Parts:
    if (manifest.get("status") or {}).get("terminalState"):
        return
    for part in spec.get("replicatedJobs") or ():
        job = (part.get("template") or {}).get("spec") or {}
        count = _number(part, "replicas") * _number(job, "parallelism")
        yield count, job.get("template") or {}, bool(spec.get("suspend"))


def _of_workload(manifest: Object, spec: Mapping[str, Any]) -> _Parts:
    if _owner_kind(manifest) in _WORKLOAD_OWNERS or _is_finished(manifest):
        return
    rests = not (manifest.get("status") or {}).get("admission")
    for part in spec.get("podSets") or ():
        yield _number(part, "count"), part.get("template") or {}, rests


_PARTS: Final = {
    "Deployment": _replicated,
    "StatefulSet": _replicated,
    "CronJob": _of_cron_job,
    "Job": _of_job,
    "JobSet": _of_job_set,
    "Workload": _of_workload,
}


def _number(values: Mapping[str, Any], key: str) -> int:
    """A number that defaults to 1, as the API server has it."""
    count = values.get(key)
    return 1 if count is None else int(count)


def _owner_kind(manifest: Object) -> str:
    owners = manifest["metadata"].get("ownerReferences") or ()
    return str(next((owner.get("kind", "") for owner in owners if owner.get("controller")), ""))


def _is_finished(manifest: Object) -> bool:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") in _FINISHED and condition.get("status") == "True"
        for condition in conditions
    )
