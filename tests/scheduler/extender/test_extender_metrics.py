# SPDX-License-Identifier: Apache-2.0
"""What the extender says of itself, as Prometheus reads it."""

from __future__ import annotations

import logging
import re
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from api import topology_annotation
from api.gpu_request import Link, gpu_request
from placement.best_effort import Odds
from placement.class_tables import ScoreTables
from scheduler.cluster.node_views import NoOutcome, NoView
from scheduler.cluster.pod_gpu_request import Rules
from scheduler.cluster.predictions import PredictionCheck
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import (
    ClassUse,
    ExtenderMetrics,
    FleetUse,
    Neutral,
    NodeVisibility,
    Verb,
)
from scheduler.extender.fleet_fragmentation import fleet_use
from scheduler.extender.prediction_results import count_prediction
from scheduler.extender.server_tls import Party
from scheduler.pod_request import PodRequest
from tests import exposition
from tests.goldens import Goldens
from tests.monitoring import promtool
from tests.promlint import problems
from tests.scheduler import fleets
from tests.scheduler.calls import body
from tests.scheduler.extenders import cache
from web.refusals import RefusalReason

PREFIX = "gpuscape_scheduler_"
PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def series(metrics: ExtenderMetrics, name: str) -> dict[str, float]:
    """The values of a family's samples of this name, by the values of their labels."""
    found = {}
    for line in metrics.render().decode().splitlines():
        head, _, value = line.rpartition(" ")
        if head.partition("{")[0] == f"{PREFIX}{name}":
            labels = head.partition("{")[2].rstrip("}").split(",")
            found[",".join(label.partition("=")[2].strip('"') for label in labels)] = float(value)
    return found


def counters(metrics: ExtenderMetrics) -> dict[str, float]:
    """All counters by name, with the values of their labels behind it."""
    families = exposition.parse(metrics.render())
    return {
        ",".join([name.removeprefix(PREFIX), *(value for _, value in labels)]): float(text)
        for name, family in families.items()
        if family.kind == "counter" and name.startswith(PREFIX)
        for (_, labels), text in family.series.items()
    }


def everything() -> ExtenderMetrics:
    """After one of each thing that can happen."""
    metrics = ExtenderMetrics("1.0")
    use = ClassUse(gen="0123456789", nodes=2, free=5, worth=1.5, best_worth=3.0)
    metrics.ask_fleet(
        lambda: FleetUse(synced=True, views=[NodeVisibility.SURE, NoView.STALE], classes=[use])
    )
    metrics.answered(Verb.PRIORITIZE, 200, 0.003)
    metrics.answered(Verb.OTHER, 404, 0.001)
    metrics.judged(0, {})
    metrics.neutral(Neutral.BUDGET)
    metrics.refused(RefusalReason.NAME)
    metrics.landed(odds=0.5, ideal=True, unlinked=True)
    metrics.ask_certificates(lambda: dict.fromkeys(Party, 1.8e9))
    return metrics


def test_names_and_texts_are_as_prometheus_wants_them() -> None:
    families = exposition.parse(everything().render())
    assert {name: problems(family) for name, family in families.items() if problems(family)} == {}
    ours = {name for name in families if not name.startswith("process_")}
    assert all(name.startswith(PREFIX) for name in ours)


def test_families_are_explained(goldens: Goldens) -> None:
    """The text below each panel and in every query editor."""
    lines = everything().render().decode().splitlines()
    heads = [line for line in lines if line.startswith("#") and PREFIX in line]
    goldens.check_text("scheduler/metrics.txt", "\n".join([*heads, ""]))


@pytest.mark.cluster
def test_promtool_finds_nothing() -> None:
    assert promtool.check_metrics(everything().render()) == []


