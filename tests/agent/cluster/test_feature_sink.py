# SPDX-License-Identifier: Apache-2.0
"""Our labels in the NodeFeature: right in the end, few requests, never another's object."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agent.cluster import node_feature
from api import keys
from kube.api import NODE_FEATURES, NODES, Object
from kube.api_errors import AdmissionRefused, ApiError, Busy, Forbidden, NotFound, Unreachable
from labelers.decision import Decisions, Value
from tests.agent.cluster.sinks import (
    FEATURE,
    GONE,
    NAME,
    NAMESPACE,
    NOT_KNOWN,
    KilledError,
    World,
    every,
    values,
)
from tests.fakes.api import Call

HOUR = 3600.0
COUNT, MODE = "nvidia.com/gpu.count", "nvidia.com/gpu.mode"
EIGHT = values(gpu_count="8", gpu_mode="compute")
SEVEN = values(gpu_count="7", gpu_mode="compute")
GFD: Object = {
    "metadata": {
        "name": FEATURE,
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gfd", "uid": "d-1"},
            {"apiVersion": "v1", "kind": "Pod", "name": "gfd-x", "uid": "p-1"},
        ],
    },
    "spec": {"labels": {COUNT: "4"}},
}


def published(world: World) -> dict[str, str]:
    """The labels in our NodeFeature."""
    labels: dict[str, str] = feature(world)["spec"]["labels"]
    return labels


def feature(world: World) -> dict[str, Any]:
    """The NodeFeature."""
    return world.server.get(NODE_FEATURES, FEATURE, NAMESPACE)


def settled() -> World:
    """A NodeFeature that has said EIGHT for long."""
    world = World()
    world.feature()
    world.set_desired(EIGHT)
    world.run(600)
    assert published(world) == {COUNT: "8", MODE: "compute"}
    world.api.calls.clear()
    return world


def verbs(world: World) -> list[str]:
    """What was asked."""
    return [call.verb for call in world.api.calls]


def edit(world: World, body: Object) -> None:
    """Somebody writes our NodeFeature."""
    world.server.patch(NODE_FEATURES, FEATURE, body, NAMESPACE, manager="kubectl-edit")


def master(world: World) -> None:
    """nfd-master, as far as it matters: the Node has the labels of our NodeFeature."""

    def tick(_: float) -> float:
        try:
            labels = published(world)
        except NotFound:
            labels = {}
        there = world.meta()["labels"]
        gone = dict.fromkeys(key for key in (COUNT, MODE) if key in there)
        world.server.patch(NODES, NAME, {"metadata": {"labels": {**gone, **labels}}})
        return 1

    world.also(master=tick)


def test_the_object_is_made_at_once_and_belongs_to_the_node() -> None:
    world = World()
    world.feature()
    world.set_desired(EIGHT)

    world.run(1)

    made = feature(world)
    expected = node_feature.new_node_feature(
        {"metadata": world.meta()}, {COUNT: "8", MODE: "compute"}
    )
    assert made["spec"] == expected["spec"]
    assert made["metadata"]["labels"] == expected["metadata"]["labels"]
    assert made["metadata"]["ownerReferences"] == expected["metadata"]["ownerReferences"]
    assert verbs(world) == ["get", "create"]


def test_nothing_is_made_before_the_node_is_seen_or_where_there_is_nothing_to_say() -> None:
    world = World(node=False)
    world.feature()
    world.set_desired(EIGHT)
    world.run(HOUR)
    without_node = verbs(world)
    world.make_node()
    world.set_desired({COUNT: NOT_KNOWN, MODE: GONE})
    world.run(60)

    assert without_node == []
    assert verbs(world) == ["get"]


def test_a_restarted_agent_that_finds_all_well_reads_once() -> None:
    world = settled()
    world.start()
    world.feature()
    world.set_desired(EIGHT)

    world.run(1700)

    assert verbs(world) == ["get"]


def test_a_steady_hour_has_no_write() -> None:
    world = settled()

    def again(now: float) -> float:
        world.set_desired(dict(EIGHT))
        world.beat(now)
        return 10

    world.also(again=again)
    world.run(HOUR)

    assert set(verbs(world)) == {"get"}
    assert len(verbs(world)) <= 2


def test_one_change_is_one_small_patch() -> None:
    world = settled()
    world.set_desired({COUNT: Value(text="7"), MODE: NOT_KNOWN})

    world.run(60)

    (call,) = world.api.calls
    assert call.body == {"spec": {"labels": {COUNT: "7"}}}
    assert published(world) == {COUNT: "7", MODE: "compute"}


def test_a_label_goes_only_when_its_fact_is_known_to_be_gone() -> None:
    world = settled()
    world.set_desired({COUNT: GONE, MODE: NOT_KNOWN})

    world.run(60)

    assert published(world) == {MODE: "compute"}


def test_health_is_written_at_once() -> None:
    world = settled()
    world.set_desired({**EIGHT, keys.HEALTH: Value(text="unhealthy")})

    world.run(0.1)

    assert published(world)[keys.HEALTH] == "unhealthy"


def test_whatever_somebody_edits_is_put_right_within_hours() -> None:
    world = settled()
    edit(
        world,
        {
            "metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "node-b", "app": "x"}},
            "spec": {
                "labels": {COUNT: "99", MODE: None, "zone": "b"},
                "features": {"flags": {"x": {}}},
            },
        },
    )

    world.run(1.5 * HOUR + 60)

    assert feature(world)["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NAME}
    assert published(world) == {COUNT: "8", MODE: "compute"}
    assert feature(world)["spec"]["features"]["flags"] == {}
    assert world.writes() == 1


def test_a_deleted_object_is_made_anew_as_soon_as_the_node_loses_its_labels() -> None:
    world = settled()
    master(world)
    world.run(60)
    world.server.delete(NODE_FEATURES, FEATURE, NAMESPACE)

    world.run(30)

    assert published(world) == {COUNT: "8", MODE: "compute"}
    assert verbs(world) == ["get", "create"]


def test_labels_that_never_reach_the_node_cost_no_request() -> None:
    """As where nfd-master does not run, or filters them."""
    world = settled()
    world.also(kubelet=every(5, world.beat))

    world.run(1100)

    assert verbs(world) == []


def test_a_label_that_we_take_away_ourselves_is_no_reason_to_look() -> None:
    world = settled()
    master(world)
    world.run(60)
    world.set_desired({**EIGHT, MODE: GONE})

    world.run(300)

    assert world.labels() == {"gpu.count": "8"}
    assert verbs(world) == ["patch"]


def test_where_the_kind_is_unknown_one_line_tells_what_to_install(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.server.unserve(NODE_FEATURES)
    world.feature()
    world.set_desired(EIGHT)
    with caplog.at_level(logging.WARNING):
        world.run(HOUR)
    tries = world.writes()
    world.server.serve(NODE_FEATURES)
    world.run(600)

    (line,) = caplog.records
    assert "install Node Feature Discovery" in line.__dict__["why"]
    assert "Node sink" in line.__dict__["why"]
    assert [reason for reason, _ in world.said.events] == ["NotWritten"]
    assert tries <= HOUR / 150 + 1
    assert published(world) == {COUNT: "8", MODE: "compute"}


def test_another_ones_object_of_that_name_is_left_alone_and_named() -> None:
    world = World()
    world.server.create(NODE_FEATURES, GFD, NAMESPACE, manager="gpu-feature-discovery")
    world.feature()
    world.set_desired(EIGHT)
    world.run(5 * HOUR)
    writes = world.writes()
    world.server.delete(NODE_FEATURES, FEATURE, NAMESPACE)
    world.run(2 * HOUR)

    assert writes == 0
    ((reason, note),) = world.said.events
    assert reason == "KeysLeftAlone"
    assert FEATURE in note
    assert published(world) == {COUNT: "8", MODE: "compute"}
    assert world.said.left_alone == [1, 0]


def test_one_in_another_namespace_is_no_hindrance() -> None:
    world = World()
    world.server.add_namespace("gpu-operator")
    world.server.create(NODE_FEATURES, GFD, "gpu-operator", manager="gpu-feature-discovery")
    world.feature()
    world.set_desired(EIGHT)

    world.run(10)

    assert published(world) == {COUNT: "8", MODE: "compute"}
    assert world.server.get(NODE_FEATURES, FEATURE, "gpu-operator")["spec"] == GFD["spec"]


def test_with_the_node_made_anew_the_object_belongs_to_the_new_one() -> None:
    world = settled()
    world.delete_node()
    world.server.delete(NODE_FEATURES, FEATURE, NAMESPACE)  # as the garbage collector does
    world.run(60)
    world.make_node()

    world.run(2)

    (owner,) = feature(world)["metadata"]["ownerReferences"]
    assert owner["uid"] == world.meta()["uid"]


def test_nothing_is_made_for_a_node_that_is_gone() -> None:
    world = settled()
    world.delete_node()
    world.server.delete(NODE_FEATURES, FEATURE, NAMESPACE)

    world.run(3 * HOUR)

    assert verbs(world) == []


def test_one_that_the_garbage_collector_has_yet_to_take_is_made_anew_afterwards() -> None:
    """Its owner is not written over: that would take the right to delete in some clusters."""
    world = settled()
    world.delete_node()
    world.make_node()
    world.set_desired(SEVEN)
    world.run(100)
    meanwhile = feature(world)
    world.server.delete(NODE_FEATURES, FEATURE, NAMESPACE)
    world.run(120)

    assert meanwhile["spec"]["labels"] == {COUNT: "7", MODE: "compute"}
    assert meanwhile["metadata"]["ownerReferences"][0]["uid"] != world.meta()["uid"]
    assert feature(world)["metadata"]["ownerReferences"][0]["uid"] == world.meta()["uid"]


def test_while_the_garbage_collector_takes_its_time_the_object_is_read_once_a_minute() -> None:
    world = settled()
    world.delete_node()
    world.make_node()
    world.run(300)

    assert 4 <= verbs(world).count("get") <= 7


def test_after_a_label_that_is_refused_the_rest_follows_at_once() -> None:
    world = World()
    sink = world.feature()
    world.api.refuse("theirs", lambda call: MODE in (call.body or {})["spec"]["labels"])
    world.set_desired({**EIGHT, **values(gpu_product="H200")})
    world.deliver()
    waits: list[float] = []
    while not waits or waits[-1] == 0.0:
        waits.append(sink.tick(world.now))
    assert len(waits) > 2  # the search has several writes, one after the other
    assert waits[-1] > 0.0


def test_nothing_is_asked_while_writing_is_not_allowed() -> None:
    world = World()
    world.may_write = False
    world.feature()
    world.set_desired(EIGHT)
    world.run(HOUR)
    before = verbs(world)
    world.may_write = True
    world.run(10)

    assert before == []
    assert published(world) == {COUNT: "8", MODE: "compute"}


@pytest.mark.parametrize("error", [Busy("429", retry_after_seconds=10), Unreachable("refused")])
@pytest.mark.parametrize("verb", ["get", "patch", "*"])
def test_an_hour_of_failures_is_no_hot_loop(error: ApiError, verb: str) -> None:
    world = settled()
    world.also(kubelet=every(5, world.beat))  # the Node's news trigger every look
    world.api.fail(verb, error, times=None)
    world.set_desired(SEVEN)
    world.run(HOUR)
    tries = len(world.api.calls)
    world.api.heal()
    world.run(200)

    assert tries <= 2 * 65
    assert published(world) == {COUNT: "7", MODE: "compute"}


@pytest.mark.parametrize("error", [Forbidden("403: no"), AdmissionRefused("422: no", policy="p")])
def test_what_cannot_help_is_said_once_and_tried_seldom(error: ApiError) -> None:
    world = settled()
    world.api.fail("patch", error, times=None)
    world.set_desired(SEVEN)

    world.run(HOUR)

    assert 3 <= world.writes() <= HOUR / 150
    assert world.said.events == [("KeysRefused", f"{COUNT}: {error}")]
    assert world.said.refused == [0, 1]


def test_a_label_that_a_policy_refuses_is_left_out_of_the_object_and_tried_seldom() -> None:
    world = World()
    world.feature()
    world.api.refuse("theirs", lambda call: MODE in (call.body or {})["spec"]["labels"])
    world.set_desired({**EIGHT, **values(gpu_product="H200", gpu_family="hopper")})

    world.run(HOUR)
    present = published(world)
    world.api.heal()
    world.run(HOUR)

    assert present.keys() == {COUNT, "nvidia.com/gpu.product", "nvidia.com/gpu.family"}
    assert published(world)[MODE] == "compute"
    assert world.writes() <= 12
    assert world.said.refused == [0, 1, 0]


def test_a_label_that_a_policy_refuses_keeps_the_value_it_had() -> None:
    world = settled()
    world.api.refuse("theirs", lambda call: COUNT in (call.body or {})["spec"]["labels"])
    world.set_desired({**SEVEN, **values(gpu_product="H200")})

    world.run(HOUR)

    assert published(world) == {COUNT: "8", MODE: "compute", "nvidia.com/gpu.product": "H200"}


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_a_lost_reply_does_no_harm(verb: str) -> None:
    world = World() if verb == "create" else settled()
    if verb == "create":
        world.feature()
    world.api.lose_reply(verb)
    world.set_desired(SEVEN)

    world.run(HOUR / 2)

    assert published(world) == {COUNT: "7", MODE: "compute"}
    assert world.writes() == 1


def test_an_object_deleted_just_before_the_patch_is_made_anew() -> None:
    world = settled()

    def delete(_: Call) -> None:
        world.server.delete(NODE_FEATURES, FEATURE, NAMESPACE)

    world.api.before("patch", delete, times=1)
    world.set_desired(SEVEN)
    world.run(120)

    assert published(world) == {COUNT: "7", MODE: "compute"}


def kill(_: Call) -> None:
    raise KilledError


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", range(6))
def test_killed_at_any_request_and_started_again_the_labels_end_right(moment: str, at: int) -> None:
    world = World()
    world.feature()
    left = [at]

    def meet(call: Call) -> None:
        if left[0] == 0:
            left[0] = -1
            kill(call)
        left[0] -= 1

    (world.api.before if moment == "before" else world.api.after)("*", meet)
    killed = 0
    steps: tuple[Decisions, ...] = (EIGHT, SEVEN, {COUNT: NOT_KNOWN, MODE: GONE})
    for decided in (*steps, {COUNT: NOT_KNOWN}):
        world.set_desired(decided)
        try:
            world.run(HOUR)
        except KilledError:
            killed += 1
            world.start()
            world.feature()
            world.set_desired(decided)
            world.run(HOUR)

    assert killed == 1
    assert published(world) == {COUNT: "7"}
