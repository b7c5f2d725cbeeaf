# SPDX-License-Identifier: Apache-2.0
"""Every query that is shipped, asked of a real Prometheus that scrapes the simulated fleet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.monitoring import shipped
from tests.monitoring.fleet import COORDINATOR, EXTENDER, NODES
from tests.monitoring.labels import labels, selectors
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.shipped import CHOSEN, Asked, filled

pytestmark = pytest.mark.cluster

WITHOUT_DATA = {
    "kube_node_status_allocatable": "kube-state-metrics is no part of the fleet",
}
"""Metrics that the shipped queries name and the fleet does not have, and why."""

ABOUT_TARGETS = {"up": {"instance", "job", "cluster"}}
"""Of what Prometheus says of targets, the labels that hold in every installation."""

PUBLIC = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}',
)
"""All queries of dashboard 12239 of grafana.com, the most used one for dcgm-exporter."""

ASKED = shipped.asked()
VARIABLES = shipped.variables()
RULES = {rule.get("alert") or rule["record"]: rule for rule in shipped.rules()}


def test_every_node_is_scraped_without_an_error(prometheus: Prometheus) -> None:
    targets = {it["labels"]["instance"]: it for it in prometheus.targets()}

    assert {name: it["lastError"] for name, it in targets.items()} == dict.fromkeys(
        [*(node.name for node in NODES), EXTENDER, COORDINATOR], ""
    )


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_panels_query_returns_data(prometheus: Prometheus, asked: Asked) -> None:
    assert prometheus.query(filled(asked.expression))


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_panels_query_names_no_metric_and_no_label_that_is_not_served(
    prometheus: Prometheus, asked: Asked
) -> None:
    found = labels(prometheus.parsed(filled(asked.expression)), prometheus.labels_of)

    assert shown(asked) <= found


def shown(asked: Asked) -> set[str]:
    """The labels that a panel shows of a query's answer: in its legend, its axes, its columns."""
    (panel,) = (
        it
        for it in shipped.panels(shipped.dashboards()[asked.dashboard])
        if it["title"] == asked.panel and asked.expression in {t["expr"] for t in it["targets"]}
    )
    named = set(re.findall(r"{{(\w+)}}", panel["targets"][asked.number].get("legendFormat", "")))
    for change in panel["transformations"]:
        match change:
            case {"id": "sortBy", "options": options}:
                named |= {it["field"] for it in options["sort"]}
            case {"id": "filterFieldsByName", "options": options} if len(panel["targets"]) == 1:
                named |= {it for it in options["include"]["names"] if not it.startswith("Value")}
    return {it for it in named if not re.fullmatch(r"to_(?!00)\d+", it)}


@pytest.mark.parametrize("query", VARIABLES.values(), ids=VARIABLES)
def test_a_variable_has_values_to_choose_from(prometheus: Prometheus, query: str) -> None:
    series, label = shipped.label_values(query)

    assert prometheus.label_values(label, filled(series))


def test_what_is_chosen_narrows_every_panel_of_the_node_dashboard(prometheus: Prometheus) -> None:
    """One node and two of its GPUs: no series of another node, nor of another GPU."""
    chosen = {**CHOSEN, "$instance": "h100-0", "$gpu": "0|1"}
    by_gpu = [it for it in ASKED if it.dashboard == "gpuscape-node" and "$gpu" in it.expression]

    found = [
        series.labels
        for asked in by_gpu
        for series in prometheus.query(filled(asked.expression, chosen))
    ]

    assert {it["instance"] for it in found if "instance" in it} == {"h100-0"}
    assert {it["gpu"] for it in found if "gpu" in it} == {"0", "1"}
    assert {it["index"] for it in found if "index" in it} == {"0", "1"}


