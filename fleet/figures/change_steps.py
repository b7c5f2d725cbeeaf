# SPDX-License-Identifier: Apache-2.0
"""Step of a change, and its start, by the record on its Lease: for people and metrics. Pure."""

from __future__ import annotations

from enum import StrEnum

from api.mig_outcome import Outcome
from fleet.mig_node import DrainMode, MigNode
from fleet.rollback_record import RollbackRecord
from fleet.slot_lease import SlotLease
from fleet.turns.change_progress import reported_end


class ChangeStep(StrEnum):
    """Step of a node that has a slot or a parked record."""

    TAKEN = "taken"
    """The node has a slot, and is not cordoned yet."""
    CORDONED = "cordoned"
    WAITING = "waiting"
    """Cordoned, until its pods have ended: as the policy has it, and maybe for hours."""
    DRAINING = "draining"
    """Pods have been asked to leave."""
    CHANGING = "changing"
    """The node's agent has a permit to change the GPUs."""
    REGISTERING = "registering"
    """The GPUs are changed; the device plugin is to offer what there is now."""
    STUCK = "stuck"
    """Without a slot: neither layout could be reached, and a person has to act."""
    LATE = "late"
    """Without a slot: the change has no end within its time."""


def step_of(
    slot: SlotLease, record: RollbackRecord, node: MigNode | None
) -> tuple[ChangeStep, int]:
    """The step of the record on this Lease, and when it began, in seconds since 1970."""
    proceeded_at = record.proceed_at or record.taken_at
    if record.outcome:
        return ChangeStep.REGISTERING, record.restarted_at or proceeded_at
    if slot.is_parked:
        is_stuck = node is not None and reported_end(node, record.request) == Outcome.STUCK
        return ChangeStep.STUCK if is_stuck else ChangeStep.LATE, proceeded_at
    if record.proceed_at:
        return ChangeStep.CHANGING, record.proceed_at
    if record.drain_at:
        return ChangeStep.DRAINING, record.drain_at
    if record.cordoned_at:
        waits = record.drain == DrainMode.CORDON
        return ChangeStep.WAITING if waits else ChangeStep.CORDONED, record.cordoned_at
    return ChangeStep.TAKEN, record.taken_at


def change_facts(record: RollbackRecord, now: float) -> dict[str, object]:
    """Fields of the log line about a change that is over; times are whole seconds until now.

    ``cordoned_seconds`` and ``permitted_seconds`` are missing where it did not come to that.
    """
    facts: dict[str, object] = {
        "desired": record.rollout,
        "drain": record.drain or DrainMode.WAIT.value,
        "seconds": _since(record.taken_at, now),
        "restarts": record.restarts,
    }
    if record.cordoned_at:
        facts["cordoned_seconds"] = _since(record.cordoned_at, now)
    if record.proceed_at:
        facts["permitted_seconds"] = _since(record.proceed_at, now)
    return facts


def _since(start: int, now: float) -> int:
    return max(0, int(now) - start)
