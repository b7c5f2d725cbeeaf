# SPDX-License-Identifier: Apache-2.0
"""The desired MIG layout of a Node, and other programs that change layouts there. Pure.

Where another program manages MIG, the label ``nvidia.com/mig.config`` belongs to that program, also
where it changes; a label that is to be adopted where it matches is not obeyed before the GPUs have
its layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from api import keys
from api.device_names import DRA_DRIVER
from api.mig_status_annotation import (
    MOST_REASON,
    NEVER_ADOPTED,
    VERSION,
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
)
from base.text.safe_text import short_line

MIG_MANAGER_POD: Final = "nvidia-mig-manager-"
"""How names of its pods begin. Source: NVIDIA/gpu-operator, assets/state-mig-manager."""
MIG_MANAGER_SERVICE: Final = "etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service"
"""File that exists where the host's service is enabled.
Source: NVIDIA/mig-parted, deployments/systemd/nvidia-mig-manager.service."""
GKE_PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
"""Node label. Source: GKE's documentation, "Running multi-instance GPUs"."""
HAMI_REGISTER: Final = "hami.io/node-nvidia-register"
"""Node annotation of HAMi's device plugin. Source: Project-HAMi, docs/develop/protocol.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRequest:
    """A desired layout, as the Node states it."""

    source: RequestSource
    text: str
    """Name of a configuration; of the annotation also the layouts themselves."""
    mode_change: str | None = None
    """The Node's annotation ``gpuscape.io/mig-mode-change``; None where it has none."""


class Adoption(StrEnum):
    """Values of the admin's label ``gpuscape.io/mig-adopt``."""

    MATCHING = "matching"
    """A label from before is obeyed from the moment on when the GPUs have its layout."""
    ANY = "any"
    """The label is obeyed, and the GPUs are changed for it."""
    NEVER = NEVER_ADOPTED
    """No value of the label is obeyed: it belongs to another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLayout:
    """The desired layout of a Node by its annotation or label."""

    request: LayoutRequest | None = None
    unadopted: str = ""
    """Value of the label, where that is not obeyed."""
    adopting: bool = False
    """The request counts once the GPUs have its layout; nothing is done for it before."""


def stated_layout(metadata: Mapping[str, Any], before: MigStatusAnnotation | None) -> StatedLayout:
    """The desired layout of the Node; ``before``: its present status, None where it has none.

    The annotation wins. A label that was there before the first status is somebody else's affair
    until it changes, or an admin has it adopted: installing an agent changes no layout.
    """
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    label, adopt = str(labels.get(keys.MIG_CONFIG, "")), labels.get(keys.MIG_ADOPT)
    mode_change = annotations.get(keys.MIG_MODE_CHANGE)
    is_old = before is None or before.unadopted == label
    unadopted = label if adopt == Adoption.NEVER or (is_old and adopt != Adoption.ANY) else ""
    text, source, adopting = annotations.get(keys.MIG_LAYOUT), RequestSource.ANNOTATION, False
    if text is None:
        adopting = bool(unadopted) and adopt == Adoption.MATCHING
        if not label or (unadopted and not adopting):
            return StatedLayout(unadopted=unadopted)
        text, source = label, RequestSource.LABEL
    request = LayoutRequest(source=source, text=str(text), mode_change=mode_change)
    return StatedLayout(request=request, unadopted=unadopted, adopting=adopting)


def other_managers(
    metadata: Mapping[str, Any],
    *,
    pods: Iterable[str] = (),
    slice_drivers: Iterable[str] = (),
    service_enabled: bool = False,
) -> tuple[str, ...]:
    """Other programs that change or own MIG layouts of this node, each in words for people.

    ``pods``: ``namespace/name`` of all on the node; ``slice_drivers``: drivers of the node's
    ResourceSlices; ``service_enabled``: whether the host has :data:`MIG_MANAGER_SERVICE`.
    """
    own = sorted(pod for pod in pods if pod.partition("/")[2].startswith(MIG_MANAGER_POD))
    managers = [f"NVIDIA's MIG manager (pod {pod})" for pod in own]
    if service_enabled:
        managers.append("NVIDIA's MIG manager (service nvidia-mig-manager of the host)")
    if DRA_DRIVER in slice_drivers:
        managers.append(f"NVIDIA's DRA driver (ResourceSlices of {DRA_DRIVER})")
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if labels.get(GKE_PARTITION):
        managers.append(f"GKE (label {GKE_PARTITION}={labels[GKE_PARTITION]})")
    if HAMI_REGISTER in annotations:
        managers.append(f"HAMi (annotation {HAMI_REGISTER})")
    return tuple(managers)


_DIFFERENT: Final = (
    f"the GPUs do not have the layout of the label {keys.MIG_CONFIG}={{value}}, so it is not"
    f" adopted; {keys.MIG_ADOPT}={Adoption.ANY} has them changed for it"
)


def as_adopted(
    stated: StatedLayout, evaluated: MigStatusAnnotation, *, foreign: bool
) -> MigStatusAnnotation:
    """The evaluation; for a label that is not obeyed, a status that says so and why.

    ``foreign``: another program manages MIG on the node.
    """
    request = stated.request
    if request is None or request.source is not RequestSource.LABEL:
        return evaluated
    if not foreign and (not stated.adopting or evaluated.phase == MigPhase.UNCHANGED):
        return evaluated
    reason = evaluated.reason
    if not foreign and evaluated.phase == MigPhase.PLANNED:
        reason = _DIFFERENT.format(value=request.text)
    reason = short_line(reason, MOST_REASON)
    return MigStatusAnnotation(
        v=VERSION, phase=MigPhase.UNADOPTED, reason=reason, unadopted=request.text
    )


def unadopted_label(stated: StatedLayout, evaluated: MigStatusAnnotation | None) -> str:
    """The value of the label that a status shows as not obeyed; empty where there is none."""
    if evaluated is None or stated.request is None:
        return stated.unadopted
    if stated.adopting or evaluated.phase == MigPhase.UNADOPTED:
        return evaluated.unadopted
    return stated.unadopted
