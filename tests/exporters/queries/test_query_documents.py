# SPDX-License-Identifier: Apache-2.0
"""Queries are found in documents of Grafana and Prometheus, with what is shown of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from base.errors import BadInput
from exporters.queries.judged_queries import Query, QueryPlace
from exporters.queries.query_documents import queries_of

RULES = """\
groups:
- rules:
  - record: gpu:power
    expr: sum(DCGM_FI_DEV_POWER_USAGE)
    labels: {team: ops}
  - alert: Hot
    expr: DCGM_FI_DEV_GPU_TEMP > 90
    labels: {severity: page, node: '{{ $labels.Hostname }}'}
    annotations: {summary: '{{ $labels.gpu }} of {{.Labels.pod}}, {{ $labels.gpu }} again'}
"""


def only(text: str, file: str = "rules.yaml") -> Query:
    [query] = queries_of(text, file)
    return query


def panel(**more: Any) -> str:
    target = {"expr": "up", **more}
    return json.dumps({"title": "Power", "targets": [target]})


def test_rules_have_their_labels_and_the_labels_that_their_texts_name() -> None:
    record, alert = queries_of(RULES, "rules.yaml")
    assert record == Query(
        file="rules.yaml",
        place=QueryPlace.RECORD,
        title="gpu:power",
        expression="sum(DCGM_FI_DEV_POWER_USAGE)",
        labels={"team": "ops"},
    )
    assert (alert.place, alert.title, alert.expression) == (
        QueryPlace.ALERT,
        "Hot",
        "DCGM_FI_DEV_GPU_TEMP > 90",
    )
    assert alert.labels == {"severity": "page", "node": "{{ $labels.Hostname }}"}
    assert sorted(alert.shown) == ["Hostname", "gpu", "pod"]


def test_a_rule_without_labels_has_none() -> None:
    assert only("{record: a, expr: up}").labels == {}


@pytest.mark.parametrize("key", ["legendFormat", "titleFormat", "textFormat"])
def test_a_panel_shows_the_labels_of_its_legend(key: str) -> None:
    query = only(panel(**{key: "{{gpu}} in {{ pod }}"}), "d.json")
    assert query.shown == ("gpu", "pod")
    assert (query.place, query.title, query.file) == (QueryPlace.PANEL, "Power", "d.json")


def test_an_annotation_has_a_name_of_its_own() -> None:
    query = only(panel(iconColor="red", name="XIDs"), "d.json")
    assert (query.place, query.title) == (QueryPlace.ANNOTATION, "XIDs")


def test_columns_that_a_panel_renames_are_shown() -> None:
    rename = {"id": "organize", "options": {"renameByName": {"Hostname": "node"}}}
    document = {"targets": [{"expr": "up"}], "transformations": [rename]}
    assert {"Hostname", "node"} <= set(only(json.dumps(document), "d.json").shown)


@pytest.mark.parametrize(("type_", "count"), [("prometheus", 1), ("loki", 0), ("$source", 1)])
def test_queries_of_other_data_sources_are_left_out(type_: str, count: int) -> None:
    for target in ({"expr": "up"}, {"type": "query", "name": "gpu", "query": "up"}):
        document = {"datasource": {"type": type_}, "targets": [target]}
        assert len(list(queries_of(json.dumps(document), "d.json"))) == count


@pytest.mark.parametrize(
    ("query", "expression", "label"),
    [
        ("label_values(DCGM_FI_DEV_GPU_TEMP, gpu)", "DCGM_FI_DEV_GPU_TEMP", "gpu"),
        ("label_values(gpu)", '{__name__=~".+"}', "gpu"),
        ("query_result(up > 0)", "up > 0", ""),
        ("up", "up", ""),
        ({"query": "up", "refId": "A"}, "up", ""),
    ],
)
def test_a_variable_is_a_query_with_the_label_that_it_lists(
    query: object, expression: str, label: str
) -> None:
    old = {"type": "query", "name": "gpu", "query": query}
    new = {"kind": "QueryVariable", "spec": {"name": "gpu", "query": {"spec": query}}}
    for document in (old, new) if isinstance(query, str) else (old,):
        assert only(json.dumps(document), "d.json") == Query(
            file="d.json",
            place=QueryPlace.VARIABLE,
            title="gpu",
            expression=expression,
            label=label,
        )


@pytest.mark.parametrize("query", ["label_names()", "metrics(DCGM.*)", " "])
def test_a_variable_that_lists_names_is_no_query(query: str) -> None:
    document = {"type": "query", "name": "gpu", "query": query}
    assert list(queries_of(json.dumps(document), "d.json")) == []


def test_documents_in_a_config_map_are_searched_under_their_names() -> None:
    config_map = json.dumps({"data": {"a.json": panel(), "b.yaml": RULES, "c.txt": panel()}})
    files = [query.file for query in queries_of(config_map, "cm.json")]
    assert files == ["cm.json: a.json", "cm.json: b.yaml", "cm.json: b.yaml"]


@pytest.mark.parametrize(
    ("text", "file", "where"),
    [
        ("{}\n---\na: b: c\n", "a.yaml", "a.yaml:3"),
        ('{"a":\n]', "a.json", "a.json:2: not valid JSON"),
        ("[" * 100_000, "a.json", "a.json: not valid JSON: too deep"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(text: str, file: str, where: str) -> None:
    with pytest.raises(BadInput) as raised:
        list(queries_of(text, file))
    assert str(raised.value).startswith(where)