def test_candidates_without_a_view_are_counted_by_reason() -> None:
    fleet, tables = cache(a={}, b={"text": "damaged"})
    metrics = ExtenderMetrics("1.0")
    Extender(fleet, tables, Rules(), metrics).prioritize(body(["a", "b", "c", "d"]))
    unscored = series(metrics, "unscored_candidates_total")
    assert {reason: count for reason, count in unscored.items() if count} == {
        "bad_state": 1,
        "unknown_node": 2,
    }
    assert series(metrics, "candidates_sum") == {"": 4}


def test_answers_are_counted_at_each_scrape_however_few_or_many_there_were() -> None:
    metrics = ExtenderMetrics("1.0")
    for number in range(1, 201):
        metrics.answered(Verb.PRIORITIZE, 200, 0.003)
        metrics.judged(100, {})
        if number in (1, 63, 64, 65, 200):
            assert series(metrics, "requests_total") == {"200,prioritize": number}
            assert series(metrics, "request_duration_seconds_count") == {"prioritize": number}
            assert series(metrics, "candidates_sum") == {"": 100 * number}


def test_what_waits_to_be_counted_is_bounded() -> None:
    """Nobody has to scrape; of what is counted little is kept in memory."""
    metrics = ExtenderMetrics("1.0")
    metrics.answered(Verb.PRIORITIZE, 200, 0.003)
    tracemalloc.start()
    for number in range(30_000):
        metrics.answered(Verb.PRIORITIZE, 200, number / 1e6)
        metrics.judged(100, {})
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1_000_000


def test_threads_that_count_at_the_same_time_count_all() -> None:
    metrics = ExtenderMetrics("1.0")

    def answer() -> None:
        for _ in range(500):
            metrics.answered(Verb.PROBE, 200, 0.001)
            metrics.judged(1, {})

    between = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(answer) for _ in range(4)]:
                each.result()
    finally:
        sys.setswitchinterval(between)
    assert series(metrics, "requests_total") == {"200,probe": 2000}
    assert series(metrics, "candidates_sum") == {"": 2000}


def test_pods_without_gpus_count_no_candidates() -> None:
    fleet, tables = cache(a={})
    metrics = ExtenderMetrics("1.0")
    Extender(fleet, tables, Rules(), metrics).prioritize(body(["a"], Pod={}))
    assert series(metrics, "candidates_count") == {"": 0}


def test_nodes_are_counted_by_how_they_are_seen() -> None:
    fleet, tables = cache(a={}, b={"text": "damaged"}, c={"of": "0" * 10})
    fleet.pod(fleets.pod("p", 1), "a")
    fleet.pod(fleets.pod("q", 8), "a")  # more than there are
    metrics = ExtenderMetrics("1.0")
    metrics.ask_fleet(lambda: fleet_use(fleet, fleet.names(), tables, synced=fleet.synced))
    seen = {view: count for view, count in series(metrics, "nodes").items() if count}
    assert seen == {"unsure": 1, "bad_state": 1, "other_generation": 1}


def test_free_pairs_are_worth_all_and_free_halves_of_pairs_little() -> None:
    """Bridges join GPUs 0 and 1, 2 and 3, and so on."""
    whole, tables = cache(a={"used": 0b11110000})
    broken, others = cache(a={"used": 0b10101010})
    (kept,) = fleet_use(whole, ["a"], tables, synced=True).classes
    (lost,) = fleet_use(broken, ["a"], others, synced=True).classes
    assert (kept.free, kept.worth) == (4, kept.best_worth)
    assert (lost.free, lost.best_worth) == (4, kept.best_worth)
    assert lost.worth < lost.best_worth


def landed(
    predicted: Odds, actual: int, *, link: Link = Link.ANY
) -> tuple[ExtenderMetrics, list[PredictionCheck]]:
    """What is counted and told of a pod with two GPUs of a node with bridges."""
    tables = ScoreTables()
    metrics, told = ExtenderMetrics("1.0"), list[PredictionCheck]()
    annotation = topology_annotation.decode(fleets.topology())
    assert annotation is not None
    ask = PodRequest(namespace="default", name="p", uid="u", wish=gpu_request(2, link=link))
    landing = PredictionCheck(
        ask=ask,
        node="a",
        gen=tables.add(annotation),
        predicted=predicted,
        actual=actual,
    )
    count_prediction(tables, metrics, told.append, landing)
    return metrics, told


