# SPDX-License-Identifier: Apache-2.0
"""Judges a request for MIG layouts by the GPUs as they are. Pure.

Import it where there is a request, not before: reading configurations takes memory.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from agent.layouts.layout_request import LayoutRequest
from api import keys
from api.mig_resources import MOST_OFFERS, MigStrategy
from api.mig_status_annotation import (
    MOST_DESIRED,
    MOST_PODS,
    MOST_REASON,
    VERSION,
    GpuChangeStatus,
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    desired_digest,
)
from base.errors import BadInput
from base.text.safe_text import short_line
from discovery.mig_state import MigGpu, MigReading, UnreadMigGpu
from kubelet.allocated_devices import NodeAllocation
from mig.configs.config_choice import named_layouts
from mig.configs.layout_annotation import InlineLayout, inline_layouts, parse_layout_annotation
from mig.configs.mig_configs import MigConfigs
from mig.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from mig.gpu_layout import GpuLayout
from mig.planned_change import GpuChange, InstanceAction, planned_changes
from mig.planner import MigPlan, Obstacle, joint_command, plan

OBSERVED: Final = "nothing is changed by itself: compare with gpuscape mig plan on the node"
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """Status and plan of a request for MIG layouts."""

    status: MigStatusAnnotation
    """The status without its time."""
    layouts: Mapping[str, GpuLayout] = field(default_factory=dict)
    """Layouts of the requested GPUs, by UUID; empty where the request cannot be understood."""
    plan: MigPlan | None = None
    """The way to the layouts; None where there is none."""


def plan_request(
    request: LayoutRequest,
    readings: Sequence[MigReading],
    configs: MigConfigs | None,
    users: DeviceUsers,
    strategy: MigStrategy | None,
    *,
    next_step: str = OBSERVED,
) -> PlannedRequest:
    """Status and plan of a request, by these readings.

    ``configs``: those of the configured file, None for the default ones of these GPUs; ``users``:
    pods, and programs that are no pod's; ``strategy``: the device plugin's, None where it is not
    known; ``next_step``: what a plan's reason says of who carries it out, or what keeps it.
    """
    unread = [reading.bus_id for reading in readings if isinstance(reading, UnreadMigGpu)]
    gpus = [reading for reading in readings if isinstance(reading, MigGpu)]
    try:
        if unread and not _names_read_gpus(request, gpus):
            why = f"the MIG state of {', '.join(unread)} cannot be read; {_NAME_OTHERS}"
            return PlannedRequest(status=status(request, MigPhase.UNREAD, why))
        layouts = desired_layouts(request, gpus, configs)
    except BadInput as error:
        return PlannedRequest(status=status(request, MigPhase.REFUSED, str(error)))
    digest = layouts_digest(layouts)
    mig_plan = plan(gpus, layouts, users, strategy=strategy)
    if not isinstance(mig_plan, MigPlan):
        why = _obstacles(mig_plan.obstacles, gpus)
        return PlannedRequest(
            status=status(request, MigPhase.REFUSED, why, digest), layouts=layouts
        )
    offers = {name: count for name, count in (mig_plan.allocatable or {}).items() if count}
    if not mig_plan.steps:
        unchanged = status(request, MigPhase.UNCHANGED, "", digest, offers=offers)
        return PlannedRequest(status=unchanged, layouts=layouts, plan=mig_plan)
    changes = planned_changes(gpus, layouts.keys(), mig_plan, users)
    pods = sorted(user.name for user in mig_plan.disturbed if user.kind is UserKind.POD)
    programs = sorted(user.name for user in mig_plan.disturbed if user.kind is UserKind.PROCESS)
    planned = status(
        request,
        MigPhase.PLANNED,
        "; ".join(text for text in (in_use(programs) if programs else "", next_step) if text),
        digest,
        gpus=tuple(_change(change) for change in changes if change.steps),
        pods=pods,
        offers=offers,
    )
    return PlannedRequest(status=planned, layouts=layouts, plan=mig_plan)


def status(
    request: LayoutRequest,
    phase: MigPhase,
    reason: str,
    digest: str = "",
    *,
    gpus: tuple[GpuChangeStatus, ...] = (),
    pods: Sequence[str] = (),
    offers: Mapping[str, int] | None = None,
) -> MigStatusAnnotation:
    """A status whose texts are cut to what its format takes.

    ``offers``: what the node offers once the layouts are there; nobody sees it before they are.
    """
    return MigStatusAnnotation(
        v=VERSION,
        phase=phase,
        source=request.source,
        desired=short_line(request.text, MOST_DESIRED),
        reason=short_line(reason, MOST_REASON),
        plan=digest,
        desired_digest=desired_digest(request.source, request.text),
        gpus=gpus,
        pods=tuple(pods[:MOST_PODS]),
        more_pods=max(0, len(pods) - MOST_PODS),
        allocatable=dict(offers) if offers and len(offers) <= MOST_OFFERS else {},
    )


_NAME_OTHERS: Final = f"to go on without, name the other GPUs in {keys.MIG_LAYOUT}"


def _names_read_gpus(request: LayoutRequest, gpus: Sequence[MigGpu]) -> bool:
    """Whether the request names its GPUs, and all of them were read. Raises BadInput."""
    if request.source is RequestSource.LABEL:
        return False
    layout = parse_layout_annotation(request.text)
    return isinstance(layout, InlineLayout) and layout.is_of(gpus)


def desired_layouts(
    request: LayoutRequest, gpus: Sequence[MigGpu], configs: MigConfigs | None
) -> dict[str, GpuLayout]:
    """GPU UUID to the layout that is asked for; other GPUs stay.

    Raises BadInput naming the key where the request cannot be understood, or does not go with
    these GPUs.
    """
    if request.source is RequestSource.LABEL:
        layout: str | InlineLayout = request.text
    else:
        layout = parse_layout_annotation(request.text)
    if isinstance(layout, InlineLayout):
        return inline_layouts(layout, gpus)
    return named_layouts(configs, layout, gpus)


def in_use(programs: Sequence[str]) -> str:
    """Reason for people that programs are in the way; there is at least one."""
    more = f" and {len(programs) - 1} more" if len(programs) > 1 else ""
    return (
        f"process {programs[0]}{more} uses what would be destroyed, and belongs to no pod: it has"
        " to end"
    )


def layouts_digest(layouts: Mapping[str, GpuLayout]) -> str:
    """Digest of layouts by GPU UUID; equal layouts have one digest, however they were requested."""
    canonical = json.dumps(
        {uuid: asdict(layout) for uuid, layout in layouts.items()}, sort_keys=True
    )
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_DIGITS]


def allocated_users(gpus: Iterable[MigReading], allocation: NodeAllocation) -> DeviceUsers:
    """Pods by the parts of GPUs that the kubelet has allocated to them."""
    uuids = {gpu.bus_id: gpu.uuid for gpu in gpus if isinstance(gpu, MigGpu)}
    held: dict[MigPart, set[DeviceUser]] = {}
    for container in allocation.containers:
        pod = DeviceUser(UserKind.POD, f"{container.namespace}/{container.pod}")
        for device in container.devices:
            uuid = uuids.get(device.part.bus_id)
            if uuid is not None:
                held.setdefault(MigPart(uuid, device.part.gpu_instance_id), set()).add(pod)
    return {part: frozenset(pods) for part, pods in held.items()}


def _change(change: GpuChange) -> GpuChangeStatus:
    actions = Counter(instance.action for instance in change.instances)
    return GpuChangeStatus(
        gpu=change.index,
        keep=actions[InstanceAction.KEEP],
        destroy=actions[InstanceAction.DESTROY],
        create=actions[InstanceAction.CREATE],
        mig=change.mode_after if change.sets_mode else None,
    )


def _obstacles(obstacles: Iterable[Obstacle], gpus: Iterable[MigGpu]) -> str:
    """Obstacles in one sentence; equal ones of several GPUs stand once, with one command for all.

    A command is whole or left out: cut short it would be another one.
    """
    index = {gpu.uuid: gpu.index for gpu in gpus}
    alike: dict[str, list[Obstacle]] = {}
    for obstacle in obstacles:
        alike.setdefault(obstacle.detail, []).append(obstacle)
    causes = [_obstacle(group, index) for group in alike.values()]
    runs = [joint_command(group) for group in alike.values()]
    whole = "; ".join(
        cause if run is None else f"{cause} (run {run})"
        for cause, run in zip(causes, runs, strict=True)
    )
    if len(whole) <= MOST_REASON or not any(runs):
        return whole
    return "; ".join((*causes, "gpuscape mig plan on the node has the commands"))


def _obstacle(alike: Sequence[Obstacle], index: Mapping[str, int]) -> str:
    numbers = ", ".join(
        str(index[obstacle.gpu]) for obstacle in alike if obstacle.gpu and obstacle.gpu in index
    )
    where = f"GPU {numbers}" if numbers else (alike[0].gpu or "node")
    return f"{where}: {alike[0].detail}"
