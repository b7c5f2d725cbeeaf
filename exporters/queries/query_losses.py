# SPDX-License-Identifier: Apache-2.0
"""Walks an expression on two exporters at once, and notes what the new one lacks. Pure.

A loss is noted where it begins: of a metric that is missing nothing else is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from exporters.queries.losses import LossKind, QueryNotes
from exporters.queries.promql import (
    NAME_LABEL,
    Aggregation,
    FunctionCall,
    Literal,
    Operation,
    Selector,
    Tree,
    selectors,
)
from exporters.queries.results import (
    OPEN,
    SCALAR,
    Result,
    aggregated,
    label_joined,
    label_replaced,
    operated,
    without_labels,
)
from exporters.queries.selector_losses import SelectorLosses, is_all_open, metric_name_of
from exporters.queries.served_series import Finder, Labels, ServedSeries, label_names

GENERIC: Final = ("go_", "process_", "promhttp_", "python_")
"""Metrics that programs of all kinds serve about themselves."""

_NEED_COUNTER: Final = frozenset({"rate", "irate", "increase", "resets"})
_NEED_GAUGE: Final = frozenset({"delta", "idelta", "deriv", "predict_linear"})
_SCALARS: Final = frozenset({"time", "pi", "scalar"})
_OPEN: Final = frozenset({"absent", "absent_over_time", "info"})

Pair = tuple[Result, Result]
"""Results on the old and on the new exporter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """An expression whose result has a metric's name."""

    name: str
    tree: Tree
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the rule sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporters:
    """The old and the new exporter, with the recording rules that make metrics of theirs."""

    old: ServedSeries
    new: ServedSeries
    rules: Mapping[str, tuple[RecordingRule, ...]] = field(default_factory=dict)
    """Recorded name to the rules that record it."""

    def finder(self) -> Finder:
        """The finder for the series of both exporters."""
        return Finder(exporters_labels=frozenset(self.old.labels() | self.new.labels()))

    def namespaces(self) -> frozenset[str]:
        """First words of the metrics' names, in lower case: such names are an exporter's own."""
        names = {*self.old.by_name, *self.new.by_name}
        words = {name.partition("_")[0].lower() for name in names if not name.startswith(GENERIC)}
        return frozenset(words | {"dcgm", "gpuscape"})


