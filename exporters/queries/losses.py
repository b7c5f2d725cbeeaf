# SPDX-License-Identifier: Apache-2.0
"""Losses of a query when one exporter takes another's place. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from exporters.compare.series_match import SPELLINGS
from exporters.dcgm import legacy
from exporters.dcgm.catalog import CATALOG
from exporters.queries.served_series import Labels, label_names


class LossKind(Enum):
    """Kind of a loss."""

    SERIES = "series"
    """A metric, or its series of some GPUs."""
    LABEL = "label"
    """A label that the query uses."""
    VALUE = "value"
    """All values of a label that a condition matches."""
    TYPE = "type"
    """The type that a function needs."""
    RESULT = "result"
    """The result of an operator whose operands still have series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A part of a query's result that only the old exporter gives."""

    kind: LossKind
    subject: str
    """The metric, the label, the condition or the operator."""
    detail: str
    """The reason, as a sentence without its full stop."""
    instead: tuple[str, ...] = ()
    """Names under which the new exporter serves the lost metric or label."""
    rule: str = ""
    """Name of the recording rule through which the query uses the subject."""


@dataclass(slots=True, kw_only=True)
class QueryNotes:
    """Notes on an expression: its losses, dead selectors and foreign metrics."""

    losses: list[Loss] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    """Selectors that find nothing on the old exporter."""
    foreign: list[str] = field(default_factory=list)
    """Metrics and selectors that are not of these exporters."""
    own: int = 0
    """Selectors of metrics that one of them serves."""

    def lose(
        self, kind: LossKind, subject: str, detail: str, instead: tuple[str, ...] = ()
    ) -> None:
        """Note a loss, once."""
        loss = Loss(kind=kind, subject=subject, detail=detail, instead=instead)
        if loss not in self.losses:
            self.losses.append(loss)

    def add(self, other: QueryNotes, rule: str = "") -> None:
        """Take over the notes of a part, or those of a recording rule."""
        for loss in other.losses:
            named = replace(loss, rule=loss.rule or rule)
            if named not in self.losses:
                self.losses.append(named)
        self.dead += other.dead
        self.foreign += other.foreign
        self.own += other.own

    def lose_label(self, label: str, user: str, series: Iterable[Labels]) -> None:
        """Note that ``user`` needs a label that the new series do not have."""
        instead = served_instead(label_names_of(label), label_names(series), label)
        self.lose(LossKind.LABEL, label, f"{user} needs the label {label}", instead)


def metric_names(name: str) -> frozenset[str]:
    """All names of the same field of DCGM, in the same unit; the name alone for others."""
    return _SYNONYMS.get(name, frozenset({name}))


def label_names_of(label: str) -> frozenset[str]:
    """All spellings of a label of dcgm-exporter's."""
    today = SPELLINGS.get(label, label)
    return frozenset({today, *(name for name, other in SPELLINGS.items() if other == today)})


def served_instead(names: Iterable[str], served: Iterable[str], lost: str) -> tuple[str, ...]:
    """The names that are served, without the lost one; sorted."""
    return tuple(sorted((set(names) & set(served)) - {lost}))


def _synonyms() -> dict[str, frozenset[str]]:
    names: dict[int, set[str]] = {}
    for family in CATALOG:
        names.setdefault(family.field, set()).update(
            {family.name, *(() if family.renamed is None else (family.renamed,))}
        )
    for name, number in legacy.FIELDS.items():
        names.setdefault(number, set()).add(name)
    return {name: frozenset(group) for group in names.values() for name in group}


_SYNONYMS: Final = _synonyms()
