# SPDX-License-Identifier: Apache-2.0
"""What queries lose between two exporters: metrics, labels, values, types and results."""

from __future__ import annotations

import pytest

from exporters.compare.exposition_parser import parse_exposition
from exporters.queries.judged_queries import (
    JudgedQuery,
    Query,
    QueryPlace,
    QueryVerdict,
    counts_by_verdict,
    judged,
)
from exporters.queries.losses import LossKind
from exporters.queries.served_series import ServedSeries
from tests.exporters.queries.expositions import NEW, OLD

BEFORE, AFTER = (ServedSeries.from_families(parse_exposition(text.encode())) for text in (OLD, NEW))
TEMP = "DCGM_FI_DEV_GPU_TEMP"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
POWER, WATTS = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"
LINKS = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
SERIES, LABEL, VALUE = LossKind.SERIES, LossKind.LABEL, LossKind.VALUE
HOSTNAME = (LABEL, "Hostname", ("hostname",))


def panel(expression: str, **more: object) -> Query:
    """A query of a panel."""
    fields = {"file": "d.json", "place": QueryPlace.PANEL, "title": "t", **more}
    return Query(expression=expression, **fields)  # type: ignore[arg-type]  # of this test's rows


def judge(*queries: Query, old: ServedSeries = BEFORE, new: ServedSeries = AFTER) -> JudgedQuery:
    """The verdict on the last of these queries."""
    return judged(queries, old, new)[-1]


def recorded(name: str, expression: str, **labels: str) -> Query:
    """A recording rule."""
    return panel(expression, place=QueryPlace.RECORD, title=name, labels=labels)


@pytest.mark.parametrize(
    ("expression", "loss"),
    [
        (POWER, (SERIES, POWER, (WATTS,))),
        (f"sum({POWER}) or vector(0)", (SERIES, POWER, (WATTS,))),
        (f"absent({POWER})", (SERIES, POWER, (WATTS,))),
        (f"max_over_time(sum({POWER})[5m:1m])", (SERIES, POWER, (WATTS,))),
        (f'{{__name__=~"{TEMP}|{POWER}"}}', (SERIES, POWER, (WATTS,))),
        (UTIL, (SERIES, UTIL, ())),
        (f'{TEMP}{{Hostname=~"$host"}}', HOSTNAME),
        (f'{TEMP}{{Hostname!="x"}}', HOSTNAME),
        (f"avg by (Hostname) ({TEMP})", HOSTNAME),
        (f"avg without (Hostname) ({TEMP})", HOSTNAME),
        (f"{TEMP} * on (Hostname, gpu) {FREE}", HOSTNAME),
        (f"{TEMP} * ignoring (Hostname) {TEMP}", HOSTNAME),
        (f"{TEMP} * on (gpu) group_left (Hostname) {FREE}", HOSTNAME),
        (f"{TEMP}{{Hostname='another'}}", HOSTNAME),
        (f'label_replace({TEMP}, "a", "$1", "Hostname", "(.*)")', HOSTNAME),
        (f'label_join({TEMP}, "a", "-", "gpu", "Hostname")', HOSTNAME),
        (f"topk(3, sum by (Hostname, gpu) ({TEMP}))", HOSTNAME),
        (f'{FREE}{{mode="old"}}', (VALUE, 'mode="old"', ())),
        (f'{FREE}{{mode=~"o.d"}}', (VALUE, 'mode=~"o.d"', ())),
        (f"rate({LINKS}[5m])", (LossKind.TYPE, LINKS, ())),
        (f"sum(increase({LINKS}[$__rate_interval]))", (LossKind.TYPE, LINKS, ())),
        (f"{TEMP} / on (gpu) {USED}", (LossKind.RESULT, "/", ())),
        (f"{FREE} and on (gpu, mode) {FREE}{{mode='old'}}", (VALUE, 'mode="old"', ())),
    ],
)
def test_a_loss_is_named_with_the_name_that_is_served_instead(
    expression: str, loss: tuple[LossKind, str, tuple[str, ...]]
) -> None:
    result = judge(panel(expression))

    assert result.verdict is QueryVerdict.LOST
    assert [(it.kind, it.subject, it.instead) for it in result.losses] == [loss]


