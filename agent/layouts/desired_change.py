# SPDX-License-Identifier: Apache-2.0
"""The desired change of MIG layouts, and the requests for it to coordinator and actuator. Pure.

Import it where changes are made: it comes with the actuator's messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from agent.layouts.layout_request import LayoutRequest
from agent.layouts.planned_request import PlannedRequest
from api import mig_request_annotation
from api.actuator.actuator_messages import (
    ApplyRequest,
    KnownChange,
    PodOnGpu,
    PodsOnGpus,
    RequestedInstance,
    RequestedLayout,
)
from api.mig_request_annotation import (
    MOST_CHARACTERS,
    MOST_PODS,
    MOST_PROGRAM,
    MOST_PROGRAMS,
    VERSION,
    MigRequestAnnotation,
)
from api.mig_resources import MOST_OFFERS, MigStrategy
from api.state_annotation import pod_key
from base.text.safe_text import short_line
from mig.gpu_layout import GpuLayout
from mig.users.device_users import DeviceUsers, MigPart, UserKind

_MAX_TEXT: Final = 256
"""Characters of a request's text that the actuator takes."""
_MAX_PODS: Final = 2048
_NAME: Final = re.compile(r"[0-9a-z./-]{1,320}")
"""Pod names that the actuator takes; it reads others in the kubelet's checkpoint itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredChange:
    """Layouts that the GPUs do not have, and the pods and programs that their change disturbs."""

    plan: str
    """Digest of the layouts."""
    request_text: str
    """Source and text of the request, for people."""
    layouts: Mapping[str, RequestedLayout]
    """GPU UUID to the GPU's desired layout."""
    gpus: tuple[int, ...]
    """Indices of the GPUs that change."""
    modes: bool
    """Whether MIG is turned on or off on one of these GPUs."""
    pods: frozenset[str]
    """``namespace/name`` of pods that use what would be destroyed."""
    other_pods: frozenset[str]
    """``namespace/name`` of all other pods that have a GPU or a MIG device."""
    programs: tuple[str, ...]
    """Programs outside pods that use what would be destroyed."""
    on_gpus: PodsOnGpus
    """All pods, by the parts of GPUs that they hold."""
    allocatable: Mapping[str, int]
    """Allocatable GPU resources of the node afterwards; empty where they are not known."""
    strategy: MigStrategy | None
    resets: bool = False
    """Whether the driver resets one of these GPUs for its new mode."""

    def apply_request(self, request: str) -> ApplyRequest:
        """The change as a request to the actuator."""
        return ApplyRequest(
            change=request,
            origin=self.request_text,
            desired=dict(self.layouts),
            strategy=self.strategy,
            pods=self.on_gpus,
            mode_change="driver" if self.resets else UNSET,
        )

    def annotation(
        self, request: str, *, drift: bool = False, since: str = ""
    ) -> MigRequestAnnotation:
        """The change as a request for a permit; pods for which there is no room are counted.

        ``drift``: the GPUs have lost the layouts, and nobody asks for others; ``since``: when the
        change was first requested.
        """
        named = MigRequestAnnotation(
            v=VERSION,
            request=request,
            plan=self.plan,
            since=since,
            gpus=self.gpus,
            modes=self.modes,
            drift=drift,
            pods=_keys(self.pods),
            other_pods=_keys(self.other_pods),
            programs=tuple(
                short_line(program, MOST_PROGRAM) for program in self.programs[:MOST_PROGRAMS]
            ),
            allocatable=dict(self.allocatable) if len(self.allocatable) <= MOST_OFFERS else {},
        )
        room = MOST_PODS
        while len(mig_request_annotation.encode(shortened := _cut(named, room))) > MOST_CHARACTERS:
            room -= 1
        return shortened


def is_in_the_way(other: KnownChange, change: DesiredChange | None) -> bool:
    """Whether a change in the journal keeps the actuator from this one.

    A stuck change blocks only its own GPUs in the actuator. While the GPUs of ``change`` are not
    known, after a start of the agent, it does not count: if they share one, the actuator refuses.
    """
    if other.outcome is None or not other.gpus:
        return True
    return change is not None and not change.layouts.keys().isdisjoint(other.gpus)


def desired_change(
    request: LayoutRequest,
    planned: PlannedRequest,
    users: DeviceUsers,
    strategy: MigStrategy | None,
) -> DesiredChange | None:
    """The change that a planned request needs; None where it asks for none."""
    layouts = planned.layouts
    if layouts is None or layouts.plan is None or not layouts.plan.steps:
        return None
    pods = frozenset(layouts.disturbed(UserKind.POD))
    return DesiredChange(
        plan=planned.status.plan,
        request_text=short_line(f"{request.source} {request.text}", _MAX_TEXT),
        layouts=_requested_layouts(layouts.layouts),
        gpus=tuple(change.gpu for change in planned.status.gpus),
        modes=layouts.sets_modes,
        pods=pods,
        other_pods=_pod_names(users) - pods,
        programs=tuple(layouts.disturbed(UserKind.PROCESS)),
        on_gpus=_pods_on_gpus(users),
        allocatable=layouts.plan.allocatable or {},
        strategy=strategy,
        resets=bool(layouts.resets),
    )


def _requested_layouts(layouts: Mapping[str, GpuLayout]) -> dict[str, RequestedLayout]:
    """Layouts as the actuator takes them."""
    return {
        uuid: RequestedLayout(
            mig=layout.mig,
            instances=tuple(
                RequestedInstance(
                    profile=instance.profile,
                    compute=instance.compute,
                    start=instance.start if instance.start >= 0 else None,
                )
                for instance in layout.instances
            ),
        )
        for uuid, layout in layouts.items()
    }


def _pods_on_gpus(users: DeviceUsers) -> PodsOnGpus:
    """Pods by the parts of GPUs that they hold, in order."""
    pods = (
        PodOnGpu(
            gpu=part.gpu, instance=part.instance, compute=part.compute, kind="pod", name=user.name
        )
        for part, part_users in sorted(users.items(), key=lambda pair: _part_order(pair[0]))
        for user in sorted(part_users)
        if user.kind is UserKind.POD and _NAME.fullmatch(user.name)
    )
    return tuple(pods)[:_MAX_PODS]


def _part_order(part: MigPart) -> tuple[str, int, int]:
    """A whole GPU before its GPU instances, and a GPU instance before its compute instances."""
    instance, compute = (-1 if n is None else n for n in (part.instance, part.compute))
    return part.gpu, instance, compute


def _pod_names(users: DeviceUsers) -> frozenset[str]:
    """Names of all pods that hold a part of a GPU."""
    all_users = (user for part_users in users.values() for user in part_users)
    return frozenset(user.name for user in all_users if user.kind is UserKind.POD)


def _cut(request: MigRequestAnnotation, room: int) -> MigRequestAnnotation:
    pods = request.pods[:room]
    other_pods = request.other_pods[: room - len(pods)]
    unlisted = len(request.pods) + len(request.other_pods) - len(pods) - len(other_pods)
    return replace(request, pods=pods, other_pods=other_pods, unlisted=unlisted)


def _keys(pods: Collection[str]) -> tuple[str, ...]:
    return tuple(pod_key(*pod.split("/", 1)) for pod in sorted(pods))
