# SPDX-License-Identifier: Apache-2.0
"""Instances of a plan with the UUID of their GPU."""

from __future__ import annotations

from discovery.mig_state import CurrentCompute, CurrentInstance
from mig.planner import MigPlan


def kept(plan: MigPlan) -> tuple[tuple[str, CurrentInstance], ...]:
    """GPU instances that stay, with all compute instances that they have now."""
    return tuple((gpu.gpu.uuid, stays.instance) for gpu in plan.gpus for stays in gpu.kept)


def destroyed(plan: MigPlan) -> tuple[tuple[str, CurrentInstance], ...]:
    """GPU instances that go."""
    return tuple((gpu.gpu.uuid, instance) for gpu in plan.gpus for instance in gpu.destroyed)


def destroyed_compute(plan: MigPlan) -> tuple[tuple[str, CurrentInstance, CurrentCompute], ...]:
    """Compute instances that go, each with its GPU instance, which stays."""
    return tuple(
        (gpu.gpu.uuid, stays.instance, compute)
        for gpu in plan.gpus
        for stays in gpu.kept
        for compute in stays.destroyed
    )
