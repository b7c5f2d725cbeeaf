# SPDX-License-Identifier: Apache-2.0
"""Series that an expression can have, by labels alone: values are not computed. Pure.

A comparison keeps all series of its operand here, since their values decide at another time. What
neither exporter serves, such as ``kube_pod_info``, leaves a result open: it may have any series.
Source: prometheus.io/docs/prometheus/latest/querying/operators, vector matching.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from exporters.queries.promql import NAME_LABEL, Aggregation, Operation
from exporters.queries.served_series import EXPORTED, Labels

COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
_KEEPING: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_DUPLICATES: Final = "Prometheus refuses it: several series of one side match the same labels"

Key = Callable[[Labels], Labels]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The series of an expression on one exporter."""

    series: frozenset[Labels] = frozenset()
    is_open: bool = False
    """The result depends on series of other exporters: it may have more or fewer."""
    is_filtered: bool = False
    """Values decide which of these series the result has."""
    is_scalar: bool = False
    refused: str = ""
    """Why Prometheus gives an error; empty where it does not."""

    def has(self, label: str) -> bool:
        """Whether a series has the label, which may be the one that Prometheus renamed."""
        return any(value_of(labels, label) for labels in self.series)

    def with_series(self, series: Iterable[Labels]) -> Result:
        """A copy of the result with these series."""
        return replace(self, series=frozenset(series))


SCALAR: Final = Result(is_scalar=True)
OPEN: Final = Result(is_open=True)


def value_of(labels: Labels, label: str) -> str:
    """The value of a label; of ``exported_pod`` that of ``pod`` too. Empty without either."""
    values = dict(labels)
    return values.get(label) or values.get(label.removeprefix(EXPORTED), "")


def without_labels(labels: Labels, names: Collection[str]) -> Labels:
    """The labels without the metric's name and those with these names."""
    return frozenset(label for label in labels if label[0] != NAME_LABEL and label[0] not in names)


def only_labels(labels: Labels, names: Iterable[str]) -> Labels:
    """The labels with these names, as far as the series has them."""
    return frozenset((name, value) for name in names if (value := value_of(labels, name)))


def aggregated(node: Aggregation, operand: Result) -> Result:
    """The groups of an aggregation."""
    if node.operator in _KEEPING:
        return replace(operand, is_filtered=True)
    if node.is_without:
        return operand.with_series(without_labels(labels, node.labels) for labels in operand.series)
    return operand.with_series(only_labels(labels, node.labels) for labels in operand.series)


def operated(node: Operation, lhs: Result, rhs: Result) -> Result:
    """The result of two operands."""
    compares = node.operator in COMPARISONS and not node.returns_bool
    if lhs.is_scalar and rhs.is_scalar:
        return SCALAR
    if lhs.is_scalar or rhs.is_scalar:
        vector = rhs if lhs.is_scalar else lhs
        if compares:
            return replace(vector, is_filtered=True)
        return vector.with_series(without_labels(labels, ()) for labels in vector.series)
    match node.operator.lower():
        case "and":
            return _intersection(node, lhs, rhs)
        case "or":
            return _union(node, lhs, rhs)
        case "unless":
            return _difference(node, lhs, rhs)
    return replace(_matched(node, lhs, rhs), is_filtered=_is_filtered(lhs, rhs) or compares)


def _key(node: Operation) -> Key:
    names = node.matching or ()
    if node.is_on:
        return lambda labels: only_labels(labels, names)
    return lambda labels: without_labels(labels, names)


def _intersection(node: Operation, lhs: Result, rhs: Result) -> Result:
    merged = _merged(lhs, rhs)
    if rhs.is_open:
        return merged.with_series(lhs.series)
    key = _key(node)
    keys = {key(labels) for labels in rhs.series}
    return merged.with_series(labels for labels in lhs.series if key(labels) in keys)


def _union(node: Operation, lhs: Result, rhs: Result) -> Result:
    key = _key(node)
    keys = {key(labels) for labels in lhs.series}
    more = (labels for labels in rhs.series if key(labels) not in keys)
    return _merged(lhs, rhs).with_series({*lhs.series, *more})


def _difference(node: Operation, lhs: Result, rhs: Result) -> Result:
    merged = _merged(lhs, rhs)
    if rhs.is_open or rhs.is_filtered:
        return replace(merged.with_series(lhs.series), is_open=lhs.is_open, is_filtered=True)
    key = _key(node)
    keys = {key(labels) for labels in rhs.series}
    return merged.with_series(labels for labels in lhs.series if key(labels) not in keys)


def _matched(node: Operation, lhs: Result, rhs: Result) -> Result:
    """One-to-one, or many of one side to one of the other."""
    multiple, single = (rhs, lhs) if node.group == "right" else (lhs, rhs)
    key = _key(node)
    merged = _merged(lhs, rhs)
    if single.is_open or multiple.is_open:
        return merged.with_series(
            _joined(node, labels, frozenset((name, "?") for name in node.included))
            for labels in multiple.series
        )
    partners = _grouped(single.series, key)
    groups = _grouped(multiple.series, key)
    shared = partners.keys() & groups.keys()
    # of the single side Prometheus refuses duplicates even where they match nothing
    ambiguous = bool(groups) and any(len(series) > 1 for series in partners.values())
    if not node.group:
        ambiguous = ambiguous or any(len(groups[match]) > 1 for match in shared)
    if ambiguous and not _is_filtered(lhs, rhs):
        return replace(merged, refused=merged.refused or _DUPLICATES)
    return merged.with_series(
        _joined(node, labels, only_labels(partners[match][0], node.included))
        for match in shared
        for labels in groups[match]
    )


def _joined(node: Operation, labels: Labels, included: Labels) -> Labels:
    if node.group:
        return without_labels(labels, node.included) | included
    return _key(node)(labels)


def _grouped(series: Iterable[Labels], key: Key) -> defaultdict[Labels, list[Labels]]:
    groups: defaultdict[Labels, list[Labels]] = defaultdict(list)
    for labels in series:
        groups[key(labels)].append(labels)
    return groups


def _merged(lhs: Result, rhs: Result) -> Result:
    """A result without series, open, filtered or refused where either operand is."""
    return Result(
        is_open=lhs.is_open or rhs.is_open,
        is_filtered=_is_filtered(lhs, rhs),
        refused=lhs.refused or rhs.refused,
    )


def _is_filtered(lhs: Result, rhs: Result) -> bool:
    return lhs.is_filtered or rhs.is_filtered


def label_replaced(labels: Labels, texts: list[str]) -> Labels:
    """A series after ``label_replace``; ``texts`` are its arguments.

    It is unchanged where the regular expression is none of Python's.
    """
    _, target, replacement, source, pattern = texts
    try:
        match = re.fullmatch(pattern, value_of(labels, source), re.DOTALL)
        if match is None:
            return labels
        value = match.expand(re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", replacement.replace("\\", r"\\")))
    except (re.error, IndexError):
        return labels
    return _with(labels, target, value)


def label_joined(labels: Labels, texts: list[str]) -> Labels:
    """A series after ``label_join``; ``texts`` are its arguments."""
    _, target, separator, *sources = texts
    return _with(labels, target, separator.join(value_of(labels, source) for source in sources))


def _with(labels: Labels, name: str, value: str) -> Labels:
    other_labels = frozenset(label for label in labels if label[0] != name)
    return other_labels | {(name, value)} if value else other_labels
