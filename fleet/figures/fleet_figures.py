# SPDX-License-Identifier: Apache-2.0
"""The fleet's changes in numbers, as metrics show them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fleet.figures.change_steps import step_of
from fleet.policy.fleet_policy_sync import PolicyState
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import FleetView, GateDecision, WaitReason, is_stopped

Figures = Mapping[str, Mapping[tuple[str, ...], float]]
"""Name of a family of gauges, without its prefix, to the labels' values, to the value."""


def figures(
    view: FleetView,
    decision: GateDecision,
    terms: RolloutSettings,
    *,
    oldest: Mapping[WaitReason, float],
    policy: PolicyState | None,
    now: float,
) -> Figures:
    """Figures of a coordinator that leads, after a round. ``now``: seconds since 1970.

    ``oldest``: seconds of the longest wait, by reason; ``policy``: None where none is followed.
    """
    used = [slot for slot in view.slots if not slot.is_free]
    totals = {
        "leader": 1,
        "slots": terms.slots,
        "slots_used": sum(not slot.is_parked for slot in used),
        "parked_nodes": sum(slot.is_parked for slot in used),
        "stopped_rollouts": sum(is_stopped(it, terms) for it in view.memory.rollouts.values()),
        "paused": view.is_paused,
        "window_open": terms.is_open(now),
        "long_wait_seconds": terms.long_wait_seconds,
    }
    by_label: dict[str, Iterable[tuple[str, float]]] = {
        "waiting_nodes": Counter(decision.waiting.values()).items(),
        "oldest_wait_seconds": oldest.items(),
    }
    if policy is not None:
        totals |= {"policy_refused": bool(policy.problem), "policy_paused": policy.is_paused}
        by_label["policy_nodes"] = policy.nodes.items()
        by_label["policy_info"] = [(policy.revision, 1)] if policy.revision else []
    steps: dict[tuple[str, ...], float] = {}
    for slot in used:
        if slot.record is not None:
            step, since = step_of(slot, slot.record, view.nodes.get(slot.record.node))
            steps[slot.record.node, slot.name, step.value] = max(0.0, now - since)
    return {
        **{name: {(): float(total)} for name, total in totals.items()},
        **{name: {(label,): value for label, value in values} for name, values in by_label.items()},
        "change_step_seconds": steps,
    }
