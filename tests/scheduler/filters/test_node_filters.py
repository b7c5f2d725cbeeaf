# SPDX-License-Identifier: Apache-2.0
"""Nodes are left out as kube-scheduler leaves them out, by the first filter and in its words."""

from __future__ import annotations

from typing import Any

import pytest

from base.errors import BadInput
from kube.objects.node import Node
from kube.objects.pod import Pod
from scheduler.filters.node_filters import NodeFilter, check_constraints, filtered
from scheduler.filters.resource_fit import NodeLoad

GPU = "nvidia.com/gpu"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
NAMES = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, gpus: int = 8, **spec: Any) -> Node:
    found = {
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": spec,
        "status": {"allocatable": {"pods": "10", GPU: str(gpus)}},
    }
    return Node.from_object(found)


def pod(gpus: int = 2, **spec: Any) -> Pod:
    container = {"resources": {"limits": {GPU: str(gpus)}}}
    return Pod.from_object({"spec": {"containers": [container], **spec}})


def why(asked: Pod, *nodes: Node, **held: int) -> dict[str, tuple[NodeFilter, str]]:
    loads = {name: NodeLoad(pods=1, requests={GPU: gpus}) for name, gpus in held.items()}
    return {each.node: (each.filter, each.why) for each in filtered(asked, nodes, loads).left_out}


def affine(*names: str) -> dict[str, Any]:
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        for name in names
    ]
    return {"nodeAffinity": {NAMES: {"nodeSelectorTerms": terms}}}


def test_nodes_that_pass_are_candidates_by_name() -> None:
    found = filtered(pod(), [node("b"), node("a")], {})
    assert (found.candidates, found.left_out) == (("a", "b"), ())


def test_every_filter_says_why_in_the_schedulers_words() -> None:
    asked = pod(nodeSelector={"name": "a"})
    cordoned, tainted = node("c", unschedulable=True), node("t", taints=[TAINT])
    assert why(asked, node("a"), node("b"), cordoned, tainted) == {
        "b": (NodeFilter.AFFINITY, "node(s) didn't match Pod's node affinity/selector"),
        "c": (NodeFilter.UNSCHEDULABLE, "node(s) were unschedulable"),
        "t": (NodeFilter.TAINTS, "node(s) had untolerated taint {team: a}"),
    }
    assert why(pod(nodeName="a"), node("a"), node("b")) == {
        "b": (NodeFilter.NODE_NAME, "node(s) didn't match the requested node name")
    }


def test_too_few_gpus_are_named_with_what_there_is() -> None:
    found = filtered(pod(4), [node("a"), node("b")], {"a": NodeLoad(pods=1, requests={GPU: 5})})
    (left,) = found.left_out
    assert found.candidates == ("b",)
    assert left.filter is NodeFilter.RESOURCES
    assert left.reasons == ("Insufficient nvidia.com/gpu",)
    assert left.why == "Insufficient nvidia.com/gpu (4 requested, 3 of 8 left)"


def test_all_resources_that_are_short_are_reasons() -> None:
    full = NodeLoad(pods=10, requests={GPU: 8})
    (left,) = filtered(pod(), [node("a")], {"a": full}).left_out
    assert left.reasons == ("Too many pods", "Insufficient nvidia.com/gpu")


@pytest.mark.parametrize(
    ("spec", "of_node", "first"),
    [
        (
            {"nodeName": "b"},
            {"unschedulable": True, "taints": [TAINT]},
            NodeFilter.NODE_NAME,
        ),
        ({}, {"unschedulable": True, "taints": [TAINT]}, NodeFilter.UNSCHEDULABLE),
        ({"nodeSelector": {"x": "y"}}, {"taints": [TAINT]}, NodeFilter.TAINTS),
        ({"nodeSelector": {"x": "y"}}, {}, NodeFilter.AFFINITY),
        ({"affinity": affine("b", "c")}, {"taints": [TAINT]}, NodeFilter.AFFINITY),
    ],
)
def test_the_first_filter_that_leaves_a_node_out_is_the_reason(
    spec: dict[str, Any], of_node: dict[str, Any], first: NodeFilter
) -> None:
    """All of them are short of GPUs as well."""
    found = why(pod(8, **spec), node("a", **of_node), a=1)
    assert found["a"][0] is first


def test_a_pod_that_tolerates_the_cordon_may_run_on_a_cordoned_node() -> None:
    key = "node.kubernetes.io/unschedulable"
    for toleration in ({"key": key, "operator": "Exists"}, {"operator": "Exists"}):
        assert not why(pod(tolerations=[toleration]), node("a", unschedulable=True))
    other = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    assert why(pod(tolerations=[other]), node("a", unschedulable=True))


def test_a_node_that_a_term_names_is_still_filtered() -> None:
    asked = pod(affinity=affine("a", "b"))
    found = why(asked, node("a"), node("b", taints=[TAINT]), node("c"))
    assert {name: filter_ for name, (filter_, _) in found.items()} == {
        "b": NodeFilter.TAINTS,
        "c": NodeFilter.AFFINITY,
    }


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"tolerations": [{"key": "a", "effect": "No"}]}, "spec.tolerations[0].effect is 'No'"),
        ({"affinity": {"nodeAffinity": {NAMES: {}}}}, "nodeSelectorTerms is empty"),
        ({"overhead": {"cpu": "x"}}, "spec.overhead.cpu: 'x' is no quantity"),
    ],
)
def test_a_check_names_the_first_key_that_makes_no_sense(spec: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadInput) as error:
        check_constraints(pod(**spec))
    assert fault in str(error.value)


def test_a_good_pod_passes_the_check() -> None:
    check_constraints(
        pod(affinity=affine("a"), tolerations=[{"operator": "Exists"}], nodeSelector={"a": "b"})
    )
