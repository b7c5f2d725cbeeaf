# SPDX-License-Identifier: Apache-2.0
"""Leases: who holds one, what its holder writes, and when it counts as abandoned.

Pure: the caller reads and writes the objects, and passes the clocks in. Wall time is
written for people and other programs; no program that stays decides by it, because clocks of
two machines differ. A Lease is stale when its reader saw no change of it for its own
duration, on the reader's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

import msgspec

from base.text import rfc3339
from kube.api import LEASES, NODES, Object
from kube.objects.typed_object import Metadata, TypedObject
from kube.versions import is_older


class LeaseSpec(TypedObject, frozen=True):
    """Spec of a Lease: its holder, and what the holder wrote last."""

    holder_identity: str = ""
    """Empty: nobody holds it."""
    lease_duration_seconds: int = 0
    renew_time: str = ""
    lease_transitions: int = 0
    """Number of times at which another holder took it."""

    @property
    def renewed_at(self) -> float | None:
        """Time of the last renewal, seconds since 1970; None where it is not written."""
        return rfc3339.unix_seconds(self.renew_time)

    def has_lapsed(self, now: float) -> bool:
        """Whether its own duration is over since the last renewal, by wall clocks.

        For commands that read it once; ``now``: seconds since 1970. Without a time of renewal it
        has lapsed; without a duration it does not lapse.
        """
        renewed, duration = self.renewed_at, self.lease_duration_seconds
        return renewed is None or (duration > 0 and now - renewed > duration)


class Lease(TypedObject, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


msgspec.convert({}, Lease)  # before there is a thread, as in kube.objects.pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLease:
    """The state of a Lease as its reader knows it."""

    holder: str
    """Empty: nobody holds it."""
    duration_seconds: float
    sign: tuple[object, ...]
    """Values of which some change with every renewal."""
    changed_at: float
    """Monotonic seconds at which the reader first saw this sign."""
    version: str = ""
    """The Lease's resourceVersion in the last answer."""

    def is_stale(self, now: float) -> bool:
        """Whether nobody holds the Lease, or its holder has not renewed it for its duration."""
        return not self.holder or now - self.changed_at > self.duration_seconds


class LeaseStep(Enum):
    """The next action of a candidate on a Lease that it has read."""

    CREATE = auto()
    RENEW = auto()
    TAKE_OVER = auto()
    WAIT = auto()


def next_step(seen: ObservedLease | None, *, exists: bool, identity: str, now: float) -> LeaseStep:
    """The next action of the candidate ``identity``; ``seen`` may be a Lease that was deleted.

    Another holder's deleted Lease still keeps the candidate waiting for its duration: that holder
    cannot know yet that it is gone.
    """
    if seen is not None and seen.holder != identity and not seen.is_stale(now):
        return LeaseStep.WAIT
    if seen is None or not exists:
        return LeaseStep.CREATE
    return LeaseStep.RENEW if seen.holder == identity else LeaseStep.TAKE_OVER


def observe(before: ObservedLease | None, lease: Object, now: float) -> ObservedLease:
    """The state of a Lease after ``lease`` was read at the monotonic second ``now``."""
    typed = Lease.from_object(lease)
    meta, spec = typed.metadata, typed.spec
    sign = (meta.uid, spec.holder_identity, spec.renew_time, spec.lease_transitions)
    unchanged = before is not None and before.sign == sign
    return ObservedLease(
        holder=spec.holder_identity,
        duration_seconds=spec.lease_duration_seconds,
        sign=sign,
        changed_at=before.changed_at if before is not None and unchanged else now,
        version=meta.resource_version,
    )


def is_rolled_back(before: ObservedLease | None, lease: Object) -> bool:
    """Whether this answer proves that the server's store was put back to a backup.

    ``lease`` is the answer to a get or a write that was sent after the answer that ``before`` is
    from. Neither is ever answered from a cache that lags, so a lower version is from another
    history. Versions compare among all objects of a kind, so the Lease may have been made anew.
    """
    return before is not None and is_older(lease["metadata"].get("resourceVersion"), before.version)


def lease_object(
    name: str,
    *,
    holder: str,
    duration_seconds: int,
    wall_time: datetime,
    node: Object | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """The body of a Lease that ``holder`` creates; it goes when ``node`` goes."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": name,
            **({"ownerReferences": [owner(node)]} if node is not None else {}),
            **({"annotations": dict(annotations)} if annotations else {}),
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration_seconds,
            "acquireTime": micro_time(wall_time),
            "renewTime": micro_time(wall_time),
            "leaseTransitions": 0,
        },
    }


def renewal(
    lease: Object, *, wall_time: datetime, annotations: Mapping[str, str | None] | None = None
) -> Object:
    """The holder's patch; Conflict says that somebody wrote the Lease since it was read."""
    return _patch(lease, {"renewTime": micro_time(wall_time)}, annotations)


def takeover(
    lease: Object,
    *,
    holder: str,
    duration_seconds: int,
    wall_time: datetime,
    annotations: Mapping[str, str | None] | None = None,
) -> Object:
    """The patch by which ``holder`` takes a stale Lease; Conflict says that another was first."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration_seconds,
        "acquireTime": micro_time(wall_time),
        "renewTime": micro_time(wall_time),
        "leaseTransitions": Lease.from_object(lease).spec.lease_transitions + 1,
    }
    return _patch(lease, spec, annotations)


def release_patch(lease: Object, *, wall_time: datetime) -> Object:
    """The holder's last patch: the next holder need not wait for the duration to pass."""
    return _patch(lease, {"holderIdentity": "", "renewTime": micro_time(wall_time)}, None)


def owner(node: Object) -> dict[str, str]:
    """An ownerReference to a Node.

    Without blockOwnerDeletion, which takes the right to update the Node's finalizers.
    """
    meta = node["metadata"]
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": meta["name"],
        "uid": meta["uid"],
    }


def owning_nodes(meta: Metadata) -> list[str]:
    """Names of the Nodes among an object's owners."""
    return [owner.name for owner in meta.owner_references if owner.kind == NODES.kind]


def micro_time(time: datetime) -> str:
    """A time in the form of MicroTime fields: UTC, and always six digits of a second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _patch(
    lease: Object, spec: Mapping[str, Any], annotations: Mapping[str, str | None] | None
) -> Object:
    return {
        "metadata": {
            "resourceVersion": lease["metadata"]["resourceVersion"],
            **({"annotations": dict(annotations)} if annotations else {}),
        },
        "spec": dict(spec),
    }
