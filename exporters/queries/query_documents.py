# SPDX-License-Identifier: Apache-2.0
"""Finds the queries in documents of Grafana and Prometheus, however they are wrapped. Pure.

A document may be a dashboard, an answer of Grafana's API, a library panel, a ConfigMap or a list of
them, a rule file or a PrometheusRule: wherever a mapping has ``expr``, that is a query.
Source: Grafana, "Dashboard JSON model"; Prometheus, "Recording rules"; the Prometheus operator's
PrometheusRule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from base.errors import BadInput
from base.yaml_places import CoreLoader, read_yaml
from exporters.queries.judged_queries import Query, QueryPlace

MOST_BYTES: Final = 8 << 20
"""Limit of a file's size; a large dashboard has one MiB."""

_DOCUMENT: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_LEGEND: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_ALERT_LABEL: Final = re.compile(r"(?:\$labels|\.Labels)\.([A-Za-z_]\w*)")
_LABEL_VALUES: Final = re.compile(
    r"\s*label_values\(\s*(?:(?P<series>.+?)\s*,\s*)?(?P<label>[^\s,(){}]+)\s*\)\s*", re.DOTALL
)
_QUERY_RESULT: Final = re.compile(r"\s*query_result\((?P<query>.*)\)\s*", re.DOTALL)
_NO_SERIES: Final = re.compile(r"\s*(?:label_names|metrics)\(.*\)\s*", re.DOTALL)
_PROMETHEUS: Final = re.compile(r"prometheus|victoriametrics|mixed|^$|^\$", re.IGNORECASE)
_ALL_SERIES: Final = '{__name__=~".+"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """Facts about the place in a document that is searched, for the queries below it."""

    file: str
    title: str = ""
    datasource: str = ""
    """Type of the data source; empty where the document has none."""
    columns: tuple[str, ...] = ()
    """Texts that may be names of labels, in what a panel does with its result."""


def queries_of(text: str, file: str) -> Iterator[Query]:
    """The queries of a file's text, JSON or YAML by the file's name, in their order.

    Raises BadInput with file and line for what is neither.
    """
    context = _Context(file=file)
    if file.endswith(".json"):
        yield from _queries_in(_json(text, file), context)
        return
    end = 0
    for mark in (*_DOCUMENT.finditer(text), None):
        start, end = end, len(text) if mark is None else mark.start()
        above = "\n" * text.count("\n", 0, start)  # so that lines have their numbers
        document = text[start:end].removeprefix("---")
        content = read_yaml(above + document, file, loader=CoreLoader, most_bytes=2 * MOST_BYTES)
        yield from _queries_in(content.content(), context)


def _json(text: str, file: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{file}: not valid JSON: too deep, or a number too long") from error


def _queries_in(value: Any, context: _Context) -> Iterator[Query]:
    try:
        yield from _walked(value, context)
    except RecursionError as error:
        raise BadInput(f"{context.file}: nested too deeply") from error


def _walked(value: Any, context: _Context) -> Iterator[Query]:
    if isinstance(value, list):
        for child in value:
            yield from _walked(child, context)
    elif isinstance(value, dict):
        context = _inner(value, context)
        yield from _own(value, context)
        for key, inner in value.items():
            if isinstance(inner, str):
                yield from _embedded(str(key), inner, context)
            else:
                yield from _walked(inner, context)


def _inner(value: Mapping[str, Any], context: _Context) -> _Context:
    """The context for the values of a mapping."""
    title, source = value.get("title"), value.get("datasource")
    if isinstance(title, str) and title.strip():
        context = replace(context, title=title)
    if isinstance(source, dict) and isinstance(source.get("type"), str):
        context = replace(context, datasource=source["type"])
    if "targets" in value:
        config = value.get("fieldConfig")
        overrides = config.get("overrides") if isinstance(config, dict) else None
        columns = (*_texts(value.get("transformations")), *_texts(overrides))
        context = replace(context, columns=tuple(dict.fromkeys(columns)))
    return context


def _texts(value: Any) -> Iterator[str]:
    """All keys and texts of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
    elif isinstance(value, dict):
        yield from value
        for child in value.values():
            yield from _texts(child)


def _embedded(key: str, text: str, context: _Context) -> Iterator[Query]:
    """A document as text in another one, as ConfigMaps and the charts' values have it."""
    if key.endswith((".json", ".yaml", ".yml")):
        yield from queries_of(text, f"{context.file}: {key}")
    elif key == "json" and text.lstrip().startswith("{"):
        yield from queries_of(text, f"{context.file}: {key}.json")


def _own(value: Mapping[str, Any], context: _Context) -> Iterator[Query]:
    """The query that the mapping itself is, if it is one."""
    expression = value.get("expr")
    if isinstance(expression, (str, int, float)):
        text = str(expression)
        if any(isinstance(value.get(key), str) for key in ("alert", "record")):
            yield _rule(value, text, context)
        elif text.strip() and _PROMETHEUS.search(context.datasource):
            yield _panel(value, text, context)
    elif value.get("kind") == "QueryVariable" and isinstance(value.get("spec"), dict):
        yield from _variable(value["spec"], context)
    elif value.get("type") == "query" and "query" in value:
        yield from _variable(value, context)


def _rule(value: Mapping[str, Any], expression: str, context: _Context) -> Query:
    is_record = isinstance(value.get("record"), str)
    labels = value.get("labels")
    texts = " ".join((*_texts(value.get("annotations")), *_texts(labels)))
    return Query(
        file=context.file,
        place=QueryPlace.RECORD if is_record else QueryPlace.ALERT,
        title=value["record"] if is_record else value["alert"],
        expression=expression,
        shown=tuple(dict.fromkeys(_ALERT_LABEL.findall(texts))),
        labels={str(name): str(label_value) for name, label_value in labels.items()}
        if isinstance(labels, dict)
        else {},
    )


def _panel(value: Mapping[str, Any], expression: str, context: _Context) -> Query:
    is_annotation = "iconColor" in value
    shown = (value.get(key) for key in ("legendFormat", "titleFormat", "textFormat"))
    legend = [label for text in shown if isinstance(text, str) for label in _LEGEND.findall(text)]
    name = value.get("name")
    return Query(
        file=context.file,
        place=QueryPlace.ANNOTATION if is_annotation else QueryPlace.PANEL,
        title=name if is_annotation and isinstance(name, str) else context.title,
        expression=expression,
        shown=tuple(dict.fromkeys((*legend, *context.columns))),
    )


def _variable(value: Mapping[str, Any], context: _Context) -> Iterator[Query]:
    """The query of a dashboard's variable, if Prometheus answers it."""
    query = value.get("query")
    while isinstance(query, dict):
        query = query.get("query") or query.get("spec")
    if not isinstance(query, str) or not query.strip() or _NO_SERIES.fullmatch(query):
        return
    if not _PROMETHEUS.search(context.datasource):
        return
    label = ""
    if match := _LABEL_VALUES.fullmatch(query):
        query, label = match["series"] or _ALL_SERIES, match["label"]
    elif match := _QUERY_RESULT.fullmatch(query):
        query = match["query"]
    yield Query(
        file=context.file,
        place=QueryPlace.VARIABLE,
        title=str(value.get("name", "")),
        expression=query,
        label=label,
    )
