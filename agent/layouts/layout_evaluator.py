# SPDX-License-Identifier: Apache-2.0
"""Evaluates the requested MIG layout, anew when anything that the last evaluation used changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.layout_request import LayoutRequest, other_managers
from api.mig_mode_change import ModeChange
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from base.errors import BadInput, Transient
from discovery.driver_errors import Released
from discovery.mig_state import MigReading, split_readings
from discovery.model import NodeSnapshot, nvidia_gpus
from kubelet.allocated_devices import NodeAllocation

if TYPE_CHECKING:
    from agent.layouts.enforced_layouts import EnforcePorts
    from agent.layouts.planned_request import PlannedRequest
    from api.actuator.actuator_messages import UseAnswer
    from kubelet.devices_checkpoint import KubeletDevices
    from mig.configs.mig_configs import MigConfigs
    from mig.users.device_users import DeviceUsers

REREAD_SECONDS: Final = 300.0
"""Time between two readings of the MIG state where nothing is seen to change."""
_PODS_UNKNOWN: Final = (
    "nothing is changed before the kubelet's pod-resources socket answers: it is not known who has"
    " which GPU (see gpuscape doctor)"
)
UNREAD_SECONDS: Final = 30.0
"""Before GPUs that could not be read, or that a program uses, are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutInputs:
    """Functions and settings by which the watch reads the node."""

    read: Callable[[], Sequence[MigReading]]
    """The MIG state of all GPUs. Raises Transient."""
    snapshot: Callable[[], NodeSnapshot | None]
    """The newest snapshot; None before the first."""
    configs: Callable[[], MigConfigs | None] = lambda: None
    """MIG configurations of the configured file; None for the default ones. Raises BadInput with
    file, line and key."""
    strategy: MigStrategy | None = None
    """The device plugin's MIG strategy; None where it is not known."""
    mode_change: ModeChange = ModeChange.OFF
    """What may be done about MIG modes that need a reset, where the Node does not say."""
    slice_drivers: Callable[[], frozenset[str]] = frozenset
    """Drivers of the node's ResourceSlices, as far as they may be read."""
    service_enabled: Callable[[], bool] = lambda: False
    """Whether the host starts NVIDIA's MIG manager itself."""
    program_name: Callable[[int], str] = lambda _pid: ""
    """A program's name by its pid, as the driver gives that; empty where it is not known."""
    kubelet: Callable[[], KubeletDevices | None] = lambda: None
    """Devices of pods by the kubelet's checkpoint; None where that cannot be read, and its
    pod-resources socket is believed. Raises BadInput."""
    gpu_use: Callable[[], UseAnswer | None] = lambda: None
    """Who has GPUs open and how they are reset, by the actuator; None where it cannot be asked."""
    enforce: EnforcePorts | None = None
    """Calls by which layouts are changed; None where they are only observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of evaluating a request by one reading of the node."""

    status: MigStatusAnnotation
    """The status to show, without its time."""
    desired: DesiredLayout | None = None
    """The change to carry out; None where it is not known what that takes, or nobody does."""
    unsettled: bool = False
    """Whether it is soon to be repeated: nothing announces what it waits for."""
    foreign: bool = False
    """Whether another program manages MIG on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts by which a layout is evaluated, apart from the GPUs themselves."""

    metadata: Mapping[str, Any]
    """The Node's metadata."""
    snapshot: NodeSnapshot
    allocation: NodeAllocation | None
    """Devices of pods by the kubelet; None where it has not been asked yet."""
    changes: int = 0
    """Number of times that the GPUs were changed; readings made with fewer do not count."""


