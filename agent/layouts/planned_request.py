# SPDX-License-Identifier: Apache-2.0
"""Evaluates a request for MIG layouts by the GPUs as they are. Pure.

Import it where there is a request, not before: reading configurations takes memory.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from agent.layouts.layout_request import LayoutRequest
from api import keys
from api.mig_mode_change import ModeChange, annotated_mode_change
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
from base.grouping import grouped
from base.text.safe_text import short_line
from discovery.mig_state import MigGpu, MigReading, split_readings
from kubelet.allocated_devices import NodeAllocation
from mig.configs.config_choice import LayoutChoice
from mig.configs.layout_annotation import parse_layout_annotation
from mig.configs.mig_configs import MigConfigs
from mig.gpu_layout import GpuLayout
from mig.gpu_plan import GpuPlan, InstanceAction
from mig.mode_permission import ModePermission
from mig.planned_layouts import PlannedLayouts, planned_layouts
from mig.planner import MigPlan, Obstacle, joint_command
from mig.shared_reset import ONE_BY_ONE, SharedReset
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind

OBSERVED: Final = "nothing is changed by itself: compare with gpuscape mig plan on the node"
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """Status and plan of a request for MIG layouts."""

    status: MigStatusAnnotation
    """The status without its time."""
    layouts: PlannedLayouts | None = None
    """Layouts and plan, or its refusal; None where the request cannot be understood."""


def plan_request(
    request: LayoutRequest,
    readings: Sequence[MigReading],
    configs: MigConfigs | None,
    users: DeviceUsers,
    strategy: MigStrategy | None,
    *,
    next_step: str = OBSERVED,
    mode_change: ModeChange = ModeChange.OFF,
    shared: SharedReset = ONE_BY_ONE,
) -> PlannedRequest:
    """Status and plan of a request, by these readings.

    ``configs``: those of the configured file, None for the default ones of these GPUs; ``users``:
    pods, and programs that are no pod's; ``strategy``: the device plugin's, None where it is not
    known; ``next_step``: what a plan's reason says of who carries it out, or what keeps it;
    ``mode_change``: what may be done about modes that need a reset, where the Node does not say;
    ``shared``: whether GPUs are reset together.
    """
    gpus, unread_gpus = split_readings(readings)
    unread = [gpu.bus_id for gpu in unread_gpus]
    try:
        choice = layout_choice(request, configs)
        if unread and not choice.is_of(gpus):
            why = f"the MIG state of {', '.join(unread)} cannot be read; {_NAME_OTHERS}"
            return PlannedRequest(status=status(request, MigPhase.UNREAD, why))
        layouts = choice.gpu_layouts(gpus)
        if request.mode_change is not None:
            mode_change = annotated_mode_change(request.mode_change)
    except BadInput as error:
        return PlannedRequest(status=status(request, MigPhase.REFUSED, str(error)))
    modes = ModePermission(by=mode_change)
    planned = planned_layouts(gpus, layouts, users, strategy=strategy, modes=modes)
    switched = {change.gpu.uuid for change in planned.changes if change.resets}
    if refusal := shared.refusal(gpus, switched, unread):
        planned = replace(planned, plan_or_refusal=refusal)
    return PlannedRequest(status=_planned_status(request, planned, next_step), layouts=planned)


def _planned_status(
    request: LayoutRequest, planned: PlannedLayouts, next_step: str
) -> MigStatusAnnotation:
    digest, outcome = layouts_digest(planned.layouts), planned.plan_or_refusal
    if not isinstance(outcome, MigPlan):
        why = _obstacles(outcome.obstacles, planned.gpus)
        return status(request, MigPhase.REFUSED, why, digest)
    allocatable = {name: count for name, count in (outcome.allocatable or {}).items() if count}
    if not outcome.steps:
        return status(request, MigPhase.UNCHANGED, "", digest, allocatable=allocatable)
    programs = planned.disturbed(UserKind.PROCESS)
    return status(
        request,
        MigPhase.PLANNED,
        "; ".join(filter(None, (*_about_resets(planned), in_use(programs), next_step))),
        digest,
        gpus=tuple(_change(change) for change in planned.changes if change.steps),
        pods=planned.disturbed(UserKind.POD),
        allocatable=allocatable,
    )


def status(
    request: LayoutRequest,
    phase: MigPhase,
    reason: str,
    digest: str = "",
    *,
    gpus: tuple[GpuChangeStatus, ...] = (),
    pods: Sequence[str] = (),
    allocatable: Mapping[str, int] | None = None,
) -> MigStatusAnnotation:
    """A status whose texts are cut to what its format takes.

    ``allocatable``: resources of the node with the layouts; shown only once the GPUs have these.
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
        allocatable=dict(allocatable) if allocatable and len(allocatable) <= MOST_OFFERS else {},
    )


