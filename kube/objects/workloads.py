# SPDX-License-Identifier: Apache-2.0
"""Workloads that make pods, as the API server writes them. Pure.

Source: k8s.io/api, apps/v1 and batch/v1; JobSet v1alpha2; Kueue v1beta1, Workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kube.objects.pod import Pod
from kube.objects.typed_object import Condition, Metadata, TypedObject, is_true


class ReplicatedSpec(TypedObject, frozen=True):
    """Spec of a workload with equal pods."""

    replicas: int = 1
    template: Pod = Pod()


class ReplicatedWorkload(TypedObject, frozen=True):
    """A Deployment or a StatefulSet."""

    metadata: Metadata = Metadata()
    spec: ReplicatedSpec = ReplicatedSpec()


class FailurePattern(TypedObject, frozen=True):
    """A condition of a failed pod that a rule is about."""

    type: str = ""
    status: str = "True"


class FailureRule(TypedObject, frozen=True):
    """A rule for pods that fail."""

    action: str = ""
    on_pod_conditions: tuple[FailurePattern, ...] = ()


class PodFailurePolicy(TypedObject, frozen=True):
    """Rules for pods that fail."""

    rules: tuple[FailureRule, ...] = ()


class JobSpec(TypedObject, frozen=True):
    """Spec of a Job, with the API server's defaults."""

    parallelism: int = 1
    suspend: bool = False
    template: Pod = Pod()
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy = PodFailurePolicy()


class JobStatus(TypedObject, frozen=True):
    """Status of a Job."""

    failed: int = 0
    """Number of pods that have failed."""
    conditions: tuple[Condition, ...] = ()


class Job(TypedObject, frozen=True):
    """A Job, or the template of one."""

    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def is_finished(self) -> bool:
        """Whether it makes no pod any more."""
        return any(is_true(self.status.conditions, end) for end in ("Complete", "Failed"))


class CronJobSpec(TypedObject, frozen=True):
    """Spec of a CronJob."""

    suspend: bool = False
    job_template: Job = Job()


class CronJob(TypedObject, frozen=True):
    """A CronJob."""

    metadata: Metadata = Metadata()
    spec: CronJobSpec = CronJobSpec()


class ReplicatedJob(TypedObject, frozen=True):
    """Equal Jobs of a JobSet."""

    replicas: int = 1
    template: Job = Job()


class JobSetFailurePolicy(TypedObject, frozen=True):
    """How often a JobSet starts anew."""

    max_restarts: int = 0


class JobSetSpec(TypedObject, frozen=True):
    """Spec of a JobSet."""

    suspend: bool = False
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    failure_policy: JobSetFailurePolicy = JobSetFailurePolicy()


class JobSetStatus(TypedObject, frozen=True):
    """Status of a JobSet."""

    restarts: int = 0
    terminal_state: str = ""
    """Empty until it has ended."""


class JobSet(TypedObject, frozen=True):
    """A JobSet."""

    metadata: Metadata = Metadata()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class PodSet(TypedObject, frozen=True):
    """Equal pods of a Workload."""

    count: int = 1
    template: Pod = Pod()


class QueuedSpec(TypedObject, frozen=True):
    """Spec of a Workload."""

    pod_sets: tuple[PodSet, ...] = ()


class QueuedStatus(TypedObject, frozen=True):
    """Status of a Workload."""

    admission: Mapping[str, Any] = {}
    """Empty until a queue admits it."""
    conditions: tuple[Condition, ...] = ()


class QueuedWorkload(TypedObject, frozen=True):
    """Kueue's Workload: pods that wait for their quota together."""

    metadata: Metadata = Metadata()
    spec: QueuedSpec = QueuedSpec()
    status: QueuedStatus = QueuedStatus()

    @property
    def is_finished(self) -> bool:
        """Whether its pods have ended."""
        return is_true(self.status.conditions, "Finished")


for _type in (ReplicatedWorkload, Job, CronJob, JobSet, QueuedWorkload):
    msgspec.convert({}, _type)  # before there is a thread, as in kube.objects.pod