class LayoutEvaluator:
    """Evaluates a request when anything that its last evaluation used has changed. One thread."""

    def __init__(self, inputs: LayoutInputs) -> None:
        self._inputs = inputs
        self._basis: object = None
        self._due = 0.0

    def forget(self) -> None:
        """Evaluate anew the next time, whatever the last evaluation; any thread may call it."""
        self._basis = None

    def evaluate_by(self, deadline: float) -> None:
        """Evaluate anew at ``deadline`` at the latest."""
        self._due = min(self._due, deadline)

    def foreign_managers(
        self, metadata: Mapping[str, Any], allocation: NodeAllocation | None
    ) -> tuple[str, ...]:
        """Other programs that manage MIG on the node, in words; any thread may call it."""
        return other_managers(
            metadata,
            pods=() if allocation is None else allocation.pods,
            slice_drivers=self._inputs.slice_drivers(),
            service_enabled=self._inputs.service_enabled(),
        )

    def evaluate(self, request: LayoutRequest, facts: NodeFacts, now: float) -> Evaluation | None:
        """Evaluation of a request; None where the last one still holds, or while all handles are
        released."""
        managers = self.foreign_managers(facts.metadata, facts.allocation)
        if managers:
            why = f"{' and '.join(managers)} manages MIG on this node"
            return replace(self._refused(request, why, facts), foreign=True)
        try:
            configs = self._inputs.configs()
        except BadInput as error:
            return self._refused(request, str(error), facts)
        from agent.layouts.planned_request import status

        try:
            kubelet = self._inputs.kubelet()
        except BadInput as error:
            return Evaluation(status=status(request, MigPhase.UNREAD, str(error)))
        allocation = facts.allocation or NodeAllocation()
        pods_known = facts.allocation is not None
        held = kubelet or (not pods_known, allocation.by_pod)
        basis = request, configs, _mig_part(facts.snapshot), held, pods_known, facts.changes
        if basis == self._basis and now < self._due:
            return None
        try:
            readings = self._inputs.read()
        except Released:
            return None
        except Transient as error:
            evaluation = Evaluation(status=status(request, MigPhase.UNREAD, str(error)))
        else:
            users = _pod_users(readings, kubelet, allocation)
            evaluation = self._planned(request, configs, readings, users, facts)
        is_unread = evaluation.status.phase == MigPhase.UNREAD
        self._basis = basis
        self._due = now + (UNREAD_SECONDS if is_unread or evaluation.unsettled else REREAD_SECONDS)
        if is_unread or not pods_known:  # nor is it known whether a pod manages MIG
            return replace(evaluation, desired=None)
        return evaluation

    def _planned(
        self,
        request: LayoutRequest,
        configs: MigConfigs | None,
        readings: Sequence[MigReading],
        pods: DeviceUsers,
        facts: NodeFacts,
    ) -> Evaluation:
        """The evaluation by these readings.

        Nothing announces the end of a program that is no pod's, nor the start of Fabric Manager.
        """
        from agent.layouts.planned_request import OBSERVED, plan_request
        from mig.shared_reset import ONE_BY_ONE, SharedReset
        from mig.users.device_users import all_users
        from mig.users.process_users import openers_of_nobody, programs_of_nobody

        enforced = self._inputs.enforce is not None
        next_step = OBSERVED
        if enforced:
            next_step = _PODS_UNKNOWN if facts.allocation is None else ""
        gpus, _ = split_readings(readings)
        programs = programs_of_nobody(gpus, pods, self._inputs.program_name)
        is_unsettled, users = any(programs.values()), all_users(pods, programs)

        def plan_with(users: DeviceUsers, shared: SharedReset = ONE_BY_ONE) -> PlannedRequest:
            return plan_request(
                request,
                readings,
                configs,
                users,
                self._inputs.strategy,
                next_step=next_step,
                mode_change=self._inputs.mode_change,
                shared=shared,
            )

        planned = plan_with(users)
        if enforced and planned.layouts is not None and planned.layouts.sets_modes:
            # only now: the actuator scans all open files of the node for this
            use = self._inputs.gpu_use()
            openers = openers_of_nobody(gpus, () if use is None else use.users)
            is_unsettled, users = is_unsettled or any(openers.values()), all_users(users, openers)
            shared = use and SharedReset(why=use.together, is_allowed=use.may_reset)
            planned = plan_with(users, shared or ONE_BY_ONE)
            is_unsettled = is_unsettled or bool(shared and shared.why)
        evaluation = self._evaluation((request, configs), planned, pods, facts)
        return replace(evaluation, unsettled=is_unsettled)

    def _refused(self, request: LayoutRequest, why: str, facts: NodeFacts) -> Evaluation:
        """A refusal that needs no reading of the GPUs; the last evaluation no longer holds."""
        from agent.layouts.planned_request import PlannedRequest, status

        self._basis = None
        planned = PlannedRequest(status=status(request, MigPhase.REFUSED, why))
        return self._evaluation((request, None), planned, {}, facts)

    def _evaluation(
        self,
        key: tuple[LayoutRequest, MigConfigs | None],
        planned: PlannedRequest,
        pods: DeviceUsers,
        facts: NodeFacts,
    ) -> Evaluation:
        if self._inputs.enforce is None:
            return Evaluation(status=planned.status)
        from agent.layouts.desired_change import desired_change

        desired = DesiredLayout(
            key=key,
            change=desired_change(key[0], planned, pods, self._inputs.strategy),
            unchanged=planned.status.phase == MigPhase.UNCHANGED,
            changes=facts.changes,
            plan=planned.status.plan,
        )
        return Evaluation(status=planned.status, desired=desired)


def _pod_users(
    readings: Sequence[MigReading], kubelet: KubeletDevices | None, allocation: NodeAllocation
) -> DeviceUsers:
    """Pods by the parts of GPUs that they use: by the kubelet's checkpoint, else by its socket."""
    if kubelet is None:
        from agent.layouts.planned_request import allocated_users

        return allocated_users(readings, allocation)
    from mig.users.pod_users import pod_users

    return pod_users(split_readings(readings)[0], kubelet)


def _mig_part(snapshot: NodeSnapshot) -> object:
    """The part of a snapshot that a change of layouts changes."""
    return tuple(
        (gpu.bus_id, gpu.state, nvidia.mig, tuple(device.uuid for device in nvidia.mig_devices))
        for gpu, nvidia in nvidia_gpus(snapshot.gpus)
    )
