# SPDX-License-Identifier: Apache-2.0
"""The stages of a Node's MIG change as a table, and as a document for -o json and yaml. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from base.text import rfc3339
from cli.terminal import NONE, Cell, Styled, TextTable
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageBlocker, StageState

_STYLES: Final[Mapping[StageState, str]] = {
    StageState.DONE: "green",
    StageState.NOW: "bold yellow",
    StageState.AHEAD: "dim",
    StageState.NOT_NEEDED: "dim",
    StageState.UNKNOWN: "dim",
}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def stage_table(stages: Sequence[Stage]) -> TextTable:
    """Table of the stages, one row each."""
    header = ("STAGE", "STATE", "DONE AT", "TOOK", "WHAT")
    return TextTable(header=header, rows=tuple(map(_row, stages)))


def _row(stage: Stage) -> tuple[Cell, ...]:
    texts = (stage.text, *(f"not read: {unread}" for unread in stage.unread))
    return (
        Styled(stage.name, "bold"),
        Styled(stage.state, _STYLES[stage.state]),
        NONE if stage.ended_at is None else rfc3339.whole_seconds(stage.ended_at),
        NONE if stage.seconds is None else span(stage.seconds),
        "; ".join(text for text in texts if text),
    )


def span(seconds: float) -> str:
    """A time in its largest unit, or in two: ``45 s``, ``3 min 20 s``, ``2 d 4 h``."""
    rest = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or (size == 1 and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def standing_stage(stages: Sequence[Stage]) -> Stage | None:
    """The stage at which the change stands; None where nothing remains to be done."""
    return next((stage for stage in stages if stage.state is StageState.NOW), None)


def standing_notes(stages: Sequence[Stage]) -> Iterator[str]:
    """Lines below the table: who is in the way, when it is tried again, the next command."""
    stage = standing_stage(stages)
    if stage is None:
        return
    if stage.blockers:
        yield "In the way:"
        yield from (f"  {_blocker(blocker)}" for blocker in stage.blockers)
    if stage.retry_at is not None:
        yield f"Next attempt: {rfc3339.whole_seconds(stage.retry_at)}"
    if stage.command:
        yield f"Next: {stage.command}"


def _blocker(blocker: StageBlocker) -> str:
    subject = " ".join(text for text in (blocker.kind, blocker.name) if text)
    return ": ".join(text for text in (subject, blocker.text) if text)


def stages_document(facts: NodeChangeFacts, stages: Sequence[Stage], now: float) -> dict[str, Any]:
    """The story for -o json and yaml; between versions, keys are only added."""
    standing, layout, status = standing_stage(stages), facts.layout, facts.node.status
    return {
        "node": facts.node.name,
        "read_at": rfc3339.whole_seconds(now),
        "desired": None if layout is None else layout.desired,
        "desired_by": facts.desired_by or None,
        "phase": None if layout is None or status is None else layout.phase,
        "outcome": None if status is None else status.outcome or None,
        "settled": layout is None or layout.is_settled,
        "stands_at": None if standing is None else standing.name,
        "stages": [_stage_document(stage) for stage in stages],
        "settings_known": facts.has_settings,
        "unread": [
            {"stage": fact.stage, "verb": fact.verb, "resource": fact.resource, "why": fact.why}
            for fact in facts.unread
        ],
    }


def _stage_document(stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "state": stage.state,
        "text": stage.text or None,
        "done_at": None if stage.ended_at is None else rfc3339.whole_seconds(stage.ended_at),
        "seconds": None if stage.seconds is None else round(stage.seconds),
        "in_the_way": [
            {"kind": blocker.kind, "name": blocker.name or None, "text": blocker.text or None}
            for blocker in stage.blockers
        ],
        "next_attempt": (None if stage.retry_at is None else rfc3339.whole_seconds(stage.retry_at)),
        "command": stage.command or None,
    }
