# SPDX-License-Identifier: Apache-2.0
"""The series that an exporter serves, as selectors find them. Pure.

Prometheus adds labels of its own to what it scrapes (``instance``, ``job``, those of relabelling),
and renames a label that it sets itself to ``exported_`` and the name. So a label that no exporter
here serves is Prometheus' own, and a condition on it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from exporters.compare.exposition_parser import Families
from exporters.compare.series_match import Matching
from exporters.queries.grafana_variables import ANY, ANY_NAME
from exporters.queries.promql import NAME_LABEL, LabelMatcher, Selector

Labels = frozenset[tuple[str, str]]
"""Name and value of each label of a series, without empty ones."""

EXPORTED: Final = "exported_"
_ANY: Final = re.compile(f"{ANY}|{ANY_NAME}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSeries:
    """The series and the types of an exporter's metrics, by the metric's name."""

    by_name: dict[str, tuple[Labels, ...]] = field(default_factory=dict)
    """Name of a metric to the labels of each of its series, ``__name__`` among them."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Name of a metric to its type in the exposition; a histogram's series by their own names."""

    @staticmethod
    def from_families(families: Families, prefixes: Sequence[str] = ()) -> ServedSeries:
        """The series of an exposition; the first of the prefixes is taken off a metric's name."""
        matching = Matching(prefixes=prefixes)
        by_name: dict[str, list[Labels]] = {}
        kinds: dict[str, str] = {}
        for family in families.values():
            for written, labels in family.series:
                name = matching.name(written)
                present = ((label, value) for label, value in labels if value)
                by_name.setdefault(name, []).append(frozenset({(NAME_LABEL, name), *present}))
                kinds[name] = family.kind or "untyped"
        return ServedSeries(
            by_name={name: tuple(series) for name, series in by_name.items()}, kinds=kinds
        )

    def labels(self) -> set[str]:
        """Names of all labels of all series, ``__name__`` among them."""
        return {name for series in self.by_name.values() for labels in series for name, _ in labels}


def label_names(series: Iterable[Labels]) -> set[str]:
    """Names of the labels that these series have between them."""
    return {name for labels in series for name, _ in labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """Finds series by selectors; the labels of both exporters decide which are Prometheus' own."""

    exporters_labels: frozenset[str]

    def names(self, selector: Selector, served: Iterable[str]) -> tuple[str, ...]:
        """Names among these that the selector's conditions on the name allow."""
        conditions = [
            tuple(matcher for matcher in group if matcher.label == NAME_LABEL)
            for group in selector.alternatives
        ]
        return tuple(
            name
            for name in served
            if any(all(_holds(matcher, name) for matcher in group) for group in conditions)
        )

    def selected(
        self, selector: Selector, series: Iterable[Labels], *, without: LabelMatcher | None = None
    ) -> list[Labels]:
        """The series that the selector finds; the condition ``without`` is ignored."""
        return [
            labels
            for labels in series
            if any(
                all(matcher == without or self.holds(matcher, labels) for matcher in group)
                for group in selector.alternatives
            )
        ]

    def holds(self, matcher: LabelMatcher, labels: Labels) -> bool:
        """Whether a series meets a condition."""
        label = self.served_name(matcher.label)
        if label is None:
            return True
        return _holds(matcher, next((value for name, value in labels if name == label), ""))

    def served_name(self, label: str) -> str | None:
        """The exporters' name of a label in a query; None for one of Prometheus' own."""
        for name in (label, label.removeprefix(EXPORTED)):
            if name in self.exporters_labels:
                return name
        return None

    def served_names(self, labels: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each label as the query writes it, and as exporters do; Prometheus' own left out."""
        for label in dict.fromkeys(labels):
            name = self.served_name(label)
            if name is not None and name != NAME_LABEL:
                yield label, name


def is_open(matcher: LabelMatcher) -> bool:
    """Whether a variable of Grafana's decides what the condition matches."""
    return ANY in matcher.value or ANY_NAME in matcher.value


def _holds(matcher: LabelMatcher, value: str) -> bool:
    is_positive = matcher.operator in ("=", "=~")
    if is_open(matcher):
        return not is_positive or _of_variable(matcher, value)
    if matcher.operator in ("=", "!="):
        return (value == matcher.value) is is_positive
    return _matches(matcher.value, value) in (is_positive, None)


def _of_variable(matcher: LabelMatcher, value: str) -> bool:
    """Whether a value is possible; a variable alone may be "All", which needs no label."""
    parts = _ANY.split(matcher.value)
    if not re.search(r"\w", "".join(parts)):
        return True
    if matcher.operator == "=":
        parts = [re.escape(part) for part in parts]
    return _matches(".*".join(parts), value) is not False


@lru_cache(maxsize=4096)
def _matches(pattern: str, value: str) -> bool | None:
    """Whether a regular expression of Go's matches all of a value; None where Python has none."""
    try:
        return re.fullmatch(pattern, value, re.DOTALL) is not None
    except (re.error, RecursionError, OverflowError):
        return None