SURE: Odds = {0b11: Fraction(1)}


def test_a_prediction_that_came_true_is_a_hit() -> None:
    metrics, _ = landed({0b11: Fraction(1, 4), 0b1100: Fraction(3, 4)}, 0b11)
    assert series(metrics, "predictions_total") == {"hit": 1, "miss": 0}
    assert series(metrics, "predicted_odds_total") == {"": 0.25}
    assert series(metrics, "placements_total") == {"true": 1, "false": 0}


def test_one_that_did_not_is_a_miss() -> None:
    metrics, _ = landed(SURE, 0b110)
    assert series(metrics, "predictions_total") == {"hit": 0, "miss": 1}
    assert series(metrics, "placements_total") == {"true": 0, "false": 1}


def test_a_pod_of_which_nothing_was_predicted_is_neither() -> None:
    metrics, _ = landed({}, 0b11)
    assert series(metrics, "predictions_total") == {"hit": 0, "miss": 0}
    assert series(metrics, "placements_total") == {"true": 1, "false": 0}


@pytest.mark.parametrize(
    ("link", "actual", "is_told"),
    [(Link.NVLINK, 0b110, True), (Link.NVLINK, 0b11, False), (Link.ANY, 0b110, False)],
)
def test_a_pod_that_wished_linked_gpus_and_has_others_is_told_and_counted(
    link: Link, actual: int, is_told: bool
) -> None:
    metrics, told = landed(SURE, actual, link=link)
    assert len(told) == is_told
    assert series(metrics, "unlinked_pods_total") == {"": is_told}


def test_what_a_pod_got_is_logged_with_what_was_predicted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    landed({0b11: Fraction(1, 4), 0b1100: Fraction(3, 4)}, 0b1100)
    (line,) = caplog.records
    names = ("levelname", "message", "pod", "node", "gpus", "odds", "ideal")
    assert [vars(line)[name] for name in names] == [
        *("INFO", "GPUs allocated to pod", "default/p", "a", "c", 0.75, True)
    ]


def test_of_a_class_that_is_not_known_any_more_only_the_odds_are_counted() -> None:
    metrics, told = ExtenderMetrics("1.0"), list[PredictionCheck]()
    ask = PodRequest(namespace="n", name="p", uid="u", wish=gpu_request(2, link=Link.NVLINK))
    landing = PredictionCheck(ask=ask, node="a", gen="gone", predicted=SURE, actual=0b110)
    count_prediction(ScoreTables(), metrics, told.append, landing)
    assert {name: value for name, value in counters(metrics).items() if value} == {
        "predictions_total,miss": 1
    }
    assert told == []


def test_series_are_there_before_anything_happens() -> None:
    """What is absent is no zero to an alert."""
    metrics = ExtenderMetrics("1.0")
    families = (
        "unscored_candidates",
        "neutral_answers",
        "predictions",
        "placements",
        "http_refusals",
    )
    for name in families:
        assert set(series(metrics, f"{name}_total").values()) == {0.0}
    assert series(metrics, "request_duration_seconds_count") == {"prioritize": 0.0}