class LossWalk:
    """Walks expressions; the results of recording rules are kept from one to the next."""

    def __init__(self, exporters: Exporters) -> None:
        self._exporters = exporters
        self._finder = exporters.finder()
        self._selectors = SelectorLosses(self._finder, tuple(exporters.new.by_name))
        self._namespaces = exporters.namespaces()
        self._names = tuple(dict.fromkeys((*exporters.old.by_name, *exporters.new.by_name)))
        self._recorded: dict[str, tuple[Pair, QueryNotes]] = {}

    def walk(self, tree: Tree, notes: QueryNotes) -> Pair:
        """The expression's result on both, with what was lost on the way in ``notes``."""
        match tree:
            case Selector():
                return self._selected(tree, notes)
            case FunctionCall():
                return self._called(tree, notes)
            case Aggregation():
                return self._aggregated(tree, notes)
            case Operation():
                return self._operated(tree, notes)
            case Literal():
                return SCALAR, SCALAR

    def compare_labels(
        self, labels: Iterable[str], pair: Pair, user: str, notes: QueryNotes
    ) -> None:
        """Note the labels that ``user`` needs, the old result has, and the new one has not."""
        old, new = pair
        if not new.series:
            return
        for label in dict.fromkeys(labels):
            if label != NAME_LABEL and old.has(label) and not new.has(label):
                notes.lose_label(label, user, new.series)

    # Selectors

    def _selected(self, selector: Selector, notes: QueryNotes) -> Pair:
        names = self._finder.names(selector, self._names)
        names = tuple(name for name in names if not name.startswith(GENERIC))
        rules = self._finder.names(selector, self._exporters.rules)
        if is_all_open(selector) or not (names or rules):
            return self._unknown(selector, notes)
        pools = [
            [labels for name in names for labels in served.by_name.get(name, ())]
            for served in (self._exporters.old, self._exporters.new)
        ]
        opened = False
        for rule in rules:
            pair, from_rule = self._rule_result(rule)
            notes.add(from_rule, rule)
            opened |= any(result.is_open for result in pair)
            for pool, result in zip(pools, pair, strict=True):
                pool += result.series
        if not names and opened and not pools[0]:
            return OPEN, OPEN
        notes.own += bool(names)
        old, new = (self._finder.selected(selector, pool) for pool in pools)
        if names:
            self._selectors.compare(selector, (pools[0], pools[1]), (old, new), notes)
        if not (old or opened):
            notes.dead.append(selector.text)
        return (
            Result(series=frozenset(old), is_open=opened),
            Result(series=frozenset(new), is_open=opened),
        )

    def _unknown(self, selector: Selector, notes: QueryNotes) -> Pair:
        """A selector that neither exporter has series for, or whose metric is a variable."""
        name = metric_name_of(selector)
        if name is not None and name.partition("_")[0].lower() in self._namespaces:
            notes.own += 1
            notes.dead.append(selector.text)
            return Result(), Result()
        notes.foreign.append(name or selector.text)
        return OPEN, OPEN

    def _rule_result(self, name: str) -> tuple[Pair, QueryNotes]:
        """The series that recording rules give a name; open while that is being found out."""
        if name not in self._recorded:
            self._recorded[name] = ((OPEN, OPEN), QueryNotes())  # of a rule that uses itself
            notes = QueryNotes()
            series: tuple[set[Labels], set[Labels]] = (set(), set())
            opened = False
            for rule in self._exporters.rules[name]:
                pair = self.walk(rule.tree, notes)
                opened |= any(result.is_open for result in pair)
                for recorded, result in zip(series, pair, strict=True):
                    recorded.update(_recorded(labels, rule) for labels in result.series)
            old, new = (Result(series=frozenset(recorded), is_open=opened) for recorded in series)
            self._recorded[name] = ((old, new), notes)
        return self._recorded[name]

    # Functions and operators

    def _called(self, call: FunctionCall, notes: QueryNotes) -> Pair:
        pairs = [self.walk(argument, notes) for argument in call.arguments]
        if call.function in _NEED_COUNTER | _NEED_GAUGE:
            self._compare_types(call, notes)
        if call.function in _OPEN:
            return OPEN, OPEN
        if call.function in _SCALARS:
            return SCALAR, SCALAR
        if call.function == "vector" or not pairs:
            constant = Result(series=frozenset({frozenset()}))
            return constant, constant
        vectors = (result_pair for result_pair in pairs if not result_pair[0].is_scalar)
        pair = next(vectors, (SCALAR, SCALAR))
        texts = [
            argument.text or "" if isinstance(argument, Literal) else ""
            for argument in call.arguments
        ]
        if call.function in ("label_replace", "label_join"):
            sources = texts[3:4] if call.function == "label_replace" else texts[3:]
            self.compare_labels(sources, pair, call.function, notes)
            change = label_replaced if call.function == "label_replace" else label_joined
            old, new = (
                result.with_series(change(labels, texts) for labels in result.series)
                for result in pair
            )
            return old, new
        if call.function in ("sort_by_label", "sort_by_label_desc"):
            self.compare_labels(texts[1:], pair, call.function, notes)
        dropped = ("le",) if call.function.startswith("histogram_") else ()
        old, new = (
            result.with_series(without_labels(labels, dropped) for labels in result.series)
            for result in pair
        )
        return old, new

    def _compare_types(self, call: FunctionCall, notes: QueryNotes) -> None:
        needed = "counter" if call.function in _NEED_COUNTER else "gauge"
        for argument in call.arguments:
            if isinstance(argument, Selector):
                for name in self._finder.names(argument, self._names):
                    old = self._exporters.old.kinds.get(name)
                    new = self._exporters.new.kinds.get(name)
                    if old == needed and new not in (None, needed):
                        detail = f"{call.function}() needs a {needed}, and it is a {new} now"
                        notes.lose(LossKind.TYPE, name, detail)

    def _aggregated(self, node: Aggregation, notes: QueryNotes) -> Pair:
        if node.parameter is not None:
            self.walk(node.parameter, notes)
        old, new = self.walk(node.operand, notes)
        user = "without" if node.is_without else "by"
        self.compare_labels(node.labels, (old, new), f"{user} ({', '.join(node.labels)})", notes)
        return aggregated(node, old), aggregated(node, new)

    def _operated(self, node: Operation, notes: QueryNotes) -> Pair:
        parts = QueryNotes()
        lhs, rhs = self.walk(node.lhs, parts), self.walk(node.rhs, parts)
        matching = node.matching or ()
        for pair in (lhs, rhs):
            self.compare_labels(matching, pair, "on" if node.is_on else "ignoring", parts)
        user = f"group_{node.group}"
        single = lhs if node.group == "right" else rhs
        self.compare_labels(node.included, single, user, parts)
        old, new = operated(node, lhs[0], rhs[0]), operated(node, lhs[1], rhs[1])
        if new.refused and not old.refused and not (lhs[1].refused or rhs[1].refused):
            parts.lose(LossKind.RESULT, node.operator, new.refused)
        operands = [
            new_result
            for part, (_, new_result) in ((node.lhs, lhs), (node.rhs, rhs))
            if selectors(part)
        ]
        if node.operator.lower() == "or" and _is_covered(old, new, operands):
            parts.losses.clear()
        notes.add(parts)
        return old, new


def _is_covered(old: Result, new: Result, operands: Iterable[Result]) -> bool:
    """Whether ``or`` gives as much as before, though not of the same operand.

    ``operands`` are the new results of those that have a selector: ``vector(0)`` covers nothing.
    """
    if new.is_open or len(new.series) < len(old.series):
        return False
    if not any(operand.series for operand in operands):
        return False
    return label_names(old.series) - {NAME_LABEL} <= label_names(new.series)


def _recorded(labels: Labels, rule: RecordingRule) -> Labels:
    own_labels = ((name, value) for name, value in rule.labels.items() if value)
    return without_labels(labels, rule.labels) | {(NAME_LABEL, rule.name), *own_labels}
