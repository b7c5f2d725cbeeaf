# SPDX-License-Identifier: Apache-2.0
"""State of the MIG layout of a Node, from its labels and annotations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from api import keys, mig_permit_annotation, mig_request_annotation, mig_status_annotation
from api.mig_permit_annotation import MigPermitAnnotation
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigPhase, MigStatusAnnotation, admin_digest
from base.errors import BadInput
from fleet.startup.startup_taint import is_tainted
from kube.amounts.gpu_amounts import gpu_amounts
from kube.objects.node import Node

_NONE: Final = "-"
UNJUDGED: Final = "unjudged"
"""Shown instead of the phase while the agent's status is about an earlier request."""
_OTHER_VERSION: Final = "written by another major version of gpuscape"
_SETTLED: Final = (MigPhase.UNCHANGED, MigPhase.IDLE, MigPhase.UNADOPTED)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayout:
    """State of the MIG layout of one Node, from its labels and annotations."""

    node: str
    desired: str | None
    """Desired layout, as the annotation or label has it; None where there is neither."""
    status: MigStatusAnnotation | None
    """The agent's last status; None where there is none that can be read."""
    request: MigRequestAnnotation | None
    permit: MigPermitAnnotation | None
    cordoned: bool
    damaged: str = ""
    """Why an annotation could not be read."""
    is_stale: bool = False
    """The agent's status is not about the layout that is desired now."""
    unlisted: tuple[str, ...] = ()
    """Resources of the layout of which the device plugin lists too few."""
    has_startup_taint: bool = False
    """The startup taint keeps pods away until the Node has its first layout."""

    @property
    def desired_line(self) -> str:
        """Desired layout on one line; empty where there is none."""
        return " ".join((self.desired or "").split())

    @property
    def phase(self) -> str:
        """Phase of the change, in one word; a dash where no agent has written a status."""
        if self.status is None:
            return _NONE
        return UNJUDGED if self.is_stale else self.status.phase

    @property
    def is_settled(self) -> bool:
        """Whether nothing remains to be done: the layout is applied, or there is none to obey."""
        idle = self.status is None and self.desired is None and not self.damaged
        return (idle or self.phase in _SETTLED) and self.permit is None

    @property
    def has_drifted(self) -> bool:
        """Whether the GPUs had the desired layout and somebody has changed them since."""
        status = self.status
        return status is not None and bool(status.reached) and status.reached == status.plan

    @property
    def failed(self) -> str:
        """The GPUs that are stuck or were rolled back, by index; empty where none is known."""
        return "" if self.status is None else mig_status_annotation.failed_text(self.status)

    @property
    def slot(self) -> str:
        """Phase of the coordinator's permit; a dash for none."""
        return _NONE if self.permit is None else self.permit.phase.value

    @property
    def pods(self) -> str:
        """Names of the pods that block the change, and the number of pods without a name."""
        if self.status is None or not self.status.pods:
            return _NONE
        more = f" and {self.status.more_pods} more" if self.status.more_pods else ""
        return ", ".join(self.status.pods) + more

    @property
    def why(self) -> str:
        """Reason of the phase, and the startup taint, for people."""
        kept = ("pods kept away by the startup taint",) if self.has_startup_taint else ()
        return "; ".join(text for text in (self._reason, *kept) if text)

    @property
    def _reason(self) -> str:
        if self.damaged:
            return self.damaged
        if self.status is None:
            return "" if self.desired is None else "no agent that manages MIG has evaluated it"
        if self.unlisted and self.permit is None:
            return f"the device plugin does not list all of {', '.join(self.unlisted)}"
        if self.is_stale:
            return "its agent has not evaluated the present desired layout yet"
        return self.status.reason


def node_layout(node: Node) -> NodeLayout | None:
    """Read the layout state of a Node; None where neither a user nor an agent manages MIG there."""
    annotations, labels = node.metadata.annotations, node.metadata.labels
    desired = annotations.get(keys.MIG_LAYOUT, labels.get(keys.MIG_CONFIG))
    damaged: list[str] = []

    def read(key: str, decode: Callable[[str], T | None]) -> T | None:
        text = annotations.get(key)
        if text is None:
            return None
        try:
            decoded = decode(text)
        except BadInput as error:
            damaged.append(str(error))
            return None
        if decoded is None:
            damaged.append(f"annotation {key}: {_OTHER_VERSION}")
        return decoded

    status = read(keys.MIG_STATUS, mig_status_annotation.decode)
    request = read(keys.MIG_REQUEST, mig_request_annotation.decode)
    permit = read(keys.MIG_PERMIT, mig_permit_annotation.decode)
    has_taint = is_tainted(node)
    capacity = gpu_amounts(node.status.capacity, () if status is None else status.allocatable)
    if desired is None and not damaged and not (status or request or permit or has_taint):
        return None
    return NodeLayout(
        node=node.name,
        desired=desired,
        status=status,
        request=request,
        permit=permit,
        cordoned=node.spec.unschedulable,
        damaged="; ".join(damaged),
        is_stale=status is not None and _is_stale(status, annotations, labels),
        unlisted=unlisted_resources(status, capacity),
        has_startup_taint=has_taint,
    )


def unlisted_resources(
    status: MigStatusAnnotation | None, listed: Mapping[str, int]
) -> tuple[str, ...]:
    """Resources of an applied layout of which the node lists fewer than the layout provides."""
    if status is None or status.phase != MigPhase.UNCHANGED:
        return ()
    expected = sorted(status.allocatable.items())
    return tuple(resource for resource, count in expected if listed.get(resource, 0) < count)


def _is_stale(
    status: MigStatusAnnotation, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> bool:
    """Whether a settled status was written before the present layout was requested.

    A label that the status shows as not obeyed may be one that the agent has judged.
    """
    digest, label = admin_digest(labels, annotations), labels.get(keys.MIG_CONFIG, "")
    if status.phase == MigPhase.UNCHANGED:
        return not digest or status.desired_digest not in ("", digest)
    if status.phase == MigPhase.IDLE:
        return bool(digest)
    return status.phase == MigPhase.UNADOPTED and (
        keys.MIG_LAYOUT in annotations or status.unadopted != label
    )
