# SPDX-License-Identifier: Apache-2.0
"""Losses of jobs and gangs by an eviction: warnings, with names. Pure.

Source: Kubernetes documentation, "Jobs", Pod failure policy and backoff limit; JobSet v1alpha2,
failurePolicy; Kueue, labels of jobs and pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fleet.drain.drain_pod import DrainPod
from kube.objects.workloads import FailurePattern, Job, JobSet

JOB_SET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"
"""Annotation of pods."""
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of jobs and of plain pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLoss:
    """Loss of one owner if the pods go."""

    owner: str
    """``Kind namespace/name``."""
    pods: tuple[str, ...]
    """``namespace/name`` of its pods that would go."""
    text: str
    """A sentence."""
    fails: bool = False
    """The owner would fail for good."""


def eviction_losses(leaving: Sequence[DrainPod]) -> tuple[EvictionLoss, ...]:
    """Losses of the Jobs, JobSets and Kueue queues that have pods in the set, by name."""
    all_losses = (*_of_jobs(leaving), *_of_job_sets(leaving), *_of_kueue(leaving))
    return tuple(sorted(all_losses, key=lambda loss: loss.owner))


def _of_jobs(leaving: Sequence[DrainPod]) -> Iterator[EvictionLoss]:
    for name, pods in _grouped(leaving, _job_name).items():
        job = _job(pods[0])
        if job is None:
            text = "Each eviction may count as a failed try; its settings could not be read."
            yield _loss(f"Job {name}", pods, text)
        elif not ignores_disruption(job):
            if job.spec.backoff_limit_per_index is not None:
                text = "Each eviction counts against the tries of its index."
                yield _loss(f"Job {name}", pods, text)
                continue
            limit, failed = job.spec.backoff_limit, job.status.failed
            text = (
                f"Each eviction counts as a failed try: {failed} of {limit} so far,"
                f" {len(pods)} more now. A podFailurePolicy with Ignore on DisruptionTarget"
                " prevents that."
            )
            yield _loss(f"Job {name}", pods, text, fails=failed + len(pods) > limit)


def _of_job_sets(leaving: Sequence[DrainPod]) -> Iterator[EvictionLoss]:
    for name, pods in _grouped(leaving, _job_set_name).items():
        jobs = map(_job, pods)
        if all(job is not None and ignores_disruption(job) for job in jobs):
            continue
        owner, job_set_object = f"JobSet {name}", pods[0].of_kind("JobSet")
        if job_set_object is None:
            yield _loss(owner, pods, "All its jobs may start anew; its settings could not be read.")
            continue
        job_set = JobSet.from_object(job_set_object)
        max_restarts, done = job_set.spec.failure_policy.max_restarts, job_set.status.restarts
        text = (
            "When a job of it fails, all its jobs start anew, on other nodes too:"
            f" {done} of {max_restarts} restarts so far."
        )
        yield _loss(owner, pods, text, fails=done >= max_restarts)


def _of_kueue(leaving: Sequence[DrainPod]) -> Iterator[EvictionLoss]:
    text = "What was admitted may wait for its quota again, with all its pods."
    for name, pods in _grouped(leaving, _kueue_name).items():
        yield _loss(f"Kueue {name}", pods, text)


def ignores_disruption(job: Job) -> bool:
    """Whether an evicted pod of the Job does not count as a failed try."""
    disruption, rules = FailurePattern(type="DisruptionTarget"), job.spec.pod_failure_policy.rules
    ignored = [rule.on_pod_conditions for rule in rules if rule.action == "Ignore"]
    return any(disruption in conditions for conditions in ignored)


def _job(pod: DrainPod) -> Job | None:
    job = pod.of_kind("Job")
    return None if job is None else Job.from_object(job)


def _job_name(pod: DrainPod) -> str:
    if (job := _job(pod)) is not None:
        return f"{pod.meta.namespace}/{job.metadata.name}"
    if pod.meta.controller is None or pod.meta.controller.kind != "Job":
        return ""
    return f"{pod.meta.namespace}/{pod.meta.controller.name}"


def _job_set_name(pod: DrainPod) -> str:
    name = pod.meta.labels.get(JOB_SET_LABEL)
    return f"{pod.meta.namespace}/{name}" if name else ""


def _kueue_name(pod: DrainPod) -> str:
    if workload := pod.meta.annotations.get(KUEUE_WORKLOAD):
        return f"Workload {pod.meta.namespace}/{workload}"
    labels = (pod.meta.labels, *(owner["metadata"].get("labels") or {} for owner in pod.owners))
    queues = (owner_labels.get(KUEUE_QUEUE) for owner_labels in labels)
    queue = next(filter(None, queues), "")
    return f"{pod.owner or 'Pod ' + pod.meta.full_name} in the queue {queue}" if queue else ""


def _grouped(
    leaving: Sequence[DrainPod], name_of: Callable[[DrainPod], str]
) -> dict[str, list[DrainPod]]:
    groups: dict[str, list[DrainPod]] = {}
    for pod in leaving:
        if name := name_of(pod):
            groups.setdefault(name, []).append(pod)
    return groups


def _loss(owner: str, pods: Sequence[DrainPod], text: str, *, fails: bool = False) -> EvictionLoss:
    names = tuple(sorted(pod.meta.full_name for pod in pods))
    if fails:
        text += " It would fail for good."
    return EvictionLoss(owner=owner, pods=names, text=text, fails=fails)