@pytest.mark.parametrize(
    "expression",
    [
        TEMP,
        f'{TEMP}{{instance=~"$instance", job="gpu", gpu=~"$gpu"}}',
        f"avg by (instance, gpu, exported_pod) ({TEMP})",
        f'{TEMP}{{exported_pod="train"}}',
        f'{TEMP}{{Hostname=~".*"}}',
        f"avg_over_time({LINKS}[5m])",
        f"kube_pod_info * on (pod) group_right {TEMP}",
        f"sum({POWER}) or sum({WATTS})",
        f'sum({{__name__=~"{POWER}|{WATTS}"}})',
        '{__name__=~"DCGM_FI_DEV_${what}"}',
        f'{UTIL}{{gpu="0"}}',
        f"{TEMP} > $threshold",
        f"{TEMP} unless on (gpu) {FREE} > 90",
    ],
)
def test_a_query_that_finds_as_much_as_before_loses_nothing(expression: str) -> None:
    result = judge(panel(expression))

    assert (result.losses, result.verdict in (QueryVerdict.KEPT, QueryVerdict.DEAD)) == ((), True)


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("DCGM_FI_DEV_NO_SUCH", QueryVerdict.DEAD),
        (f'{TEMP}{{gpu="7"}}', QueryVerdict.DEAD),
        ("kube_pod_info", QueryVerdict.FOREIGN),
        ("go_goroutines", QueryVerdict.FOREIGN),
        ("$metric", QueryVerdict.FOREIGN),
        (f"sum({TEMP}", QueryVerdict.UNREADABLE),
        ("", QueryVerdict.UNREADABLE),
        ("(" * 100_000, QueryVerdict.UNREADABLE),
        ("1" + "+1" * 5000, QueryVerdict.UNREADABLE),
        ("sum(" * 140 + TEMP + ")" * 140, QueryVerdict.KEPT),
    ],
)
def test_what_is_dead_foreign_or_unreadable_is_no_loss(
    expression: str, verdict: QueryVerdict
) -> None:
    assert judge(panel(expression)).verdict is verdict


def test_what_a_legend_shows_is_a_loss_when_the_result_has_it_no_more() -> None:
    result = judge(panel(TEMP, shown=("gpu", "Hostname", "nonsense")))

    assert [(it.kind, it.subject, it.instead) for it in result.losses] == [HOSTNAME]


def test_a_variable_loses_its_values_with_the_label() -> None:
    assert judge(panel(TEMP, label="Hostname")).verdict is QueryVerdict.LOST
    assert judge(panel(TEMP, label="gpu")).verdict is QueryVerdict.KEPT


def test_a_recorded_name_is_judged_by_its_rule() -> None:
    rule = recorded("node:power:sum", f"sum by (Hostname) ({POWER})")

    result = judge(rule, panel("node:power:sum > 100"))

    (loss,) = result.losses
    assert (loss.subject, loss.rule, result.dead) == (POWER, "node:power:sum", ())


def test_a_recorded_name_whose_rule_loses_nothing_is_kept() -> None:
    rule = recorded("gpu:temp:max", f"max by (gpu) ({TEMP})", team="ml")

    assert judge(rule, panel('gpu:temp:max{team="ml"}')).verdict is QueryVerdict.KEPT


def test_a_rule_that_records_its_own_name_ends_the_walk() -> None:
    rule = recorded("a:b", f"a:b + {TEMP}")

    assert judge(rule, panel("a:b")).verdict in (QueryVerdict.KEPT, QueryVerdict.FOREIGN)


def test_the_same_exposition_on_both_sides_loses_nothing() -> None:
    queries = [panel(it) for it in (TEMP, POWER, f"rate({LINKS}[5m])", f"{TEMP} * on (gpu) {USED}")]

    results = judged(queries, BEFORE, BEFORE)

    assert counts_by_verdict(results) == {
        "lost": 0,
        "unreadable": 0,
        "dead": 0,
        "foreign": 0,
        "kept": 4,
    }
