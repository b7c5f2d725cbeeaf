# SPDX-License-Identifier: Apache-2.0
"""The fleet's changes in numbers, as metrics show them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from base.text import rfc3339
from fleet.figures.change_steps import step_of
from fleet.mig_node import MigNode
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
    policy: PolicyState | None,
    now: float,
) -> Figures:
    """Figures of a coordinator that leads, after a round.

    ``policy``: None where none is followed; ``now``: seconds since 1970.
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
        "oldest_wait_seconds": oldest_waits(view.nodes, decision.waiting, now).items(),
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


def oldest_waits(
    nodes: Mapping[str, MigNode], waiting: Mapping[str, WaitReason], now: float
) -> dict[WaitReason, float]:
    """Longest wait of a node in seconds, by the reason that it has now.

    It counts from when the node's request was first made, whatever slots it has had since; 0 where
    that cannot be read.
    """
    longest: dict[WaitReason, float] = {}
    for name, reason in waiting.items():
        request = nodes[name].request
        since = None if request is None else rfc3339.unix_seconds(request.since)
        seconds = 0.0 if since is None else max(0.0, now - since)
        longest[reason] = max(longest.get(reason, 0.0), seconds)
    return longest
