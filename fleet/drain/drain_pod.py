# SPDX-License-Identifier: Apache-2.0
"""Facts about a pod, and about its owners, by which draining is judged. Pure.

Source: k8s.io/kubectl, pkg/drain/filters.go, for what keeps a pod from being drained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from api.state_annotation import pod_key
from base.text import rfc3339
from fleet.drain.protection import protection
from fleet.gpu_pod import is_placed
from kube.api import Object
from kube.objects.pod import Pod, PodSpec
from kube.objects.typed_object import Metadata, OwnerReference

MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of the API's copy of a static pod, which its kubelet makes anew at once."""
DEFAULT_GRACE_SECONDS: Final = 30
_MOST_OWNERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPod:
    """A pod of the node."""

    namespace: str
    name: str
    uid: str
    key: str
    """Key of the pod in an agent's request."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[Object, ...]
    """The pod's controller, that one's, and so on, as far as they were read; the nearest first."""
    controller: OwnerReference | None
    """The reference to its controller; None: nobody makes the pod anew."""
    ended: bool
    """Its containers have ended for good; it holds nothing."""
    placed: bool
    """Its kubelet has given it its devices."""
    leaving: bool
    """It was deleted, and has not ended yet."""
    running: bool
    ready: bool
    mirror: bool
    started_at: float | None
    """When its kubelet took it, seconds since 1970; None: not yet."""
    local_volumes: tuple[str, ...]
    """Names of volumes that are lost with it; those in memory are not counted."""
    grace_seconds: int

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def of_daemon_set(self) -> bool:
        """Whether it would be made anew on the same node, cordoned or not."""
        return self.controller is not None and self.controller.kind == "DaemonSet"

    @property
    def owner(self) -> str:
        """Kind and name of its farthest owner, by which people know it; empty where it has none."""
        if self.owners:
            last = self.owners[-1]
            return f"{last.get('kind', '')} {self.namespace}/{last['metadata']['name']}"
        if self.controller is None:
            return ""
        return f"{self.controller.kind} {self.namespace}/{self.controller.name}"

    def of_kind(self, kind: str) -> Object | None:
        """The owner of this kind."""
        return next((owner for owner in self.owners if owner.get("kind") == kind), None)

    def protected_by(self, *, autoscalers: bool, now: float | None) -> str:
        """The object and key that forbid to disturb it, as ``the pod has KEY``; empty: none.

        Owners and their templates count like the pod. ``autoscalers``: whether marks of
        autoscalers count; ``now``: seconds since 1970, None where not known.
        """
        age = None if now is None or self.started_at is None else now - self.started_at
        for source, notes in self._annotated():
            if key := protection(notes, autoscalers=autoscalers, age_seconds=age):
                return f"{source} has {key}"
        return ""

    def _annotated(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        yield "the pod", self.annotations
        for owner in self.owners:
            template = (owner.get("spec") or {}).get("template") or {}
            for meta in (owner["metadata"], template.get("metadata") or {}):
                source = f"{owner.get('kind', 'owner')} {owner['metadata']['name']}"
                yield source, meta.get("annotations") or {}


def drain_pod(pod: Pod, owners: Mapping[str, Object]) -> DrainPod:
    """The pod's values; ``owners``: objects by UID, as far as they were read."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    grace = spec.termination_grace_period_seconds
    return DrainPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        key=pod_key(meta.namespace, meta.name),
        labels=meta.labels,
        annotations=meta.annotations,
        owners=tuple(_chain(meta, owners)),
        controller=meta.controller,
        ended=pod.is_finished,
        placed=is_placed(pod),
        leaving=pod.is_deleted,
        running=status.phase == "Running",
        ready=pod.is_ready,
        mirror=MIRROR in meta.annotations,
        started_at=rfc3339.unix_seconds(status.start_time),
        local_volumes=tuple(_local_volumes(spec)),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else grace,
    )


def _chain(meta: Metadata, owners: Mapping[str, Object]) -> Iterator[Object]:
    for _ in range(_MOST_OWNERS):
        owner = None if meta.controller is None else owners.get(meta.controller.uid)
        if owner is None:
            return
        yield owner
        meta = Metadata.from_object(owner["metadata"])


def _local_volumes(spec: PodSpec) -> Iterator[str]:
    for volume in spec.volumes:
        directory = volume.get("emptyDir")
        if directory is not None and directory.get("medium") != "Memory":
            yield volume.get("name", "")