@pytest.mark.parametrize("expression", PUBLIC)
def test_the_public_dashboard_works_unchanged(prometheus: Prometheus, expression: str) -> None:
    """Its variables are the labels instance and gpu of DCGM_FI_DEV_GPU_TEMP."""
    nodes = prometheus.label_values("instance", "DCGM_FI_DEV_GPU_TEMP")
    gpus = prometheus.label_values("gpu", "DCGM_FI_DEV_GPU_TEMP")
    chosen = {"$instance": "|".join(nodes), "$gpu": "|".join(gpus)}

    assert nodes == sorted(node.name for node in NODES)
    assert prometheus.query(filled(expression, chosen))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_evaluated_on_series_and_labels_that_are_served(
    prometheus: Prometheus, name: str
) -> None:
    """Alerts mostly have no data of their own: then nothing is wrong."""
    rule = RULES[name]

    found = labels(prometheus.parsed(rule["expr"]), lambda metric: served(prometheus, metric))

    (evaluated,) = (it for it in prometheus.rules() if it["name"] == name)
    assert evaluated["health"] == "ok"
    assert templated(rule) <= found | {"node"}
    if "record" in rule:
        assert prometheus.query(name)


def served(prometheus: Prometheus, metric: str) -> set[str]:
    """Labels of a metric, of those that the fleet does not have too."""
    if metric in ABOUT_TARGETS:
        return ABOUT_TARGETS[metric]
    if metric in WITHOUT_DATA:
        return {"cluster", "node", "resource"}
    return prometheus.labels_of(metric)


def templated(rule: Mapping[str, Any]) -> set[str]:
    """Labels that an alert's annotations speak of."""
    texts = " ".join((rule.get("annotations") or {}).values())
    return set(re.findall(r"\$labels\.(\w+)", texts))


def test_what_the_fleet_is_said_to_lack_it_lacks(prometheus: Prometheus) -> None:
    expressions = [filled(it.expression) for it in ASKED] + [it["expr"] for it in RULES.values()]
    named = {it["name"] for each in expressions for it in selectors(prometheus.parsed(each))}

    assert {metric for metric in named if not prometheus.labels_of(metric)} == set(WITHOUT_DATA)


@pytest.mark.parametrize(
    ("alert", "node"),
    [
        ("GpuDown", "a30-0"),
        ("GpuXid", "h100-0"),
        ("GpuNvlinkDown", "a100-0"),
        ("GpuRowRemapPending", "a100-0"),
        ("GpuPageRetirementPending", "v100-0"),
        ("GpuFabricFault", "h100-0"),
        ("GpuFabricNotRegistered", "h100-0"),
        ("GpuThermalSlowdown", "h100-0"),
        ("GpuModeChangePending", "a100-0"),
        ("GpuPersistenceOff", "a100-0"),
        ("GpuRecoveryNeeded", "a100-0"),
        ("GpuRowRemapFailed", "a100-0"),
        ("GpuNvswitchError", "h100-0"),
        ("GpuIdleWhileAllocated", "a100-0"),
        ("GpuscapeMigNodeStuck", "a100-0"),
        ("GpuscapeMigChangeFailed", "h100-0"),
        ("GpuscapeMigChangeSlow", "v100-0"),
        ("GpuscapeMigLayoutRefused", "a30-0"),
    ],
)
def test_an_alert_sees_the_trouble_of_the_fleet(
    prometheus: Prometheus, alert: str, node: str
) -> None:
    """Firing or on the way there; on no other node, but for what idles on more of them."""
    found = prometheus.query(f'count by (instance) (ALERTS{{alertname="{alert}"}})')

    assert node in {series.labels["instance"] for series in found}


def test_no_alert_fires_without_trouble(prometheus: Prometheus) -> None:
    """On nodes without any."""
    healthy = {node.name for node in NODES} - {"a30-0", "h100-0", "a100-0", "v100-0"}

    found = prometheus.query('ALERTS{alertname!="GpuIdleWhileAllocated"}')

    assert {it.labels.get("instance") for it in found}.isdisjoint(healthy)
