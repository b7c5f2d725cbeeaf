# SPDX-License-Identifier: Apache-2.0
"""A verdict on each query of dashboards and rules: what it loses with another exporter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from exporters.queries.grafana_variables import parse_query
from exporters.queries.losses import Loss, LossKind, QueryNotes
from exporters.queries.promql import PromqlError, Tree, parse_promql
from exporters.queries.query_losses import Exporters, LossWalk, RecordingRule
from exporters.queries.served_series import ServedSeries


class QueryVerdict(Enum):
    """Verdict on a query, the worst first."""

    LOST = "lost"
    """The query loses series or labels."""
    UNREADABLE = "unreadable"
    """The query cannot be parsed, so nothing is known about it."""
    DEAD = "dead"
    """A selector of the query finds nothing on the old exporter either."""
    FOREIGN = "foreign"
    """The query has no metric of these exporters."""
    KEPT = "kept"
    """The query loses nothing."""


class QueryPlace(Enum):
    """Kind of place in a dashboard or rule file where a query stands."""

    PANEL = "panel"
    VARIABLE = "variable"
    ANNOTATION = "annotation"
    ALERT = "alert"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query with its place in a file and the labels that it uses."""

    file: str
    place: QueryPlace
    title: str
    """Title of the panel, or the name of the variable, the alert or the recorded metric."""
    expression: str
    label: str = ""
    """Label whose values a variable takes, as in ``label_values(metric, label)``."""
    shown: tuple[str, ...] = ()
    """Labels of the result that a legend, a table or an alert's text shows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a recording rule sets."""

    @property
    def is_of_rule(self) -> bool:
        """Whether the query is Prometheus' own, where Grafana's variables mean nothing."""
        return self.place in (QueryPlace.ALERT, QueryPlace.RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQuery:
    """A query with its verdict and the reasons."""

    query: Query
    verdict: QueryVerdict
    losses: tuple[Loss, ...] = ()
    dead: tuple[str, ...] = ()
    """Selectors that find nothing on the old exporter."""
    foreign: tuple[str, ...] = ()
    """Metrics that are not of these exporters."""
    problem: str = ""
    """The parser's reason where the query cannot be parsed."""


def judged(
    queries: Sequence[Query], old: ServedSeries, new: ServedSeries
) -> tuple[JudgedQuery, ...]:
    """A verdict on each query, in their order. Raises BadInput without the parser."""
    trees = [_parsed(query) for query in queries]
    rules: dict[str, tuple[RecordingRule, ...]] = {}
    for query, tree in zip(queries, trees, strict=True):
        if query.place is QueryPlace.RECORD and not isinstance(tree, PromqlError):
            rule = RecordingRule(name=query.title, tree=tree, labels=query.labels)
            rules[query.title] = (*rules.get(query.title, ()), rule)
    walk = LossWalk(Exporters(old=old, new=new, rules=rules))
    return tuple(
        JudgedQuery(query=query, verdict=QueryVerdict.UNREADABLE, problem=str(tree))
        if isinstance(tree, PromqlError)
        else _judged(query, tree, walk)
        for query, tree in zip(queries, trees, strict=True)
    )


def _parsed(query: Query) -> Tree | PromqlError:
    try:
        return parse_promql(query.expression) if query.is_of_rule else parse_query(query.expression)
    except PromqlError as error:
        return error


def _judged(query: Query, tree: Tree, walk: LossWalk) -> JudgedQuery:
    notes = QueryNotes()
    old, new = pair = walk.walk(tree, notes)
    if query.label:
        walk.compare_labels((query.label,), pair, "the variable", notes)
    walk.compare_labels(query.shown, pair, "what is shown", notes)
    certain = not (old.is_open or new.is_open or old.is_scalar or old.refused)
    if certain and old.series and not new.series and not notes.losses:
        notes.lose(LossKind.RESULT, query.expression, "no series are left")
    return JudgedQuery(
        query=query,
        verdict=_verdict(notes),
        losses=tuple(notes.losses),
        dead=tuple(dict.fromkeys(notes.dead)),
        foreign=tuple(dict.fromkeys(notes.foreign)),
    )


def _verdict(notes: QueryNotes) -> QueryVerdict:
    if notes.losses:
        return QueryVerdict.LOST
    if notes.dead:
        return QueryVerdict.DEAD
    return QueryVerdict.KEPT if notes.own or not notes.foreign else QueryVerdict.FOREIGN


def counts_by_verdict(queries: Iterable[JudgedQuery]) -> Mapping[str, int]:
    """Verdict to its number of queries, the worst first."""
    verdicts = [judged_query.verdict for judged_query in queries]
    return {verdict.value: verdicts.count(verdict) for verdict in QueryVerdict}