def test_the_page_names_all_families_and_their_types() -> None:
    families = exposition.parse(everything().render())
    served = {(name, family.kind) for name, family in families.items() if name.startswith(PREFIX)}
    rows = re.findall(rf"^\| `({PREFIX}\w+)` \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(rows) == served


def test_the_page_names_all_reasons() -> None:
    page = PAGE.read_text("utf-8")
    reasons = (*NoView, *NoOutcome)
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []


LABELS = {
    "build_info": {"version": "1.0"},
    "candidates": {},
    "certificate_expiry_timestamp_seconds": {"certificate": "client"},
    "class_free_gpus": {"topology_class": "0123456789"},
    "class_nodes": {"topology_class": "0123456789"},
    "class_worth_ratio": {"topology_class": "0123456789"},
    "events_dropped_total": {},
    "http_refusals_total": {"reason": "name"},
    "internal_errors_total": {},
    "neutral_answers_total": {"cause": "budget"},
    "nodes": {"view": "stale"},
    "placements_total": {"ideal": "true"},
    "predicted_odds_total": {},
    "predictions_total": {"result": "hit"},
    "request_duration_seconds": {"verb": "prioritize"},
    "requests_total": {"verb": "other", "code": "404"},
    "synced": {},
    "unlinked_pods_total": {},
    "unscored_candidates_total": {"reason": "stale"},
}
"""Family to the labels of one of its series after :func:`everything`: dashboards have them."""


def test_labels_are_those_that_queries_use() -> None:
    metrics = everything()
    metrics.judged(3, {NoView.STALE: 2})

    families = exposition.parse(metrics.render())

    assert {f"{PREFIX}{name}" for name in LABELS} == {
        name for name in families if name.startswith(PREFIX)
    }
    for name, labels in LABELS.items():
        family = families[f"{PREFIX}{name}"]
        of_series = [
            {key: value for key, value in pairs if key != "le"} for _, pairs in family.series
        ]
        assert {key for each in of_series for key in each} == labels.keys(), name
        assert labels in of_series, name


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        (
            "request_duration_seconds",
            "0.0005 0.001 0.002 0.005 0.01 0.02 0.03 0.05 0.1 0.5 1.0 +Inf",
        ),
        ("candidates", "1.0 10.0 50.0 100.0 200.0 500.0 1000.0 2000.0 5000.0 +Inf"),
    ],
)
def test_histograms_have_a_bound_at_each_budget(name: str, bounds: str) -> None:
    family = exposition.parse(everything().render())[f"{PREFIX}{name}"]
    found = dict.fromkeys(dict(labels).get("le") for _, labels in family.series)
    assert [bound for bound in found if bound] == bounds.split()


@pytest.mark.parametrize(
    ("happens", "counted"),
    [
        (lambda it: it.answered(Verb.EXPLAIN, 400, 0.25), {"requests_total,400,explain": 1}),
        (lambda it: it.judged(7, {NoView.STALE: 2}), {"unscored_candidates_total,stale": 2}),
        (lambda it: it.neutral(Neutral.FAULT), {"neutral_answers_total,fault": 1}),
        (lambda it: it.refused(RefusalReason.NAME), {"http_refusals_total,name": 1}),
        (ExtenderMetrics.event_dropped, {"events_dropped_total": 1}),
        (ExtenderMetrics.defect_met, {"internal_errors_total": 1}),
        (
            lambda it: it.landed(odds=0.0, ideal=False, unlinked=True),
            {"predictions_total,miss": 1, "placements_total,false": 1, "unlinked_pods_total": 1},
        ),
    ],
)
def test_what_happens_adds_to_its_own_counters_alone(
    happens: Callable[[ExtenderMetrics], None], counted: Mapping[str, float]
) -> None:
    metrics = ExtenderMetrics("1.0")
    happens(metrics)
    assert {name: value for name, value in counters(metrics).items() if value} == counted


def test_durations_and_candidates_are_summed() -> None:
    metrics = ExtenderMetrics("1.0")
    for seconds in (0.25, 0.5):
        metrics.answered(Verb.EXPLAIN, 400, seconds)
    metrics.judged(7, {})
    assert series(metrics, "request_duration_seconds_sum") == {"prioritize": 0, "explain": 0.75}
    assert series(metrics, "candidates_sum") == {"": 7}
