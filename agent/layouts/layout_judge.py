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
"""Between two readings of the MIG state where nothing is seen to change."""
_PODS_UNKNOWN: Final = (
    "nothing is changed before the kubelet's pod-resources socket answers: it is not known who has"
    " which GPU (see gpuscape doctor)"
)
UNREAD_SECONDS: Final = 30.0
"""Before GPUs that could not be read, or that a program uses, are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEdges:
    """What the watch reads."""

    read: Callable[[], Sequence[MigReading]]
    """The MIG state of all GPUs. Raises Transient."""
    snapshot: Callable[[], NodeSnapshot | None]
    """The newest."""
    configs: Callable[[], MigConfigs | None] = lambda: None
    """Those of the configured file; None for the default ones. Raises BadInput with file, line and
    key."""
    strategy: MigStrategy | None = None
    """The device plugin's; None: not known."""
    slice_drivers: Callable[[], frozenset[str]] = frozenset
    """Drivers of the node's ResourceSlices, as far as they may be read."""
    service_enabled: Callable[[], bool] = lambda: False
    """Whether the host starts NVIDIA's MIG manager itself."""
    program_name: Callable[[int], str] = lambda _pid: ""
    """A program's name by its pid, as the driver gives that; empty where it is not known."""
    kubelet: Callable[[], KubeletDevices | None] = lambda: None
    """Who holds what by the kubelet's checkpoint; None where that cannot be seen, and its
    pod-resources socket is believed. Raises BadInput."""
    users: Callable[[], Sequence[GpuUser]] = tuple
    """Programs that have GPUs open, as the actuator sees them; empty where it cannot be asked."""
    enforce: EnforceEdges | None = None
    """What changes layouts; None: nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of a look."""

    status: MigStatusAnnotation
    """Without its time."""
    judgement: Judgement | None
    """For whoever carries it out; None where it is not known what that takes, or nobody does."""
    foreign: bool = False
    """Another program manages MIG on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a layout is judged by, apart from the GPUs themselves."""

    metadata: Mapping[str, Any]
    """Of the Node."""
    snapshot: NodeSnapshot
    allocation: NodeAllocation | None
    """None: the kubelet has not been asked yet."""
    changes: int = 0
    """How often the GPUs were changed; what was read with fewer does not count."""


class LayoutJudge:
    """For one thread."""

    def __init__(self, edges: LayoutEdges) -> None:
        self._edges = edges
        self._basis: object = None
        self._due = 0.0

    def forget(self) -> None:
        """Judge the next time, whatever was found before; any thread may call it."""
        self._basis = None

    def judge_by(self, now: float) -> None:
        """Judge by then at the latest."""
        self._due = min(self._due, now)

    def others(
        self, metadata: Mapping[str, Any], allocation: NodeAllocation | None
    ) -> tuple[str, ...]:
        """Who else manages MIG on the node, in words; any thread may call it."""
        return other_managers(
            metadata,
            pods=() if allocation is None else allocation.pods,
            slice_drivers=self._edges.slice_drivers(),
            service_enabled=self._edges.service_enabled(),
        )

    def judge(self, request: LayoutRequest, by: NodeFacts, now: float) -> Judged | None:
        """What becomes of a request; None where what was found last still holds, or while all
        handles are released."""
        allocation = by.allocation or NodeAllocation()
        others = self.others(by.metadata, by.allocation)
        if others:
            why = f"{' and '.join(others)} manages MIG on this node"
            return replace(self._refused(request, why, by.changes), foreign=True)
        try:
            configs = self._edges.configs()
        except BadInput as error:
            return self._refused(request, str(error), by.changes)
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
        held = kubelet or (by.allocation is None, allocation.by_pod)
        pods_known = by.allocation is not None
        basis = request, configs, _mig_part(by.snapshot), held, pods_known, by.changes
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
            found = LayoutVerdict(status=status(request, MigPhase.UNREAD, str(error)))
        else:
            from mig.holders import all_holders
            from mig.process_holders import programs_of_nobody

            gpus = [it for it in readings if isinstance(it, MigGpu)]
            if kubelet is None:
                holders = allocated_holders(readings, allocation)
            else:
                from mig.pod_holders import pod_holders

                holders = pod_holders(gpus, kubelet)
            programs = programs_of_nobody(gpus, holders, self._edges.program_name)
            in_use = any(programs.values())
            everybody = all_holders(holders, programs)
            found = verdict(
                request,
                readings,
                configs,
                everybody,
                self._edges.strategy,
                next_step=next_step,
            )
            if self._edges.enforce is not None and _sets_mode(found):
                from mig.process_holders import openers_of_nobody

                opened = openers_of_nobody(gpus, self._edges.users())
                in_use = in_use or any(opened.values())
                everybody = all_holders(everybody, opened)
                found = verdict(
                    request,
                    readings,
                    configs,
                    everybody,
                    self._edges.strategy,
                    next_step=next_step,
                )
        unread = found.status.phase == MigPhase.UNREAD
        soon = unread or in_use
        self._basis, self._due = basis, now + (UNREAD_SECONDS if soon else REREAD_SECONDS)
        if unread or not pods_known:  # nor is it known whether a pod manages MIG
            return Judged(status=found.status, judgement=None)
        key = request, configs
        return Judged(
            status=found.status, judgement=self._judgement(key, found, holders, by.changes)
        )

    def _refused(self, request: LayoutRequest, why: str, changes: int) -> Judged:
        """Without a look at the GPUs; what was judged before does not hold any more."""
        from agent.layouts.layout_verdict import LayoutVerdict, status

        self._basis = None
        found = LayoutVerdict(status=status(request, MigPhase.REFUSED, why))
        judgement = self._judgement((request, None), found, {}, changes)
        return Judged(status=found.status, judgement=judgement)

    def _judgement(
        self,
        key: tuple[LayoutRequest, MigConfigs | None],
        found: LayoutVerdict,
        holders: MigHolders,
        changes: int,
    ) -> Judgement | None:
        if self._edges.enforce is None:
            return None
        from agent.layouts.wanted_change import Judgement, wanted_change

        return Judgement(
            key=key,
            change=wanted_change(key[0], found, holders, self._edges.strategy),
            unchanged=found.status.phase == MigPhase.UNCHANGED,
            changes=changes,
            plan=found.status.plan,
        )


def _sets_mode(found: LayoutVerdict) -> bool:
    """Whether MIG is turned on or off: that fails while somebody has the GPU open."""
    from mig.steps import SetMode

    steps = () if found.found is None else found.found.steps
    return any(isinstance(step, SetMode) for step in steps)


def _mig_part(snapshot: NodeSnapshot) -> object:
    """What a change of layouts changes in a snapshot."""
    return tuple(
        (gpu.bus_id, gpu.state, gpu.mig, tuple(device.uuid for device in gpu.mig_devices))
        for gpu in snapshot.gpus
    )
