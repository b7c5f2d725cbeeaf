# SPDX-License-Identifier: Apache-2.0
"""Judges the MIG layout that is asked for, anew where something that it rests on has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agent.layouts.layout_request import LayoutRequest, other_managers
from agent.pods.allocated_devices import NodeAllocation
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from base.errors import BadInput, Transient
from discovery.driver_errors import Released
from discovery.mig_state import MigGpu, MigReading
from discovery.model import NodeSnapshot

if TYPE_CHECKING:
    from agent.layouts.enforced_layouts import EnforceEdges
    from agent.layouts.layout_verdict import LayoutVerdict
    from agent.layouts.wanted_change import Judgement
    from api.actuator_messages import GpuUser
    from discovery.host.kubelet_devices import KubeletDevices
    from mig.configs.mig_configs import MigConfigs
    from mig.holders import MigHolders

REREAD_SECONDS: Final = 300.0
"""Time between two readings of the MIG state where nothing is seen to change."""
_PODS_UNKNOWN: Final = (
    "nothing is changed before the kubelet's pod-resources socket answers: it is not known who has"
    " which GPU (see gpuscape doctor)"
)
UNREAD_SECONDS: Final = 30.0
"""Before GPUs that could not be read, or that a program uses, are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEdges:
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
    slice_drivers: Callable[[], frozenset[str]] = frozenset
    """Drivers of the node's ResourceSlices, as far as they may be read."""
    service_enabled: Callable[[], bool] = lambda: False
    """Whether the host starts NVIDIA's MIG manager itself."""
    program_name: Callable[[int], str] = lambda _pid: ""
    """A program's name by its pid, as the driver gives that; empty where it is not known."""
    kubelet: Callable[[], KubeletDevices | None] = lambda: None
    """Devices of pods by the kubelet's checkpoint; None where that cannot be read, and its
    pod-resources socket is believed. Raises BadInput."""
    users: Callable[[], Sequence[GpuUser]] = tuple
    """Programs that have GPUs open, as the actuator sees them; empty where it cannot be asked."""
    enforce: EnforceEdges | None = None
    """Calls by which layouts are changed; None where they are only observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Result of judging a request by one reading of the node."""

    status: MigStatusAnnotation
    """The status to show, without its time."""
    judgement: Judgement | None
    """The change to carry out; None where it is not known what that takes, or nobody does."""
    foreign: bool = False
    """Whether another program manages MIG on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts by which a layout is judged, apart from the GPUs themselves."""

    metadata: Mapping[str, Any]
    """The Node's metadata."""
    snapshot: NodeSnapshot
    allocation: NodeAllocation | None
    """Devices of pods by the kubelet; None where it has not been asked yet."""
    changes: int = 0
    """Number of times that the GPUs were changed; readings made with fewer do not count."""


