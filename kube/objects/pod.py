# SPDX-License-Identifier: Apache-2.0
"""Pods as the API server writes them. Pure. Source: k8s.io/api, core/v1/types.go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.amounts.quantities import Amount
from kube.objects.pod_constraints import (
    Affinity,
    NodeTerms,
    SchedulingGate,
    SpreadConstraint,
    Toleration,
)
from kube.objects.typed_object import Condition, Metadata, TypedObject, condition_of, is_true

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""Name that the API server writes where a pod names no scheduler."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of the API's copy of a static pod, which its kubelet makes anew at once."""
_STATIC_UID: Final = "kubernetes.io/config.hash"
"""Annotation of the same copy. Source of both: Kubernetes, pkg/kubelet/types/constants.go."""
_PREEMPTED: Final = "PreemptionByScheduler"


class RequestedAmounts(TypedObject, frozen=True):
    """Resources of a container or of a whole pod: name to amount."""

    requests: Mapping[str, Amount] = {}
    limits: Mapping[str, Amount] = {}


class ContainerPort(TypedObject, frozen=True):
    """A port of a container."""

    host_port: int = 0
    """Port of the node that it takes; 0: none."""


class Container(TypedObject, frozen=True):
    """A container, or an init container."""

    name: str = ""
    image: str = ""
    resources: RequestedAmounts = RequestedAmounts()
    restart_policy: str = ""
    """``Always`` makes an init container a sidecar."""
    ports: tuple[ContainerPort, ...] = ()

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container keeps running with the containers that start after it."""
        return self.restart_policy == "Always"


class PodSpec(TypedObject, frozen=True):
    """Spec of a pod, or of a template of pods."""

    node_name: str = ""
    """Empty until the pod is bound to a node."""
    scheduler_name: str = ""
    priority: int | None = None
    """Priority that admission has given the pod; None in a manifest."""
    priority_class_name: str = ""
    preemption_policy: str = ""
    """``Never``: the pod waits until room is free by itself."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, Amount] = {}
    resources: RequestedAmounts = RequestedAmounts()
    """Resources of the pod as a whole."""
    node_selector: Mapping[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[Any, ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    """Volumes as written: the key next to ``name`` is the kind of the volume."""
    termination_grace_period_seconds: int | None = None

    @property
    def all_containers(self) -> Iterator[Container]:
        """The init containers, then the containers."""
        yield from self.init_containers
        yield from self.containers

    @property
    def required_nodes(self) -> NodeTerms | None:
        """The required node affinity."""
        return self.affinity.node_affinity.required_during_scheduling_ignored_during_execution


class WaitingContainer(TypedObject, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class RunningContainer(TypedObject, frozen=True):
    """Since when a container runs."""

    started_at: str = ""


class TerminatedContainer(TypedObject, frozen=True):
    """The message that a container left at its end."""

    message: str = ""


class ContainerState(TypedObject, frozen=True):
    """State of a container; at most one of these."""

    waiting: WaitingContainer | None = None
    running: RunningContainer | None = None
    terminated: TerminatedContainer | None = None


class ContainerStatus(TypedObject, frozen=True):
    """Status of a container, as its kubelet reports it."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(TypedObject, frozen=True):
    """Status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str = ""
    """Empty until a kubelet has taken the pod."""
    nominated_node_name: str = ""
    """Node on which preemption makes room for the pod."""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(TypedObject, frozen=True):
    """A v1.Pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def static_uid(self) -> str | None:
        """UID that the kubelet has for a static pod, if this is its mirror; else None."""
        annotations = self.metadata.annotations
        return annotations.get(_STATIC_UID) if MIRROR in annotations else None

    @property
    def is_finished(self) -> bool:
        """Whether the pod will never run again, and holds nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_bound(self) -> bool:
        """Whether the pod has a node."""
        return bool(self.spec.node_name)

    @property
    def is_preempted(self) -> bool:
        """Whether a scheduler has deleted the pod to make room for another, and it has not ended.

        Source: k8s.io/api, core/v1/types.go, PodReasonPreemptionByScheduler.
        """
        condition = condition_of(self.status.conditions, "DisruptionTarget")
        return self.is_deleted and condition is not None and condition.reason == _PREEMPTED

    @property
    def is_ready(self) -> bool:
        """Whether all its containers are ready."""
        return is_true(self.status.conditions, "Ready")

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted the pod; it holds what it holds until it has ended."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def bound_at(self) -> str:
        """When it was bound, as the API server's clock and RFC 3339 say; empty where unknown."""
        condition = condition_of(self.status.conditions, "PodScheduled")
        is_scheduled = condition is not None and condition.status == "True"
        return condition.last_transition_time if condition is not None and is_scheduled else ""


# msgspec looks at a type where it is first used, and where two threads do so at once the process
# ends by SIGSEGV (0.22.0): so it is used here, before there is a thread
msgspec.convert({}, Pod)
