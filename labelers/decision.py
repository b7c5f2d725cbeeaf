# SPDX-License-Identifier: Apache-2.0
"""What is decided for one label: a value, to keep what is there, or to have none.

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
    """What the text leaves out, and why; for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Not known now: whatever is on the node stays; ``reason`` is for people."""

    reason: str
    otherwise: str | None = None
    """What to write where nothing is on the node: the best that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Known not to apply: the label is removed; ``reason`` is for people."""

    reason: str


Decision = Value | Keep | Absent

Decisions = Mapping[str, Decision]
"""Label key to decision. A key with a ``<placeholder>``, as :mod:`api.keys`
registers it, decides for every key of that family that is not named itself."""


def value(of: object) -> Value:
    """A value from anything that prints as the label's text."""
    return Value(text=str(of))


def written(decision: Decision) -> str | None:
    """What a node that shows nothing gets; None for nothing."""
    match decision:
        case Value(text=text):
            return text
        case Keep(otherwise=otherwise):
            return otherwise
        case Absent():
            return None


def gap_text(gaps: Sequence[Gap], what: str) -> str:
    """Why the field ``what`` is missing, in words for people."""
    gap = next((gap for gap in gaps if gap.what == what), None)
    return f"{what} was not read" if gap is None else f"{gap.source}: {gap.detail or gap.reason}"


def why_none(gpus: Sequence[GpuSnapshot], what: str) -> Keep | Absent:
    """Why none of ``gpus``, at least one, gives the field ``what``.

    Absent when every one of them says that it has no such thing, else Keep.
    """
    for gpu in gpus:
        gap = gpu.gap(what)
        if gap is None or gap.reason is not Reason.UNSUPPORTED:
            return Keep(reason=gap_text(gpu.gaps, what))
    return Absent(reason=gap_text(gpus[0].gaps, what))