class LayoutJudge:
    """Judges a request when something that the last judgement rested on has changed. One thread."""

    def __init__(self, edges: LayoutEdges) -> None:
        self._edges = edges
        self._basis: object = None
        self._due = 0.0

    def forget(self) -> None:
        """Judge anew the next time, whatever the last judgement; any thread may call it."""
        self._basis = None

    def judge_by(self, deadline: float) -> None:
        """Judge anew at ``deadline`` at the latest."""
        self._due = min(self._due, deadline)

    def foreign_managers(
        self, metadata: Mapping[str, Any], allocation: NodeAllocation | None
    ) -> tuple[str, ...]:
        """Other programs that manage MIG on the node, in words; any thread may call it."""
        return other_managers(
            metadata,
            pods=() if allocation is None else allocation.pods,
            slice_drivers=self._edges.slice_drivers(),
            service_enabled=self._edges.service_enabled(),
        )

    def judge(self, request: LayoutRequest, facts: NodeFacts, now: float) -> Judged | None:
        """The verdict on a request; None where the last one still holds, or while all handles are
        released."""
        allocation = facts.allocation or NodeAllocation()
        managers = self.foreign_managers(facts.metadata, facts.allocation)
        if managers:
            why = f"{' and '.join(managers)} manages MIG on this node"
            return replace(self._refused(request, why, facts.changes), foreign=True)
        try:
            configs = self._edges.configs()
        except BadInput as error:
            return self._refused(request, str(error), facts.changes)
        from agent.layouts.layout_verdict import (
            OBSERVED,
            LayoutVerdict,
            allocated_holders,
            status,
            verdict,
        )

        try:
            kubelet = self._edges.kubelet()
        except BadInput as error:
            return Judged(status=status(request, MigPhase.UNREAD, str(error)), judgement=None)
        held = kubelet or (facts.allocation is None, allocation.by_pod)
        pods_known = facts.allocation is not None
        basis = request, configs, _mig_part(facts.snapshot), held, pods_known, facts.changes
        if basis == self._basis and now < self._due:
            return None
        holders: MigHolders = {}
        in_use = False
        next_step = OBSERVED
        if self._edges.enforce is not None:
            next_step = "" if pods_known else _PODS_UNKNOWN
        try:
            readings = self._edges.read()
        except Released:
            return None
        except Transient as error:
            layout_verdict = LayoutVerdict(status=status(request, MigPhase.UNREAD, str(error)))
        else:
            from mig.holders import all_holders
            from mig.process_holders import programs_of_nobody

            gpus = [reading for reading in readings if isinstance(reading, MigGpu)]
            if kubelet is None:
                holders = allocated_holders(readings, allocation)
            else:
                from mig.pod_holders import pod_holders

                holders = pod_holders(gpus, kubelet)
            programs = programs_of_nobody(gpus, holders, self._edges.program_name)
            in_use = any(programs.values())
            everybody = all_holders(holders, programs)
            layout_verdict = verdict(
                request,
                readings,
                configs,
                everybody,
                self._edges.strategy,
                next_step=next_step,
            )
            if self._edges.enforce is not None and _sets_mode(layout_verdict):
                from mig.process_holders import openers_of_nobody

                opened = openers_of_nobody(gpus, self._edges.users())
                in_use = in_use or any(opened.values())
                everybody = all_holders(everybody, opened)
                layout_verdict = verdict(
                    request,
                    readings,
                    configs,
                    everybody,
                    self._edges.strategy,
                    next_step=next_step,
                )
        unread = layout_verdict.status.phase == MigPhase.UNREAD
        soon = unread or in_use
        self._basis, self._due = basis, now + (UNREAD_SECONDS if soon else REREAD_SECONDS)
        if unread or not pods_known:  # nor is it known whether a pod manages MIG
            return Judged(status=layout_verdict.status, judgement=None)
        key = request, configs
        return Judged(
            status=layout_verdict.status,
            judgement=self._judgement(key, layout_verdict, holders, facts.changes),
        )

    def _refused(self, request: LayoutRequest, why: str, changes: int) -> Judged:
        """A refusal that needs no reading of the GPUs; the last judgement no longer holds."""
        from agent.layouts.layout_verdict import LayoutVerdict, status

        self._basis = None
        verdict = LayoutVerdict(status=status(request, MigPhase.REFUSED, why))
        judgement = self._judgement((request, None), verdict, {}, changes)
        return Judged(status=verdict.status, judgement=judgement)

    def _judgement(
        self,
        key: tuple[LayoutRequest, MigConfigs | None],
        verdict: LayoutVerdict,
        holders: MigHolders,
        changes: int,
    ) -> Judgement | None:
        if self._edges.enforce is None:
            return None
        from agent.layouts.wanted_change import Judgement, wanted_change

        return Judgement(
            key=key,
            change=wanted_change(key[0], verdict, holders, self._edges.strategy),
            unchanged=verdict.status.phase == MigPhase.UNCHANGED,
            changes=changes,
            plan=verdict.status.plan,
        )


def _sets_mode(verdict: LayoutVerdict) -> bool:
    """Whether the plan turns MIG on or off: that fails while a program has the GPU open."""
    from mig.steps import SetMode

    steps = () if verdict.plan is None else verdict.plan.steps
    return any(isinstance(step, SetMode) for step in steps)


def _mig_part(snapshot: NodeSnapshot) -> object:
    """The part of a snapshot that a change of layouts changes."""
    return tuple(
        (gpu.bus_id, gpu.state, gpu.mig, tuple(device.uuid for device in gpu.mig_devices))
        for gpu in snapshot.gpus
    )
