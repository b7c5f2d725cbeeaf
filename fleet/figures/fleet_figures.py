# SPDX-License-Identifier: Apache-2.0
"""The fleet's changes in numbers, as metrics show them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fleet.figures.change_steps import ChangeStep, step_of
from fleet.policy.fleet_policy_sync import PolicyState
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import FleetView, GateDecision, WaitReason, is_stopped
from fleet.slot_lease import SlotLease


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStep:
    """A node in change, and its step."""

    node: str
    slot: str
    """Name of the Lease."""
    step: ChangeStep
    seconds: float
    """How long it has been at this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """Figures of the coordinator that leads, after a round; of others all are empty."""

    slots: int = 0
    used: int = 0
    parked: int = 0
    stopped: int = 0
    """Rollouts that the circuit breaker holds."""
    paused: bool = False
    window_open: bool = False
    """Whether changes may begin now, as far as the maintenance windows go."""
    long_wait_seconds: float = 0.0
    waiting: Mapping[WaitReason, int] = field(default_factory=dict)
    oldest_seconds: Mapping[WaitReason, float] = field(default_factory=dict)
    """Longest wait of a node, by its present reason."""
    steps: tuple[NodeStep, ...] = ()
    policy: PolicyState | None = None
    """State of the fleet policy; None where none is followed."""


def figures(
    view: FleetView,
    decision: GateDecision,
    terms: RolloutSettings,
    *,
    oldest: Mapping[WaitReason, float],
    policy: PolicyState | None,
    now: float,
) -> FleetFigures:
    """``now``: seconds since 1970; ``oldest``: seconds of the longest wait, by reason."""
    used = [slot for slot in view.slots if not slot.is_free]
    return FleetFigures(
        slots=terms.slots,
        used=sum(not slot.is_parked for slot in used),
        parked=sum(slot.is_parked for slot in used),
        stopped=sum(is_stopped(counts, terms) for counts in view.memory.rollouts.values()),
        paused=view.is_paused,
        window_open=not terms.windows or any(window.is_open(now) for window in terms.windows),
        long_wait_seconds=terms.long_wait_seconds,
        waiting=Counter(decision.waiting.values()),
        oldest_seconds=oldest,
        steps=tuple(_steps(used, view, now)),
        policy=policy,
    )


def _steps(used: Iterable[SlotLease], view: FleetView, now: float) -> Iterator[NodeStep]:
    for slot in used:
        if slot.record is not None:
            step, since = step_of(slot, slot.record, view.nodes.get(slot.record.node))
            seconds = max(0.0, now - since)
            yield NodeStep(node=slot.record.node, slot=slot.name, step=step, seconds=seconds)
