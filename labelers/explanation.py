# SPDX-License-Identifier: Apache-2.0
"""Explanations of labels: every label that a node could have, with its value or the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from labelers.compose import KeyDecision, LabelDecisions
from labelers.decision import Absent, Decision, Keep, Value


class LabelOutcome(StrEnum):
    """What happens to a label: it is set, kept as it is, or absent."""

    SET = "set"
    KEPT = "kept"  # not known now: what is on the node stays
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelExplanation:
    """Outcome and reason for a label, or for a family of labels that the node does not have."""

    key: str
    outcome: LabelOutcome
    text: str
    """The value where it is set, else the reason why it is not."""
    source: str
    """The NVML call, file or setting it rests on."""
    labeler: str
    summary: str
    """What the label says."""


def label_explanations(labels: LabelDecisions) -> tuple[LabelExplanation, ...]:
    """Every decision with its value or reason, and where it comes from; sorted by key."""
    return tuple(_explanation(row) for row in labels.rows)


def _explanation(row: KeyDecision) -> LabelExplanation:
    key = row.registered
    outcome, text = _outcome(row.decision)
    return LabelExplanation(
        key=row.key,
        outcome=outcome,
        text=text,
        source=key.source if key else "",
        labeler=row.labeler,
        summary=key.summary if key else "",
    )


def _outcome(decision: Decision) -> tuple[LabelOutcome, str]:
    match decision:
        case Value(text=text):
            return LabelOutcome.SET, text
        case Keep(reason=reason, otherwise=None):
            return LabelOutcome.KEPT, reason
        case Keep(reason=reason, otherwise=otherwise):
            return LabelOutcome.KEPT, f"{reason}; {otherwise} where there is none"
        case Absent(reason=reason):
            return LabelOutcome.ABSENT, reason
