# SPDX-License-Identifier: Apache-2.0
"""Nodes as the coordinator sees them: requests, permits, availability, what they offer. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from api import keys, mig_permit_annotation, mig_request_annotation, mig_status_annotation, names
from api.mig_permit_annotation import MigPermitAnnotation
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigStatusAnnotation, RequestSource, admin_digest, admin_layout
from base.text import rfc3339
from kube.amounts.gpu_amounts import gpu_amounts
from kube.api import Object
from kube.objects.node import Node
from kube.objects.typed_object import is_true

DRIVER_UPGRADE: Final = "nvidia.com/gpu-driver-upgrade-state"
"""Label of the GPU operator's driver upgrades. Source: NVIDIA k8s-operator-libs, pkg/upgrade."""
_UPGRADE_OVER: Final = ("", "upgrade-done")
PAUSED_FOR_DRIVER: Final = "paused-for-driver-upgrade"
"""In the value of an operator's label while a driver's own pod changes the driver, which it does
without the label above. Source: NVIDIA k8s-driver-manager, cmd/driver-manager."""
REBOOT: Final = "weave.works/kured-reboot-in-progress"
"""Annotation of kured on a node that is to boot, with its flag ``--annotate-nodes``: the time. It
is written before kured waits for its lock, and stays where the cause goes meanwhile. Source:
kubereboot/kured 019a5ba6, cmd/kured/main.go."""
KURED_CORDON: Final = "kured.dev/node-unschedulable-before-drain"
"""Annotation of kured from before its cordon until after the boot: whether somebody else had
cordoned the node, whose cordon it then leaves. Older versions keep the same in the lock on their
DaemonSet. Source: kubereboot/kured 4687d88b, internal/k8soperations/drain.go."""
_MOST_TEXT: Final = 128
REMOVAL_TAINTS: Final = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")

T = TypeVar("T", bound=msgspec.Struct)


class UnavailableReason(StrEnum):
    """Why a node is not available for a change."""

    NOT_READY = "not-ready"
    CORDONED = "cordoned"
    """Cordoned by somebody else."""
    DRIVER_UPGRADE = "driver-upgrade"
    REBOOT = "reboot"
    REMOVAL = "removal"
    """The Node is deleted, or an autoscaler removes it."""