_NAME_OTHERS: Final = f"to go on without, name the other GPUs in {keys.MIG_LAYOUT}"


def layout_choice(request: LayoutRequest, configs: MigConfigs | None) -> LayoutChoice:
    """The layout that is requested. Raises BadInput naming the key that cannot be understood."""
    is_name = request.source is RequestSource.LABEL
    layout = request.text if is_name else parse_layout_annotation(request.text)
    return LayoutChoice(layout=layout, configs=configs)


def _about_resets(planned: PlannedLayouts) -> Iterator[str]:
    """What the plan means for GPUs whose mode changes with a reset."""
    if planned.resets:
        indices = ", ".join(map(str, planned.resets))
        yield f"the driver resets GPU {indices} for the MIG mode, and all that is on them ends"
    if planned.assumed:
        yield "judged by the table of known models: the driver has the profiles once MIG is on"


def in_use(programs: Sequence[str]) -> str:
    """Reason for people that programs are in the way; empty where there are none."""
    if not programs:
        return ""
    more = f" and {len(programs) - 1} more" if len(programs) > 1 else ""
    return (
        f"process {programs[0]}{more} uses what would be destroyed, and belongs to no pod: it has"
        " to end"
    )


def layouts_digest(layouts: Mapping[str, GpuLayout]) -> str:
    """Digest of layouts by GPU UUID; equal layouts have one digest, however they were requested."""
    documents = {uuid: asdict(layout) for uuid, layout in layouts.items()}
    canonical = json.dumps(documents, sort_keys=True)
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


def _change(change: GpuPlan) -> GpuChangeStatus:
    actions = Counter(instance.action for instance in change.instances)
    return GpuChangeStatus(
        gpu=change.gpu.index,
        keep=actions[InstanceAction.KEEP],
        destroy=actions[InstanceAction.DESTROY],
        create=actions[InstanceAction.CREATE],
        mig=change.after.mig if change.sets_mode else None,
    )


def _obstacles(obstacles: Iterable[Obstacle], gpus: Iterable[MigGpu]) -> str:
    """Obstacles in one sentence; equal ones of several GPUs stand once, with one command for all.

    A command is whole or left out: cut short it would be another one.
    """
    index = {gpu.uuid: gpu.index for gpu in gpus}
    alike = grouped(obstacles, lambda obstacle: obstacle.detail)
    causes = [_obstacle(group, index) for group in alike.values()]
    runs = [joint_command(group) for group in alike.values()]
    pairs = zip(causes, runs, strict=True)
    whole = "; ".join(cause if run is None else f"{cause} (run {run})" for cause, run in pairs)
    if len(whole) <= MOST_REASON or not any(runs):
        return whole
    return "; ".join((*causes, "gpuscape mig plan on the node has the commands"))


def _obstacle(alike: Sequence[Obstacle], index: Mapping[str, int]) -> str:
    numbers = ", ".join(
        str(index[obstacle.gpu]) for obstacle in alike if obstacle.gpu and obstacle.gpu in index
    )
    where = f"GPU {numbers}" if numbers else (alike[0].gpu or "node")
    return f"{where}: {alike[0].detail}"
