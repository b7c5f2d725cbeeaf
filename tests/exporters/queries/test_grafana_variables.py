# SPDX-License-Identifier: Apache-2.0
"""Grafana's variables leave PromQL that parses, wherever they stand."""

from __future__ import annotations

import pytest

from exporters.queries.grafana_variables import parse_query
from exporters.queries.promql import FunctionCall, Literal, PromqlError, parse_promql, selectors


@pytest.mark.parametrize(
    "expression",
    [
        'x{gpu=~"$gpu", host="${Hostname:regex}", i="[[instance]]"}',
        "rate(x[$__rate_interval])",
        "rate(x[${__range}])",
        "avg_over_time(x[[[window]]])",
        "x offset $past",
        "topk($count, x)",
        "$aggregation(x)",
        "sum by ($label) (x)",
        "x > $limit",
        "x * $__interval_ms / 1000",
        "max_over_time(x[$range:$step])",
        "holt_winters(x[5m], 0.5, 0.5)",
    ],
)
def test_an_expression_with_variables_is_parsed(expression: str) -> None:
    (selector,) = selectors(parse_query(expression))

    assert selector.text.startswith("x")


@pytest.mark.parametrize("expression", ['$metric{a="b"}', "DCGM_FI_DEV_${what}", "rate($m[5m])"])
def test_a_metric_may_be_a_variable(expression: str) -> None:
    assert len(selectors(parse_query(expression))) == 1


def test_numbered_groups_of_label_replace_are_no_variables() -> None:
    expression = 'label_replace(x, "a", "$1", "b", "(.*)$")'
    tree = parse_query(expression)

    assert isinstance(tree, FunctionCall)
    assert [it.text for it in tree.arguments if isinstance(it, Literal)] == [
        "a",
        "$1",
        "b",
        "(.*)$",
    ]
    assert tree == parse_promql(expression)


def test_a_rule_has_no_variables() -> None:
    with pytest.raises(PromqlError):
        parse_promql("rate(x[$__rate_interval])")