class DrainMode(StrEnum):
    """How pods leave before a change; values of the annotation ``gpuscape.io/drain``."""

    WAIT = "wait"
    CORDON = "cordon"
    """The pods are waited for behind a cordon, so that no new ones come."""
    EVICT = "evict"
    NODE = "node"

    @property
    def evicts(self) -> bool:
        """Whether pods are asked to leave."""
        return self in (DrainMode.EVICT, DrainMode.NODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigNode:
    """A Node's values that MIG changes depend on, at one resourceVersion."""

    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    away: UnavailableReason | None = None
    """Why the node is not available, by others; a cordon does not count."""
    boot_announced: float = 0.0
    """When kured announced a boot, in seconds since 1970; infinite while it drains the node."""
    unschedulable: bool = False
    keeps_cordon: bool = False
    """Whether an admin's ``gpuscape.io/keep-cordoned`` stands there."""
    drain: str = ""
    """The annotation as it is; empty: none."""
    rollout: str = ""
    """The desired layout, by the admin's own keys: equal on all nodes with the same one; empty: no
    layout is desired."""
    desired_digest: str = ""
    """Digest of that layout, as the agent's status has it once the agent has evaluated it."""
    request: MigRequestAnnotation | None = None
    status: MigStatusAnnotation | None = None
    status_damaged: bool = False
    """There is a status, and it cannot be read."""
    permit: MigPermitAnnotation | None = None
    permit_text: str | None = None
    """Text of the permit; None where there is none, not even a damaged one."""
    has_former_permit: bool = False
    """There is a permit in the form before 0.1.0, which nobody reads."""
    cordoned_for: str = ""
    """Id of the request for which we cordoned it, by our own mark; empty: there is none."""
    guards: tuple[str | None, ...] = (None,) * len(names.SCALE_DOWN_GUARDS)
    """Values of the autoscalers' annotations, in the order of :data:`api.names`."""
    deploy: tuple[tuple[str, str], ...] = ()
    """Labels ``nvidia.com/gpu.deploy.*``, sorted."""
    allocatable: tuple[tuple[str, int], ...] = ()
    """Allocatable GPU resources that are not 0, sorted."""
    capacity: tuple[tuple[str, int], ...] = ()
    """GPU resources in the Node's capacity: all that the plugin lists, unhealthy ones too."""

    @property
    def counts(self) -> bool:
        """Whether it has, or had, anything to do with MIG changes."""
        texts = (self.request, self.status, self.permit_text)
        marks = (self.status_damaged, bool(self.cordoned_for), self.has_former_permit)
        return any(marks) or any(text is not None for text in texts)

    @property
    def is_in_change(self) -> bool:
        """Whether a permit or our mark of the cordon stands there."""
        return self.permit_text is not None or bool(self.cordoned_for)

    def is_to_boot(self, now: float, seconds: float) -> bool:
        """Whether kured counts on a cordon that stands there: an announcement counts so long.

        Either way: one with a time in years, by a clock that was wrong, would hold it for years.
        """
        return math.isinf(self.boot_announced) or abs(now - self.boot_announced) <= seconds

    @property
    def is_judged(self) -> bool:
        """Whether its agent's status is about the layout that is asked for now."""
        return self.status is None or self.status.desired_digest in ("", self.desired_digest)


def node_of(seen: Object, resources: tuple[str, ...]) -> MigNode:
    """The Node's values; a damaged annotation counts as none.

    ``resources``: names of GPU resources, and how such names begin. Raises BadInput for what no
    API server sends.
    """
    node = Node.from_object(seen)
    labels, notes = node.metadata.labels, node.metadata.annotations
    status = mig_status_annotation.FORMAT.readable(notes.get(keys.MIG_STATUS))
    return MigNode(
        name=node.name,
        uid=node.metadata.uid,
        version=node.metadata.resource_version,
        away=_away(node),
        boot_announced=_boot_announced(notes),
        unschedulable=node.spec.unschedulable,
        keeps_cordon=keys.KEEP_CORDONED in notes,
        drain=notes.get(keys.DRAIN, ""),
        rollout=_rollout(admin_layout(labels, notes)),
        desired_digest=admin_digest(labels, notes),
        request=mig_request_annotation.FORMAT.readable(notes.get(keys.MIG_REQUEST)),
        status=status,
        status_damaged=status is None and keys.MIG_STATUS in notes,
        permit=mig_permit_annotation.FORMAT.readable(notes.get(keys.MIG_PERMIT)),
        permit_text=notes.get(keys.MIG_PERMIT),
        has_former_permit=keys.FORMER_MIG_PERMIT in notes,
        cordoned_for=notes.get(keys.MIG_CORDON, ""),
        guards=tuple(notes.get(guard) for guard in names.SCALE_DOWN_GUARDS),
        deploy=_deploy(labels),
        allocatable=tuple(gpu_amounts(node.status.allocatable, resources).items()),
        capacity=tuple(gpu_amounts(node.status.capacity, resources).items()),
    )


def _rollout(stated: tuple[RequestSource, str] | None) -> str:
    """Name of the rollout of this layout, which fits into a record."""
    if stated is None:
        return ""
    source, text = stated
    if len(text) > _MOST_TEXT:
        text = f"{text[:_MOST_TEXT]}… {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"{source}:{text}" if text else ""


def _away(node: Node) -> UnavailableReason | None:
    meta = node.metadata
    taints = {taint.key for taint in node.spec.taints}
    if meta.deletion_timestamp or taints & set(REMOVAL_TAINTS):
        return UnavailableReason.REMOVAL
    paused = any(PAUSED_FOR_DRIVER in value for _, value in _deploy(meta.labels))
    if paused or meta.labels.get(DRIVER_UPGRADE, "") not in _UPGRADE_OVER:
        return UnavailableReason.DRIVER_UPGRADE
    if meta.annotations.get(REBOOT) or meta.annotations.get(KURED_CORDON):
        return UnavailableReason.REBOOT
    return None if is_true(node.status.conditions, "Ready") else UnavailableReason.NOT_READY


def _boot_announced(notes: Mapping[str, str]) -> float:
    announced = rfc3339.unix_seconds(notes.get(REBOOT, ""))
    is_unknown = announced is None and bool(notes.get(REBOOT))
    return math.inf if notes.get(KURED_CORDON) or is_unknown else announced or 0.0


def _deploy(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted(label for label in labels.items() if re.fullmatch(names.DEPLOY_LABELS, label[0]))
    )
