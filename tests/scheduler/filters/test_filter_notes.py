# SPDX-License-Identifier: Apache-2.0
"""What the filters do not cover is said, and only of pods that use it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube.objects.pod import Pod
from scheduler.filters.filter_notes import NO_CANDIDATE, ONE_CANDIDATE, PRIORITY_UNKNOWN, notes
from scheduler.filters.node_filters import FilteredNodes, LeftOutNode, NodeFilter
from scheduler.filters.preemption import (
    NO_PREEMPTION,
    NodePreemption,
    PlacedPod,
    PreemptionOutlook,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def divided(candidates: int, left_out: int = 0) -> FilteredNodes:
    out = LeftOutNode(node="x", filter=NodeFilter.TAINTS, reasons=(), why="")
    return FilteredNodes(
        candidates=tuple(f"n{at}" for at in range(candidates)), left_out=(out,) * left_out
    )


def said(
    candidates: int = 2, left_out: int = 0, *, outlook: Any = NO_PREEMPTION, **spec: Any
) -> tuple[str, ...]:
    status = {"nominatedNodeName": spec.pop("nominated", None)}
    pod = Pod.from_object({"spec": spec, "status": status})
    return tuple(notes(pod, replace(divided(candidates, left_out), outlook=outlook)))


def preemption(node: str, *victims: str) -> NodePreemption:
    pods = [PlacedPod(name=victim, node=node, requests={}, priority=7) for victim in victims]
    return NodePreemption(node=node, victims=tuple(pods))


def test_of_a_plain_pod_with_several_candidates_nothing_is_said() -> None:
    plain: dict[str, Any] = {
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {}}],
        "containers": [{"ports": [{"containerPort": 80}]}],
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
        "affinity": {"podAffinity": {PREFERRED: [{}]}, "podAntiAffinity": {REQUIRED: []}},
        "tolerations": [{"operator": "Exists"}],
    }
    assert said(**plain) == ()


def test_one_candidate_and_none_are_said_for_no_extender_is_asked_then() -> None:
    assert said(1) == (ONE_CANDIDATE,)
    assert said(0, 3) == (NO_CANDIDATE,)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, "inter-pod affinity"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, "inter-pod anti-affinity"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topology spread constraints"),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "b"}}]}, "volumes"),
        ({"volumes": [{"name": "a", "ephemeral": {}}]}, "volumes"),
        ({"resourceClaims": [{"name": "a"}]}, "resource claims"),
        ({"containers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]}, "host ports"),
        ({"initContainers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]}, "host ports"),
    ],
)
def test_what_a_pod_uses_that_is_not_covered_is_named(spec: dict[str, Any], words: str) -> None:
    assert said(**spec) == (
        f"The scheduler may leave out more of these nodes. Not evaluated here: {words}.",
    )


def test_all_that_is_not_covered_stands_in_one_line() -> None:
    (line,) = said(
        affinity={"podAffinity": {REQUIRED: [{}]}, "podAntiAffinity": {REQUIRED: [{}]}},
        topologySpreadConstraints=[{}],
        volumes=[{"persistentVolumeClaim": {}}, {"csi": {}}],
        resourceClaims=[{}],
    )
    assert line.endswith(
        "here: inter-pod affinity, inter-pod anti-affinity, topology spread constraints, volumes, "
        "resource claims."
    )


def test_gates_and_nominations_are_said() -> None:
    (gate,) = said(schedulingGates=[{"name": "kueue"}])
    assert "scheduling gate" in gate
    (nominated,) = said(nominated="n1")
    assert "Preemption makes room on n1" in nominated


def test_what_preemption_does_is_said_in_place_of_waiting() -> None:
    choices = (preemption("n1", "a/x", "a/y"), preemption("n2", "a/z"))
    assert said(0, 2, outlook=PreemptionOutlook(choices=choices, reserved={})) == (
        "No node is left, so the scheduler preempts: it deletes a/x (priority 7), "
        "a/y (priority 7) on n1, or pods on n2. No extender is asked.",
    )
    ending = PreemptionOutlook(ending=("a/x",), reserved={})
    assert said(0, 2, nominated="n1", outlook=ending) == (
        "No node is left now. Preemption makes room on n1: the pod waits for a/x.",
    )
    unknown = PreemptionOutlook(is_known=False, reserved={})
    assert said(0, 2, outlook=unknown) == (PRIORITY_UNKNOWN,)


def test_reserved_room_is_said_of_pods_with_candidates_too() -> None:
    reserved = PreemptionOutlook(reserved={"n2": ("a/x", "a/y")})
    line = "Room on n2 is reserved for a/x, a/y: nominated, and not bound yet."
    assert said(2, 1, outlook=reserved) == (line,)
    assert said(1, 1, outlook=reserved) == (ONE_CANDIDATE, line)
    assert said(0, 1, outlook=reserved) == (NO_CANDIDATE, line)


def test_a_term_that_can_match_nothing_is_said() -> None:
    term = {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["many"]}]}
    required = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    first, second = said(0, 2, affinity=required)
    assert first == NO_CANDIDATE
    assert "nodeSelectorTerms[0].matchExpressions[0].values" in second
    assert second.endswith("No node matches its term.")


@pytest.mark.parametrize(
    ("candidates", "left_out", "looked_at"),
    [
        (99, 0, None),
        (100, 0, None),
        (100, 900, None),
        (101, 0, 100),
        (500, 0, 230),
        (400, 100, 230),
        (230, 270, None),
        (5000, 0, 500),
        (20000, 0, 1000),
    ],
)
def test_a_sample_is_said_where_the_scheduler_takes_one(
    candidates: int, left_out: int, looked_at: int | None
) -> None:
    """Source of the numbers: numFeasibleNodesToFind of kube-scheduler."""
    found = said(candidates, left_out)
    if looked_at is None:
        assert found == ()
    else:
        (line,) = found
        assert f"stops at about {looked_at} of these {candidates} nodes" in line
