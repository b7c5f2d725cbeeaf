# SPDX-License-Identifier: Apache-2.0
"""Which pods a PodDisruptionBudget counts, and how many it lets go."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.drain.disruption_budgets import budget_blockers
from fleet.drain.drain_blocker import BlockerKind
from fleet.drain.drain_pod import DrainPod
from kube.api import Object
from kube.objects.pod import Pod
from tests.fleet.drain.drain_objects import budget, pod

UNREADY = {"conditions": [{"type": "Ready", "status": "False"}]}


def is_short(given: Object, *pods: Object) -> bool:
    """Whether the budget keeps these pods."""
    leaving = [DrainPod.owned(Pod.from_object(it), {}) for it in pods]
    kinds = [blocker.kind for blocker in budget_blockers(leaving, [given])]
    return kinds == [BlockerKind.BUDGET]


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchLabels": {"app": "a", "more": "x"}}, False),
        ({}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["b"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "New"}]}, True),
        (
            {
                "matchLabels": {"app": "a"},
                "matchExpressions": [{"key": "x", "operator": "Exists"}],
            },
            False,
        ),
    ],
)
def test_a_budget_counts_what_its_selector_selects(
    selector: dict[str, Any], selected: bool
) -> None:
    assert is_short(budget(0, selector=selector), pod()) is selected


def test_without_a_selector_or_in_another_namespace_it_counts_nothing() -> None:
    none = budget(0)
    del none["spec"]["selector"]

    assert not is_short(none, pod())
    assert not is_short(budget(0, namespace="team-b", selector={}), pod())


@pytest.mark.parametrize(
    ("given", "keeps"),
    [
        (budget(0), True),
        (budget(1), False),
        (budget(-1), True),
        ({**budget(1), "status": {}}, True),
        ({**budget(1), "status": {"disruptionsAllowed": 1, "observedGeneration": 0}}, True),
    ],
)
def test_how_many_it_lets_go(given: Object, keeps: bool) -> None:
    assert is_short(given, pod()) is keeps


def test_a_pod_that_has_not_started_is_not_counted() -> None:
    assert not is_short(budget(0), pod(phase="Pending"))
    two = [budget(0, "one"), budget(0, "two")]
    pending = DrainPod.owned(Pod.from_object(pod(phase="Pending")), {})
    assert list(budget_blockers([pending], two)) == []


@pytest.mark.parametrize(
    ("policy", "healthy", "wanted", "keeps"),
    [
        ("AlwaysAllow", 0, 5, False),
        ("IfHealthyBudget", 5, 5, False),
        ("IfHealthyBudget", 4, 5, True),
        ("IfHealthyBudget", 0, 0, True),
        (None, 5, 5, False),
        (None, 4, 5, True),
    ],
)
def test_a_pod_that_is_not_ready_goes_by_the_budgets_policy(
    policy: str | None, healthy: int, wanted: int, keeps: bool
) -> None:
    given = budget(0, currentHealthy=healthy, desiredHealthy=wanted)
    given["spec"] |= {"unhealthyPodEvictionPolicy": policy} if policy else {}

    assert is_short(given, pod(status=UNREADY)) is keeps
    assert is_short(given, pod())
