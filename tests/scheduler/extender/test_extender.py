# SPDX-License-Identifier: Apache-2.0
"""What the extender answers to whole requests, whatever the fleet and the pod are like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from base.errors import BadInput
from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.pod_gpu_request import Rules
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.placement_aims import ProductOrder
from tests.scheduler import fleets
from tests.scheduler.calls import body, encoded, pod, whole_nodes
from tests.scheduler.extenders import cache

PAIR_USED = {"used": 0b11}
HALF_USED = {"used": 0b1}


def extender(rules: Rules | None = None, **nodes: Any) -> Extender:
    """Of a fleet that says this."""
    fleet, tables = cache(**nodes)
    return Extender(fleet, tables, rules or Rules(), ExtenderMetrics("1.0"))


def scores(answer: bytes) -> dict[str, int]:
    return {entry["Host"]: entry["Score"] for entry in json.loads(answer)}


def test_a_single_gpu_goes_where_a_pair_is_broken_already() -> None:
    told = scores(extender(a={}, b=HALF_USED).prioritize(body(Pod=pod(1))))
    assert told["b"] == 10 > told["a"]


def test_a_pair_goes_where_one_is_left() -> None:
    """a has two free GPUs that are not linked, and its name would come first."""
    told = scores(
        extender(a={"used": 0b11111010}, b={"used": 0b11111100}).prioritize(body(Pod=pod(2)))
    )
    assert told["b"] == 10 > told["a"] > 0


@pytest.mark.parametrize(("order", "best"), [("fastest", "h"), ("cheapest", "v")])
def test_the_order_of_products_is_a_setting(order: str, best: str) -> None:
    tables = ScoreTables()
    fleet = NodeCache(tables, clock=lambda: 0.0)
    for name, machine in (("v", "dgx1-v100"), ("h", "hgx-h100")):
        fleet.node(name, topology=fleets.topology(machine))
        fleet.lease(name, fleets.lease(of=fleets.gen(machine), used=0b1), 0.0)
    for source in CacheSource:
        fleet.mark_synced(source)
    told = Extender(fleet, tables, Rules(), ExtenderMetrics("1.0"), ProductOrder(order))
    assert scores(told.prioritize(body(["v", "h"], Pod=pod(2))))[best] == 10


def test_nodes_that_nothing_is_known_of_score_nothing() -> None:
    answer = extender(a=PAIR_USED, b={"text": "{"}, c={"of": "0" * 10}, d={"holder": ""})
    told = scores(answer.prioritize(body(["a", "b", "c", "d", "e"])))
    assert told == {"a": 10, "b": 0, "c": 0, "d": 0, "e": 0}


def test_where_nothing_is_known_of_any_node_nothing_is_said() -> None:
    assert extender(a={"text": "{"}).prioritize(body()) == b"[]"


@pytest.mark.parametrize("unread", list(CacheSource))
def test_until_all_is_read_nothing_is_said(unread: CacheSource) -> None:
    """Nodes that were read first would be preferred."""
    fleet, tables = cache(unread, a=PAIR_USED, b={"used": 0xFF})
    made = Extender(fleet, tables, Rules(), ExtenderMetrics("1.0"))
    assert not made.is_ready
    assert made.prioritize(body()) == b"[]"
    fleet.mark_synced(unread)
    assert made.is_ready
    assert scores(made.prioritize(body())) == {"a": 10, "b": 0}


def test_whole_nodes_are_ranked_as_names_are() -> None:
    made = extender(a=PAIR_USED, b={"used": 0xFF})
    whole = encoded({"Pod": pod(), "Nodes": whole_nodes("ab"), "NodeNames": None})
    assert made.prioritize(whole) == made.prioritize(body())


def container(**limits: str) -> dict[str, Any]:
    return {"resources": {"limits": limits}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None},
        {"containers": []},
        {"containers": [{}]},
        {"containers": [container(cpu="1")]},
        {"containers": [container(**{"nvidia.com/gpu.shared": "2"})]},
        {"containers": [container(**{"nvidia.com/mig-1g.10gb": "1"})]},
        {"containers": [container(**{"nvidia.com/gpu": "0"})]},
        {"containers": [container(**{"nvidia.com/gpu": "2k"})]},
        {"containers": [{}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]},
    ],
)
def test_pods_that_ask_for_no_whole_gpu_are_left_alone(spec: object) -> None:
    made = extender(a=PAIR_USED, b={})
    assert made.prioritize(body(Pod={"metadata": {}, "spec": spec})) == b"[]"


def test_another_resource_may_be_the_gpus() -> None:
    made = extender(Rules(gpu="nvidia.com/a100"), a=PAIR_USED, b={"used": 0xFF})
    asked = {"spec": {"containers": [container(**{"nvidia.com/a100": "2"})]}}
    assert scores(made.prioritize(body(Pod=asked)))["a"] == 10
    assert made.prioritize(body()) == b"[]"


@pytest.mark.parametrize("gpus", [9, 999_999_999])
def test_more_gpus_than_any_node_has_are_no_fault(gpus: int) -> None:
    assert extender(a={}, b={}).prioritize(body(Pod=pod(gpus))) == b"[]"


def test_the_same_request_has_the_same_answer() -> None:
    made = extender(a=PAIR_USED, b={}, c=HALF_USED)
    assert len({made.prioritize(body("abc")) for _ in range(3)}) == 1


def test_scores_need_nodes() -> None:
    with pytest.raises(BadInput, match="`NodeNames` and `Nodes` are missing"):
        extender(a={}).prioritize(body(None))


def test_every_node_is_explained_where_none_is_named() -> None:
    why = json.loads(extender(b=PAIR_USED, a={}).explain(body(None)))
    assert {node["node"] for node in why["nodes"]} == {"a", "b"}
    assert why["pod"] == "default/train"


def test_explanations_tell_what_the_scheduler_is_told() -> None:
    made = extender(a=PAIR_USED, b={}, c={"text": "{"})
    why = json.loads(made.explain(body("abc")))
    assert {node["node"]: node["rank"] for node in why["nodes"]} == scores(
        made.prioritize(body("abc"))
    )


def test_a_pod_without_gpus_is_explained_by_nothing() -> None:
    why = json.loads(extender(a={}).explain(body(Pod={"metadata": {"name": "web"}})))
    assert (why["containers"], why["nodes"]) == ([], [])


def test_a_node_is_shown_with_pods_that_its_state_does_not_name_yet() -> None:
    fleet, tables = cache(a={"pods": {"old": 0b11}})
    fleet.pod(fleets.pod("old", 2), "a", bound_at="1")
    fleet.pod(fleets.pod("new", 2), "a", bound_at="2")
    made = Extender(fleet, tables, Rules(), ExtenderMetrics("1.0")).node("a")
    assert made is not None
    shown = json.loads(made)
    assert shown["used"] == [0, 1]
    assert len(shown["free"]) == 4
    old, new = shown["pods"]
    assert (old["pod"], old["gpus"], old["expected"]) == ("default/old", [0, 1], [])
    assert new["gpus"] is None
    assert sum(chance["odds"] for chance in new["expected"]) == pytest.approx(1)


def test_all_that_is_known_of_a_node_is_shown() -> None:
    now = [0.0]
    fleet = NodeCache(ScoreTables(), clock=lambda: now[0])
    fleet.node("a", topology=fleets.topology(), clique="c.1")
    fleet.lease("a", fleets.lease(pods={"old": 0b11}, ok=0x7F, seq=7), 0.0)
    fleet.pod(fleets.pod("old", 2), "a")
    now[0] = 2.5
    made = Extender(fleet, ScoreTables(), Rules(), ExtenderMetrics("1.0")).node("a")
    assert made is not None
    assert json.loads(made) == {
        "node": "a",
        "reason": None,
        "why": "it is scored",
        "gen": fleets.gen(),
        "clique": "c.1",
        "sure": True,
        "free": [2, 3, 4, 5, 6],
        "ok": [0, 1, 2, 3, 4, 5, 6],
        "used": [0, 1],
        "seq": 7,
        "heard_seconds": 2.5,
        "pods": [{"pod": "default/old", "gpus": [0, 1], "expected": []}],
    }


def test_of_a_node_without_a_view_what_is_left_is_shown() -> None:
    fleet, tables = cache()
    fleet.node("a", topology="{", clique="c.1")
    made = Extender(fleet, tables, Rules(), ExtenderMetrics("1.0")).node("a")
    assert made is not None
    nothing = dict.fromkeys(("gen", "clique", "free", "ok", "used", "seq", "heard_seconds"))
    assert json.loads(made) == nothing | {
        "node": "a",
        "reason": "bad_topology",
        "why": "annotation gpuscape.io/topology is damaged",
        "sure": False,
        "pods": [],
    }


def test_of_a_pod_that_is_expected_the_likelier_set_is_shown_first() -> None:
    fleet, tables = cache(a={"used": 0b11100000})
    fleet.pod(fleets.pod("new", 1, 2), "a")
    made = Extender(fleet, tables, Rules(), ExtenderMetrics("1.0")).node("a")
    assert made is not None
    (pod_shown,) = json.loads(made)["pods"]
    odds = [chance["odds"] for chance in pod_shown["expected"]]
    assert odds == sorted(odds, reverse=True)
    assert odds[0] > odds[-1]


def test_a_node_that_was_never_heard_of_is_not_shown() -> None:
    assert extender(a={}).node("b") is None
