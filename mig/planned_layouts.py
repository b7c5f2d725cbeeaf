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
from mig.gpu_plan import GpuPlan
from mig.mode_permission import NO_RESETS, ModePermission
from mig.planner import MigPlan, MigRefusal, plan
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
    plan_or_refusal: MigPlan | MigRefusal
    modes: ModePermission = NO_RESETS
    """What it was made with."""

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
        return any(gpu.sets_mode for gpu in self.changes)

    @property
    def resets(self) -> tuple[int, ...]:
        """Indices of the GPUs that the driver resets for the plan: all that is on them ends."""
        return tuple(gpu.gpu.index for gpu in self.changes if gpu.resets)

    @property
    def assumed(self) -> tuple[int, ...]:
        """Indices of the GPUs that the plan judges by the table of known models."""
        return tuple(gpu.gpu.index for gpu in self.changes if gpu.assumed)

    @property
    def changes(self) -> tuple[GpuPlan, ...]:
        """The plans of the GPUs that have a desired layout; empty where it is refused."""
        return () if self.plan is None else self.plan.gpus

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
        plan_or_refusal=plan(
            gpus, layouts, users, strategy=strategy, spare_busy=spare_busy, modes=modes
        ),
        modes=modes,
    )
