# SPDX-License-Identifier: Apache-2.0
"""Victims and nodes are chosen by kube-scheduler's rules; nominated pods hold their room."""

from __future__ import annotations

from typing import Any

import pytest

from kube.objects.node import Node
from kube.objects.pod import Pod
from kube.objects.priority_class import PriorityClass, with_priority
from scheduler.filters.preemption import (
    PlacedPod,
    PreemptionOutlook,
    load_for,
    outlook,
    placed_pod,
)

GPU = "nvidia.com/gpu"
EARLY, LATE = "2026-11-29T01:00:00Z", "2026-11-29T02:00:00Z"


def node(name: str, gpus: int = 8) -> Node:
    allocatable = {"pods": "10", GPU: str(gpus)}
    return Node.from_object({"metadata": {"name": name}, "status": {"allocatable": allocatable}})


def pod(gpus: int = 2, priority: int | None = 100, nominated: str = "", **spec: Any) -> Pod:
    container = {"resources": {"limits": {GPU: str(gpus)}}}
    return Pod.from_object(
        {
            "spec": {"containers": [container], "priority": priority, **spec},
            "status": {"nominatedNodeName": nominated},
        }
    )


def here(name: str, gpus: int, priority: int = 0, **more: Any) -> PlacedPod:
    return PlacedPod(name=name, node="a", requests={GPU: gpus}, priority=priority, **more)


def expected(
    asked: Pod, has_candidate: bool = False, /, **pods: list[PlacedPod]
) -> PreemptionOutlook:
    return outlook(asked, [node(name) for name in pods], pods, has_candidate=has_candidate)


def victims(asked: Pod, **pods: list[PlacedPod]) -> dict[str, list[str]]:
    choices = expected(asked, **pods).choices
    return {choice.node: [victim.name for victim in choice.victims] for choice in choices}


def test_the_fewest_pods_go_and_the_highest_priorities_stay() -> None:
    full = [here("low", 2, 1), here("middle", 2, 5), here("high", 2, 9), here("own", 2, 100)]
    assert victims(pod(2), a=full) == {"a": ["low"]}
    assert victims(pod(4), a=full) == {"a": ["middle", "low"]}
    assert victims(pod(7), a=full) == {}


def test_of_equal_pods_the_one_goes_that_started_last() -> None:
    full = [here("x-early", 4, started_at=EARLY), here("late", 4, started_at=LATE)]
    assert victims(pod(2), a=full) == {"a": ["late"]}
    waiting = [here("early", 4, started_at=EARLY), here("waiting", 4)]
    assert victims(pod(2), a=waiting) == {"a": ["waiting"]}


def test_pods_of_equal_priority_stay() -> None:
    assert victims(pod(2, 100), a=[here("equal", 8, 100)]) == {}


@pytest.mark.parametrize(
    ("other", "better"),
    [
        ([here("x", 8, 6)], "a"),
        ([here("x", 8, 4)], "b"),
        ([here("x", 4, 5), here("y", 4, 5)], "a"),
        ([here("x", 4, 5), here("y", 4, -3)], "a"),
        ([here("x", 4, 4), here("y", 4, 4)], "b"),
        ([here("x", 8, 5, started_at=LATE)], "b"),
    ],
)
def test_the_node_with_the_lowest_and_fewest_victims_is_taken(
    other: list[PlacedPod], better: str
) -> None:
    """And of these the one whose victims began last."""
    own = [here("own", 8, 5, started_at=EARLY)]
    assert set(victims(pod(8), a=own, b=other)) == {better}


def test_equally_good_nodes_are_all_named() -> None:
    assert set(victims(pod(8), b=[here("x", 8)], a=[here("y", 8)])) == {"a", "b"}


def test_a_pod_that_never_preempts_deletes_nothing() -> None:
    assert victims(pod(2, preemptionPolicy="Never"), a=[here("low", 8)]) == {}
    assert victims(pod(2, preemptionPolicy="PreemptLowerPriority"), a=[here("low", 8)]) != {}


def test_nobody_goes_where_another_node_has_room() -> None:
    assert not expected(pod(2), True, a=[here("low", 8)]).choices


def test_without_a_priority_nothing_is_claimed() -> None:
    assert not expected(pod(2, None), a=[here("low", 8)]).is_known
    assert expected(pod(9, None), a=[here("low", 8)]).is_known  # no node is large enough


def test_a_nominated_pod_holds_its_room_against_those_that_are_not_above_it() -> None:
    nominated = here("nominated", 6, 50, nominated=True)
    held = {
        priority: load_for(pod(2, priority), [here("bound", 1), nominated]).requests.get(GPU, 0)
        for priority in (49, 50, 51)
    }
    assert held == {49: 7, 50: 7, 51: 1}


def test_room_that_is_held_is_named_with_its_holder() -> None:
    nominated = here("nominated", 6, 100, nominated=True)
    assert expected(pod(4), a=[nominated]).reserved == {"a": ("nominated",)}
    assert expected(pod(4), a=[nominated, here("bound", 6)]).reserved == {}


def test_a_nominated_pod_is_no_victim() -> None:
    nominated = here("nominated", 4, 100, nominated=True)
    assert victims(pod(4), a=[nominated, here("low", 4)]) == {"a": ["low"]}
    assert victims(pod(5), a=[nominated, here("low", 4)]) == {}


def test_while_its_victims_end_a_pod_preempts_no_others() -> None:
    ending = here("ending", 8, preempted=True)
    found = expected(pod(8, nominated="a"), a=[ending], b=[here("other", 8)])
    assert (found.ending, found.choices) == (("ending",), ())
    drained = expected(pod(8, nominated="a"), a=[here("running", 8)])
    assert (drained.ending, len(drained.choices)) == ((), 1)


@pytest.mark.parametrize(
    ("spec", "status", "room"),
    [
        ({"nodeName": "a"}, {}, ("a", False)),
        ({}, {"nominatedNodeName": "b"}, ("b", True)),
        ({"nodeName": "a"}, {"nominatedNodeName": "b"}, ("a", False)),
        ({"nodeName": "a"}, {"phase": "Failed"}, None),
        ({}, {}, None),
    ],
)
def test_a_pod_has_room_where_it_is_bound_or_nominated(
    spec: dict[str, Any], status: dict[str, Any], room: tuple[str, bool] | None
) -> None:
    found = placed_pod(Pod.from_object({"spec": spec, "status": status}))
    assert (None if found is None else (found.node, found.nominated)) == room


@pytest.mark.parametrize(
    ("reason", "is_preempted"), [("PreemptionByScheduler", True), ("X", False)]
)
def test_only_pods_that_a_scheduler_deleted_are_preempted(reason: str, is_preempted: bool) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    status = {"conditions": [condition]}
    deleted = {"metadata": {"deletionTimestamp": LATE}, "status": status}
    assert Pod.from_object(deleted).is_preempted is is_preempted
    assert not Pod.from_object({"status": status}).is_preempted


def test_a_manifest_gets_the_priority_of_its_class() -> None:
    classes = [
        PriorityClass.from_object(each)
        for each in (
            {"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"},
            {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True},
        )
    ]

    def given(listed: list[PriorityClass], **spec: Any) -> tuple[int | None, str]:
        found = with_priority(pod(1, spec.pop("priority", None), **spec).spec, listed)
        return found.priority, found.preemption_policy

    assert given(classes, priorityClassName="high") == (9, "Never")
    assert given(classes) == (3, "")
    assert given([]) == (0, "")
    assert given(classes, priorityClassName="misspelt") == (None, "")
    assert given(classes, priority=7) == (7, "")
