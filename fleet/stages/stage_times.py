# SPDX-License-Identifier: Apache-2.0
"""When each stage of a change was done, as far as the cluster still has it. Pure.

While a change is open, the request and the record on the slot's Lease have the times. Afterwards
only Events and the status have them. Events may be of an earlier attempt, and a field manager's
time is that of its newest write: such a time counts only where it fits between the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from api.mig_status_annotation import DESIRED_BY, MigPhase, MigStatusAnnotation, desired_words
from base.text import rfc3339
from base.text.safe_text import safe_line
from fleet.rollback_record import RollbackRecord
from fleet.stages.node_change_facts import NodeChangeFacts, NodeEvent
from fleet.stages.slot_waits import UNDONE
from fleet.stages.stage import StageName
from fleet.turns.change_progress import is_asking

_ORDER: Final = tuple(StageName)
_BY_EVENT: Final = (
    (StageName.UNCORDONED, UNDONE),
    (StageName.ALLOCATABLE, UNDONE),
    (StageName.VERIFIED, "MigLayoutUnchanged"),
    (StageName.CHANGED, "MigLayoutUnchanged"),
    (StageName.CHANGED, "MigChangeFailed"),
    (StageName.DRAINED, "MigChangeAllowed"),
    (StageName.SLOT, "MigSlotTaken"),
    (StageName.REQUESTED, "MigChangeWaiting"),
    (StageName.EVALUATED, "MigLayoutPlanned"),
)
"""Stages and the Events that say that they are done, the last stage first."""


def stage_ends(facts: NodeChangeFacts) -> Mapping[StageName, float]:
    """Stage to when it was done, in seconds since 1970; ascending in the order of the stages."""
    ends = {stage: at for stage, at in _recorded(facts) if at}
    newest: dict[str, float] = {}
    for event in facts.events:
        if _is_of_another_layout(event, facts.node.status):
            continue
        newest[event.reason] = max(event.at, newest.get(event.reason, 0.0))
    before = _end_before(facts, newest.get(UNDONE, 0.0), ends.get(StageName.VERIFIED, 0.0))
    known = [(newest.get(reason, before), stage) for stage, reason in _BY_EVENT]
    for at, stage in sorted(known, key=lambda pair: -pair[0]):  # the newest attempt first
        if at > before:
            _fit(ends, stage, at)
    if StageName.VERIFIED in ends:  # the agent shows both at once
        _fit(ends, StageName.CHANGED, ends[StageName.VERIFIED])
    if facts.desired_at is not None:
        _fit(ends, StageName.DESIRED, facts.desired_at)
    return ends


def _end_before(facts: NodeChangeFacts, undone: float, verified: float) -> float:
    """When the change before this one ended; 0 where the newest Event of an end may be of this one.

    The coordinator writes each reason seldom too, so this change may have no Event of its end.
    """
    return undone if undone < min(verified, facts.desired_at or 0.0) else 0.0


def _is_of_another_layout(event: NodeEvent, status: MigStatusAnnotation | None) -> bool:
    """Whether the agent wrote it about another layout than the one that is desired.

    The newest Event of a reason may be so old: the agent writes each reason seldom.
    """
    if status is None or not event.note.startswith(DESIRED_BY):
        return False
    return not event.note.startswith(safe_line(desired_words(status)))


def _fit(ends: dict[StageName, float], stage: StageName, at: float) -> None:
    """Add a time that may be of something else, if it fits between the times that are known."""
    place = _ORDER.index(stage)
    earlier = [ends[name] for name in _ORDER[:place] if name in ends]
    later = [ends[name] for name in _ORDER[place + 1 :] if name in ends]
    if stage not in ends and max(earlier, default=at) <= at <= min(later, default=at):
        ends[stage] = at


def _recorded(facts: NodeChangeFacts) -> Iterator[tuple[StageName, float]]:
    """Times that are of this change."""
    record, request, status = facts.record, facts.node.request, facts.node.status
    is_open = is_asking(facts.node)
    if is_open and request is not None:
        requested = rfc3339.unix_seconds(request.since) or 0.0
        yield StageName.EVALUATED, requested
        yield StageName.REQUESTED, requested
    if record is not None:
        yield from _of_record(record)
    if status is None:
        return
    since = rfc3339.unix_seconds(status.since) or 0.0
    if status.phase == MigPhase.UNCHANGED:
        yield StageName.VERIFIED, since
    elif status.phase in (MigPhase.PLANNED, MigPhase.REFUSED) and not is_open:
        yield StageName.EVALUATED, since


def _of_record(record: RollbackRecord) -> Iterator[tuple[StageName, float]]:
    yield StageName.SLOT, float(record.taken_at)
    yield StageName.CORDONED, float(record.cordoned_at)
    if record.proceed_at:
        yield StageName.DRAINED, float(record.proceed_at)
        yield StageName.PAUSED, float(record.proceed_at)
