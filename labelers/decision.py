# SPDX-License-Identifier: Apache-2.0
"""Decisions for labels: a value, to keep the label as it is on the node, or to have none.

Labels are removed only when a fact is *known* to be gone. So a missing value has
two forms, and every sink treats them apart: :class:`Keep` leaves the label as it
is on the node, :class:`Absent` removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from discovery.model import Gap, GpuSnapshot, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The label has this value."""

    text: str
    note: str = ""
    """What the text leaves out, and the reason; for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Not known now: the label stays as it is on the node; ``reason`` is for people."""

    reason: str
    otherwise: str | None = None
    """The label's text on a node without the label: the best that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Known not to apply: the label is removed; ``reason`` is for people."""

    reason: str


Decision = Value | Keep | Absent

Decisions = Mapping[str, Decision]
"""Label key to decision. A key with a ``<placeholder>``, as :mod:`api.keys`
registers it, decides for every key of that family that is not named itself."""


def value(content: object) -> Value:
    """A value from anything that prints as the label's text."""
    return Value(text=str(content))


def written_value(decision: Decision) -> str | None:
    """The text that a node without the label gets; None: no label."""
    match decision:
        case Value(text=text):
            return text
        case Keep(otherwise=otherwise):
            return otherwise
        case Absent():
            return None


def gap_text(gaps: Sequence[Gap], field: str) -> str:
    """The reason why ``field`` of a GPU or driver is missing, in words for people."""
    gap = next((gap for gap in gaps if gap.what == field), None)
    return f"{field} was not read" if gap is None else f"{gap.source}: {gap.detail or gap.reason}"


def why_none(gpus: Sequence[GpuSnapshot], field: str) -> Keep | Absent:
    """The decision where none of ``gpus``, at least one, gives ``field``.

    Absent when every GPU reports that it does not support the field, else Keep.
    """
    for gpu in gpus:
        gap = gpu.gap(field)
        if gap is None or gap.reason is not Reason.UNSUPPORTED:
            return Keep(reason=gap_text(gpu.gaps, field))
    return Absent(reason=gap_text(gpus[0].gaps, field))
