# SPDX-License-Identifier: Apache-2.0
"""Facts about a pod, and about its owners, by which draining is judged. Pure.

Source: k8s.io/kubectl, pkg/drain/filters.go, for what keeps a pod from being drained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from api.state_annotation import pod_key
from base.text import rfc3339
from fleet.drain.protection import protection
from kube.api import Object
from kube.objects.pod import MIRROR, Pod
from kube.objects.typed_object import Metadata

DEFAULT_GRACE_SECONDS: Final = 30
_MOST_OWNERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPod:
    """A pod of the node, and the objects that own it."""

    pod: Pod
    owners: tuple[Object, ...]
    """The pod's controller, that one's, and so on, as far as they were read; the nearest first."""

    @classmethod
    def owned(cls, pod: Pod, owners: Mapping[str, Object]) -> Self:
        """The pod with its owners; ``owners``: objects by UID, as far as they were read."""
        return cls(pod=pod, owners=tuple(_chain(pod.metadata, owners)))

    @property
    def meta(self) -> Metadata:
        """Name, labels and annotations of the pod."""
        return self.pod.metadata

    @property
    def key(self) -> str:
        """Key of the pod in an agent's request."""
        return pod_key(self.meta.namespace, self.meta.name)

    @property
    def is_mirror(self) -> bool:
        """Whether its kubelet runs it whatever the API server decides."""
        return MIRROR in self.meta.annotations

    @property
    def grace_seconds(self) -> int:
        """How long its containers may take to end."""
        grace = self.pod.spec.termination_grace_period_seconds
        return DEFAULT_GRACE_SECONDS if grace is None else grace

    @property
    def local_volumes(self) -> tuple[str, ...]:
        """Names of volumes that are lost with it; those in memory are not counted."""
        return tuple(
            volume.get("name", "")
            for volume in self.pod.spec.volumes
            if (directory := volume.get("emptyDir")) is not None
            and directory.get("medium") != "Memory"
        )

    @property
    def of_daemon_set(self) -> bool:
        """Whether it would be made anew on the same node, cordoned or not."""
        return self.meta.controller is not None and self.meta.controller.kind == "DaemonSet"

    @property
    def owner(self) -> str:
        """Kind and name of its farthest owner, by which people know it; empty where it has none."""
        if self.owners:
            last = self.owners[-1]
            return f"{last.get('kind', '')} {self.meta.namespace}/{last['metadata']['name']}"
        controller = self.meta.controller
        return f"{controller.kind} {self.meta.namespace}/{controller.name}" if controller else ""

    def of_kind(self, kind: str) -> Object | None:
        """The owner of this kind."""
        return next((owner for owner in self.owners if owner.get("kind") == kind), None)

    def protected_by(self, *, autoscalers: bool, now: float | None) -> str:
        """The object and key that forbid to disturb it, as ``the pod has KEY``; empty: none.

        Owners and their templates count like the pod. ``autoscalers``: whether marks of
        autoscalers count; ``now``: seconds since 1970, None where not known.
        """
        started_at = rfc3339.unix_seconds(self.pod.status.start_time)
        age = None if now is None or started_at is None else now - started_at
        for source, notes in self._annotated():
            if key := protection(notes, autoscalers=autoscalers, age_seconds=age):
                return f"{source} has {key}"
        return ""

    def _annotated(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        yield "the pod", self.meta.annotations
        for owner in self.owners:
            template = (owner.get("spec") or {}).get("template") or {}
            for meta in (owner["metadata"], template.get("metadata") or {}):
                source = f"{owner.get('kind', 'owner')} {owner['metadata']['name']}"
                yield source, meta.get("annotations") or {}


def _chain(meta: Metadata, owners: Mapping[str, Object]) -> Iterator[Object]:
    for _ in range(_MOST_OWNERS):
        owner = None if meta.controller is None else owners.get(meta.controller.uid)
        if owner is None:
            return
        yield owner
        meta = Metadata.from_object(owner["metadata"])
