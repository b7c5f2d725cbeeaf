# SPDX-License-Identifier: Apache-2.0
"""Desired layouts of a node's GPUs with the plan to them, or its refusal. Pure.

Agent, command line and forecast evaluate a layout here, so that all of them give one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout
from mig.mode_permission import NO_RESETS, ModePermission
from mig.planned_change import GpuChange, planned_changes
from mig.planner import MigPlan, MigRefusal, plan
from mig.steps import SetMode
from mig.users.device_users import DeviceUsers, UserKind


class PlanResult(StrEnum):
    """Result of planning, in one word."""

    STEPS = "steps"
    NOTHING = "nothing"
    """The GPUs have the layouts."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLayouts:
    """Desired layouts, and the plan or the refusal, with what it was made from."""

    gpus: tuple[MigGpu, ...]
    """All GPUs of the node."""
    layouts: Mapping[str, GpuLayout]
    """Desired layouts by GPU UUID."""
    users: DeviceUsers
    plan_or_refusal: MigPlan | MigRefusal

    @property
    def plan(self) -> MigPlan | None:
        """The plan; None where it is refused."""
        return self.plan_or_refusal if isinstance(self.plan_or_refusal, MigPlan) else None

    @property
    def result(self) -> PlanResult:
        """The result in one word."""
        if isinstance(self.plan_or_refusal, MigRefusal):
            return PlanResult.REFUSED
        return PlanResult.STEPS if self.plan_or_refusal.steps else PlanResult.NOTHING

    @property
    def sets_modes(self) -> bool:
        """Whether the plan turns MIG on or off: that fails while a program has the GPU open."""
        return self.plan is not None and any(isinstance(step, SetMode) for step in self.plan.steps)

    @property
    def resets(self) -> tuple[MigGpu, ...]:
        """GPUs that the driver resets for the plan, in bus order: all that is on them ends."""
        steps = () if self.plan is None else self.plan.steps
        modes = {step.gpu: step.on for step in steps if isinstance(step, SetMode)}
        return tuple(
            gpu
            for gpu in self.gpus
            if not gpu.resetless
            and gpu.mode is not None
            and modes.get(gpu.uuid, gpu.mode.current) != gpu.mode.current
        )

    @property
    def assumed(self) -> tuple[MigGpu, ...]:
        """GPUs that the plan judges by the table of known models, in bus order."""
        assumed = frozenset[str]() if self.plan is None else self.plan.assumed
        return tuple(gpu for gpu in self.gpus if gpu.uuid in assumed)

    def changes(self) -> tuple[GpuChange, ...]:
        """The plan's effect on the GPUs that have a desired layout; empty where it is refused."""
        if self.plan is None:
            return ()
        return planned_changes(self.gpus, self.layouts, self.plan, self.users)

    def disturbed(self, kind: UserKind) -> list[str]:
        """Names of the device users of this kind that the plan disturbs, sorted."""
        users = () if self.plan is None else self.plan.disturbed
        return sorted(user.name for user in users if user.kind is kind)


def planned_layouts(
    gpus: Sequence[MigGpu],
    layouts: Mapping[str, GpuLayout],
    users: DeviceUsers,
    *,
    strategy: MigStrategy | None = None,
    spare_busy: bool = False,
    modes: ModePermission = NO_RESETS,
) -> PlannedLayouts:
    """Plan the way to the layouts; see :func:`plan`."""
    return PlannedLayouts(
        gpus=tuple(gpus),
        layouts=layouts,
        users=users,
        plan_or_refusal=plan(
            gpus, layouts, users, strategy=strategy, spare_busy=spare_busy, modes=modes
        ),
    )
