# SPDX-License-Identifier: Apache-2.0
"""What pods, and the templates of what makes pods, ask of GPU resources. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from base.errors import BadInput
from kube.amounts.gpu_amounts import asks_gpus, gpu_amounts
from kube.amounts.pod_requests import pod_requests
from kube.api import Object
from scheduler.filters.filter_objects import ConstrainedPod

_MADE_BY_OTHERS: Final = ("CronJob", "JobSet")
"""Controllers of Jobs, which are looked at themselves."""
_SEEN_OTHERWISE: Final = ("Job", "JobSet", "Pod", "StatefulSet", "Deployment")
"""Owners of Kueue's Workloads, which are looked at themselves."""
_FINISHED: Final = ("Complete", "Failed", "Finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """Pods that somebody makes, or would."""

    owner: str
    """``Kind namespace/name``."""
    count: int
    """How many at once; at least 1, since what is scaled to none may be scaled up."""
    pod: ConstrainedPod
    asks: Mapping[str, int]
    """GPU resources of one of them; not empty."""
    rests: bool = False
    """It is suspended, or scaled to none."""


def constrained(pod: Mapping[str, Any]) -> ConstrainedPod | None:
    """A pod as the scheduler's filters take it; None where it cannot be read."""
    try:
        found = msgspec.convert(pod, ConstrainedPod)
        pod_requests(found.spec)
    except (msgspec.ValidationError, BadInput):
        return None
    return found


def gpu_asks(pod: ConstrainedPod) -> dict[str, int]:
    """GPU resources that a pod asks for, as a whole. Raises BadInput."""
    return gpu_amounts(pod_requests(pod.spec))


def templates(kind: str, seen: Object) -> Iterator[PodTemplate]:
    """The pods that an object of this kind makes; those alone that ask for GPU resources.

    Nothing of what has ended, or of what another object looked at makes.
    """
    meta, spec = seen["metadata"], seen.get("spec") or {}
    owner = f"{kind} {meta.get('namespace', '')}/{meta['name']}"
    makes = _PARTS[kind](seen, spec)
    for count, template, rests in makes:
        pod_spec = template.get("spec") or {}
        if not asks_gpus(pod_spec):
            continue
        labels = (template.get("metadata") or {}).get("labels") or {}
        pod = constrained({"metadata": {"labels": labels}, "spec": pod_spec})
        asks = gpu_asks(pod) if pod is not None else {}
        if pod is not None and asks:
            yield PodTemplate(
                owner=owner, count=max(count, 1), pod=pod, asks=asks, rests=rests or count == 0
            )


_Parts = Iterator[tuple[int, Mapping[str, Any], bool]]
"""How many pods, their template, and whether they are not made now."""


def _replicated(_: Object, spec: Mapping[str, Any]) -> _Parts:
    yield _number(spec, "replicas"), spec.get("template") or {}, False


def _of_cron_job(_: Object, spec: Mapping[str, Any]) -> _Parts:
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    rests = bool(spec.get("suspend")) or bool(job.get("suspend"))
    yield _number(job, "parallelism"), job.get("template") or {}, rests


def _of_job(seen: Object, spec: Mapping[str, Any]) -> _Parts:
    if _owner_kind(seen) not in _MADE_BY_OTHERS and not _is_finished(seen):
        yield _number(spec, "parallelism"), spec.get("template") or {}, bool(spec.get("suspend"))


def _of_job_set(seen: Object, spec: Mapping[str, Any]) -> _Parts:
    if (seen.get("status") or {}).get("terminalState"):
        return
    for part in spec.get("replicatedJobs") or ():
        job = (part.get("template") or {}).get("spec") or {}
        count = _number(part, "replicas") * _number(job, "parallelism")
        yield count, job.get("template") or {}, bool(spec.get("suspend"))


def _of_workload(seen: Object, spec: Mapping[str, Any]) -> _Parts:
    if _owner_kind(seen) in _SEEN_OTHERWISE or _is_finished(seen):
        return
    rests = not (seen.get("status") or {}).get("admission")
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
    """What the API server takes for 1 where it is not written."""
    found = values.get(key)
    return 1 if found is None else int(found)


def _owner_kind(seen: Object) -> str:
    owners = seen["metadata"].get("ownerReferences") or ()
    return str(next((it.get("kind", "") for it in owners if it.get("controller")), ""))


def _is_finished(seen: Object) -> bool:
    conditions = (seen.get("status") or {}).get("conditions") or ()
    return any(it.get("type") in _FINISHED and it.get("status") == "True" for it in conditions)
