# SPDX-License-Identifier: Apache-2.0
"""Our labels on the Node: right in the end, with few writes, whatever goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from agent.cluster.refused_keys import MOST_REFUSED
from api import keys
from api.keys import ARCHITECTURE, ATTRIBUTES, BASE
from api.names import FEATURE_LABELS
from kube.api import NODES, PODS
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    Busy,
    Forbidden,
    Invalid,
    Unauthorized,
    Unreachable,
)
from labelers.annotations import node_annotations
from labelers.compose import decide_labels
from labelers.decision import Decisions, Value
from labelers.label_settings import LabelSettings
from tests import build
from tests.agent.cluster.sinks import GONE, NAME, NOT_KNOWN, KilledError, World, every, values
from tests.fakes.api import Call

HOUR = 3600.0
MODE = "nvidia.com/gpu.mode"
EIGHT = values(gpu_count="8", gpu_mode="compute")
SEVEN = values(gpu_count="7", gpu_mode="compute")


def settled(*, lag_seconds: float = 0.0) -> World:
    """A Node that shows EIGHT since long ago."""
    world = World(lag_seconds=lag_seconds)
    world.node()
    world.set_desired(EIGHT)
    world.run(600)
    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}
    world.api.calls.clear()
    return world


# what is written


def test_the_first_labels_are_written_at_once() -> None:
    world = World()
    world.node()
    world.set_desired(EIGHT, {keys.TOPOLOGY: Value(text="{}")})

    world.run(1)

    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}
    assert world.meta()["annotations"] == {keys.TOPOLOGY: "{}"}
    assert world.writes() == 1
    assert [call.verb for call in world.api.calls] == ["patch"]


def test_the_patch_has_changed_keys_only() -> None:
    world = settled()
    world.set_desired(SEVEN)

    world.run(60)

    (write,) = world.api.writes()
    assert write.body == {"metadata": {"labels": {"nvidia.com/gpu.count": "7"}}}


def test_a_label_goes_only_when_its_fact_is_known_to_be_gone() -> None:
    world = settled()
    world.set_desired({"nvidia.com/gpu.count": GONE, MODE: NOT_KNOWN})

    world.run(60)

    assert world.labels() == {"gpu.mode": "compute"}


def test_a_restarted_agent_that_finds_all_well_writes_nothing() -> None:
    world = settled()
    world.start()
    world.node()
    world.set_desired(EIGHT)

    world.run(HOUR)

    assert world.writes() == 0


# how often


def test_an_hour_of_steady_state_has_no_write() -> None:
    """Pods come and go, the kubelet beats, and the same decisions come every minute."""
    world = World()
    world.node()
    machine = build.node([build.gpu(at) for at in range(8)])
    settings = LabelSettings(timestamp_seconds=1_700_000_000)

    def decide(_: float) -> float:
        world.set_desired(decide_labels(machine, settings).decisions, node_annotations(machine))
        return 60

    def pods(now: float) -> float:
        name = f"pod-{now}".replace(".", "-")
        world.server.create(PODS, {"metadata": {"name": name}}, "default")
        world.server.delete(PODS, name, "default")
        world.beat(now)
        return 10

    world.also(decide=decide, pods=pods)
    world.run(60)
    first = world.writes()
    world.run(HOUR)

    assert first == 1
    assert world.writes() == 1


@pytest.mark.parametrize("lag", [0, 3, 30])
def test_one_change_is_one_write_however_late_the_watch_is(lag: float) -> None:
    world = settled(lag_seconds=lag)
    world.also(kubelet=every(1, world.beat))  # the watch tells versions older than the answer
    world.run(60)
    world.set_desired(SEVEN)

    world.run(HOUR)

    assert world.labels()["gpu.count"] == "7"
    assert world.writes() == 1


def test_changes_that_come_in_parts_are_written_together() -> None:
    world = settled()
    world.set_desired(SEVEN)
    world.run(5)
    world.set_desired({**SEVEN, **values(gpu_product="H200")})
    world.run(60)

    assert world.labels()["gpu.product"] == "H200"
    assert world.writes() == 1


def test_health_is_written_at_once_and_the_rest_ten_seconds_later() -> None:
    world = settled()
    sick = {keys.HEALTH: Value(text="unhealthy"), keys.FOUND: Value(text="7")}
    world.set_desired({**EIGHT, **sick})
    world.run(0.1)
    at_once = world.writes()
    world.set_desired({**SEVEN, **sick})
    world.run(HOUR)

    assert at_once == 1
    assert world.labels()["gpu.count"] == "7"
    assert world.writes() == 2


def flapping(decided: Callable[[int], Decisions]) -> World:
    """Ten minutes of decisions that change ten times a second; ``decided`` gets their number."""
    world = settled()
    turn = count()
    world.also(flap=every(0.1, lambda _: world.set_desired(decided(next(turn)))))
    world.run(600)
    return world


def test_labels_that_flap_ten_times_a_second_cost_no_write() -> None:
    world = flapping(lambda turn: SEVEN if turn % 2 else EIGHT)

    assert world.writes() == 0


def test_labels_that_are_never_the_same_cost_a_write_a_minute() -> None:
    world = flapping(lambda turn: values(gpu_count=str(turn)))

    assert 10 <= world.writes() <= 3 + 10


def test_health_that_flaps_costs_a_write_a_minute() -> None:
    world = flapping(lambda turn: {keys.HEALTH: Value(text=("healthy", "unhealthy")[turn % 2])})

    assert 10 <= world.writes() <= 4 + 10


# drift and rivals


def test_an_edited_key_is_put_right_and_a_removed_one_put_back() -> None:
    world = settled()
    world.edit(gpu_mode="graphics", gpu_count=None)

    world.run(30)

    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}
    assert world.writes() == 1


def test_an_annotation_edited_by_hand_is_put_right() -> None:
    world = World()
    world.node()
    world.set_desired({}, {keys.TOPOLOGY: Value(text="{}")})
    world.run(60)
    world.server.patch(NODES, NAME, {"metadata": {"annotations": {keys.TOPOLOGY: "{"}}})

    world.run(30)

    assert world.meta()["annotations"][keys.TOPOLOGY] == "{}"


@pytest.mark.parametrize("seconds", [0.5, 60, 300])
def test_two_writers_never_fight_hot(seconds: float) -> None:
    """Somebody rewrites our label as soon as he sees it, or whenever he comes round."""
    world = settled()

    edit = partial(world.edit, by="another-labeller", gpu_mode="graphics")
    world.also(fight=every(seconds, lambda _: edit()))
    world.run(HOUR)
    first_hour = world.writes()
    world.run(HOUR * 3)

    assert first_hour <= 8
    assert world.writes() <= 8 + 3
    assert ("KeysLeftAlone", f"{MODE}: another-labeller changes it back again and again") in (
        world.said.events
    )
    assert world.said.left_alone[-1] in (0, 1)


def test_other_keys_are_kept_right_while_one_is_fought_over() -> None:
    world = settled()
    world.also(fight=every(1, lambda _: world.edit(gpu_mode="graphics")))
    world.run(HOUR)

    world.set_desired(SEVEN)
    world.run(120)

    assert world.labels()["gpu.count"] == "7"


def test_a_key_is_put_right_when_its_rival_has_gone() -> None:
    world = settled()
    world.also(fight=every(1, lambda _: world.edit(gpu_mode="graphics")))
    world.run(HOUR)
    world.also(fight=every(60, lambda _: None))
    world.run(HOUR)

    assert world.labels()["gpu.mode"] == "compute"
    assert world.said.left_alone[-1] == 0


def test_keys_of_an_applier_and_of_nfd_master_are_left_alone_and_told_once() -> None:
    world = World()
    world.server.apply(NODES, NAME, {"metadata": {"labels": {MODE: "graphics"}}}, manager="argocd")
    listed = {"metadata": {"annotations": {FEATURE_LABELS: "nvidia.com/gpu.count"}}}
    world.server.patch(NODES, NAME, listed, manager="nfd-master")
    world.node()
    world.also(kubelet=every(10, world.beat))
    world.set_desired({**EIGHT, **values(gpu_product="H200")})

    world.run(HOUR)

    assert world.labels() == {"gpu.mode": "graphics", "gpu.product": "H200"}
    assert world.writes() == 1
    ((reason, note),) = world.said.events
    assert reason == "KeysLeftAlone"
    assert "argocd" in note
    assert "gpu-feature-discovery" in note
    assert world.said.left_alone == [2]


def test_keys_that_another_owner_gives_up_become_ours() -> None:
    world = World()
    listed = {"metadata": {"annotations": {FEATURE_LABELS: "nvidia.com/gpu.count"}}}
    world.server.patch(NODES, NAME, listed, manager="nfd-master")
    world.node()
    world.set_desired(EIGHT)
    world.run(60)
    gone = {"metadata": {"annotations": {FEATURE_LABELS: None}}}
    world.server.patch(NODES, NAME, gone, manager="nfd-master")

    world.run(60)

    assert world.labels()["gpu.count"] == "8"
    assert world.said.left_alone == [1, 0]


# what goes wrong


@pytest.mark.parametrize(
    "error",
    [
        Busy("429: too many requests"),
        Busy("429: too many requests", retry_after_seconds=20),
        Unreachable("connection refused"),
        Unauthorized("401"),
    ],
)
def test_an_hour_of_failures_is_no_hot_loop_and_ends_within_a_minute(error: ApiError) -> None:
    world = settled()
    world.api.fail("patch", error, times=None)
    world.set_desired(SEVEN)
    world.run(HOUR)
    tries = world.writes()
    world.api.heal()
    world.run(60 + 20 + 60)

    assert 10 < tries <= 65
    assert world.labels()["gpu.count"] == "7"
    assert world.said.events == []


@pytest.mark.parametrize(
    "error", [Forbidden("403: no"), AdmissionRefused("422: no", policy="p"), Invalid("422: bad")]
)
def test_what_cannot_help_is_said_once_and_tried_seldom(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    world = settled()
    world.api.fail("patch", error, times=None)
    world.set_desired(SEVEN)
    with caplog.at_level(logging.WARNING):
        world.run(HOUR)
    tries = world.writes()
    world.api.heal()
    world.run(HOUR)

    assert 3 <= tries <= HOUR / 150
    why = f"nvidia.com/gpu.count: {error}"
    assert [record.__dict__["why"] for record in caplog.records] == [why]
    assert world.said.events == [("KeysRefused", why)]
    assert world.said.refused == [0, 1, 0]
    assert world.labels()["gpu.count"] == "7"


MANY = {f"nvidia.com/gpu.{part}": Value(text="x") for part in (*BASE, *ARCHITECTURE, *ATTRIBUTES)}
OUR_POLICY = "not labels of the agent: {}"


def judged(world: World, refused: set[str], message: str = "no") -> list[set[str]]:
    """Have a policy refuse these labels; the labels of each write that was tried from now on."""
    tried: list[set[str]] = []

    def judge(call: Call) -> None:
        changed = set((call.body or {})["metadata"].get("labels", {}))
        tried.append(changed)
        if bad := sorted(changed & refused):
            text = message.format(", ".join(bad))
            raise AdmissionRefused(f"422: {text}"[:60], policy="p", message=text)

    world.api.before("patch", judge)
    return tried


def test_keys_that_the_refusing_policy_names_are_left_out_and_the_rest_is_written() -> None:
    """As where a new image runs under the policies of the one before it."""
    world, unknown = World(), {f"nvidia.com/gpu.{part}" for part in ATTRIBUTES}
    tried = judged(world, unknown, OUR_POLICY)
    world.node()
    world.set_desired(MANY)

    world.run(1)

    assert tried == [set(MANY), set(MANY) - unknown]
    assert set(world.labels()) == {key.removeprefix("nvidia.com/") for key in set(MANY) - unknown}
    assert world.said.refused == [0, len(unknown)]
    ((reason, _),) = world.said.events
    assert reason == "KeysRefused"


def test_a_refused_key_is_tried_seldom_and_written_when_its_policy_is_there() -> None:
    world = World()
    tried = judged(world, {MODE}, OUR_POLICY)
    world.node()
    world.set_desired(MANY | {MODE: Value(text="compute")})
    world.run(6 * HOUR)
    before = len(tried)
    world.api.heal()
    world.run(HOUR)

    assert before <= 2 + 4 + 5
    assert world.labels()["gpu.mode"] == "compute"
    assert world.said.refused == [0, 1, 0]


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_where_no_key_is_named_halves_find_the_refused_ones(bad: int) -> None:
    world = World()
    refused = set(sorted(MANY)[3::5][:bad])
    tried = judged(world, refused)
    world.node()
    world.set_desired(MANY)

    world.run(HOUR / 2)

    written = {f"nvidia.com/{key}" for key in world.labels()}
    assert len(written) >= len(MANY) - (bad if bad == 1 else 3 * bad)
    assert not written & refused
    assert world.said.refused[0] == 0
    assert world.said.refused[-1] == len(MANY) - len(written)
    assert world.said.refused[1:] == sorted(world.said.refused[1:], reverse=True)  # no guesses
    assert len(tried) <= 2 * MOST_REFUSED + 8


def test_a_policy_that_refuses_all_without_a_name_costs_a_bounded_number_of_writes() -> None:
    world = World()
    tried = judged(world, set(MANY))
    world.node()
    world.set_desired(MANY)

    world.run(HOUR)

    assert world.labels() == {}
    assert world.said.refused[-1] == len(MANY)
    assert len(tried) <= 3 * 2 * MOST_REFUSED


def test_a_role_that_is_missing_is_not_searched_for_keys() -> None:
    world = World()
    world.api.fail("patch", Forbidden("403: no"), times=None)
    world.node()
    world.set_desired(MANY)

    world.run(599)

    assert world.writes() == 1
    assert world.said.refused == [0, len(MANY)]


def test_labels_beside_a_refused_one_are_kept_right_meanwhile() -> None:
    world = World()
    tried = judged(world, {MODE}, OUR_POLICY)
    world.node()
    world.set_desired(EIGHT)
    world.run(60)
    world.set_desired(SEVEN)
    world.run(60)

    assert world.labels() == {"gpu.count": "7"}
    assert tried[-1] == {"nvidia.com/gpu.count"}


def test_a_node_made_anew_is_tried_with_all_keys() -> None:
    world = World()
    tried = judged(world, {MODE}, OUR_POLICY)
    world.node()
    world.set_desired(EIGHT)
    world.run(60)
    world.delete_node()
    world.run(1)
    world.make_node()
    world.run(60)

    assert tried[-2:] == [{MODE, "nvidia.com/gpu.count"}, {"nvidia.com/gpu.count"}]


def test_a_lost_reply_does_no_harm() -> None:
    world = settled()
    world.api.lose_reply("patch")
    world.set_desired(SEVEN)

    world.run(HOUR)

    assert world.labels()["gpu.count"] == "7"
    assert world.writes() <= 2


def test_nothing_is_written_while_it_is_not_allowed() -> None:
    world = World()
    world.node()
    world.may_write = False
    world.set_desired(EIGHT)
    world.run(HOUR)
    before = world.writes()
    world.may_write = True
    world.run(10)

    assert before == 0
    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}


def test_a_node_that_is_not_there_is_waited_for_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(node=False)
    sink = world.node()
    world.set_desired(EIGHT)
    sink.observe(None)
    with caplog.at_level(logging.WARNING):
        world.run(HOUR)
    before = world.writes()
    world.make_node()
    world.run(2)

    assert before == 0
    (line,) = caplog.records
    assert NAME in line.__dict__["why"]
    assert "node-name" in line.__dict__["why"]
    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}


def test_a_node_made_anew_under_its_name_gets_all_labels_at_once() -> None:
    world = settled()
    world.delete_node()
    world.run(60)
    world.make_node(**{MODE: "compute"})

    world.run(2)

    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}
    assert world.writes() == 1


@pytest.mark.parametrize("lag", [0, 5])
def test_a_node_deleted_and_made_anew_around_a_write_ends_right(lag: float) -> None:
    """The write's answer, or its 404, tells of a Node that is no more."""
    world = settled(lag_seconds=lag)

    def replace(_: object) -> None:
        world.delete_node()
        world.make_node()
        world.deliver()

    world.api.after("patch", replace, times=1)
    world.set_desired(SEVEN)
    world.run(120)

    assert world.labels() == {"gpu.count": "7", "gpu.mode": "compute"}


def test_a_node_missing_at_the_write_is_waited_for() -> None:
    world = settled(lag_seconds=2)
    world.api.before("patch", lambda _: world.delete_node(), times=1)
    world.set_desired(SEVEN)
    world.run(HOUR)
    tries = world.writes()
    world.make_node()
    world.run(5)

    assert tries == 1
    assert world.labels() == {"gpu.count": "7", "gpu.mode": "compute"}


def test_a_node_made_anew_has_no_rivals_yet() -> None:
    world = settled()
    world.also(fight=every(1, lambda _: world.edit(gpu_mode="graphics")))
    world.run(HOUR)
    world.also(fight=every(60, lambda _: None))
    world.delete_node()
    world.make_node()

    world.run(2)

    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}


@pytest.mark.parametrize(("known", "told", "writes"), [(999, 1000, 1), (1000, 999, 0)])
def test_the_node_is_believed_when_it_is_newer(known: int, told: int, writes: int) -> None:
    world = World(node=False)
    sink = world.node()
    world.set_desired(EIGHT)
    right = {"nvidia.com/gpu.count": "8", MODE: "compute"}
    sink.observe({"metadata": {"uid": "u", "resourceVersion": str(known), "labels": right}})
    world.run(1)
    sink.observe({"metadata": {"uid": "u", "resourceVersion": str(told), "labels": {}}})
    world.run(100)

    assert min(world.writes(), 1) == writes


def test_versions_that_are_no_numbers_are_believed_as_they_come() -> None:
    world = World()
    sink = world.node()
    world.set_desired(EIGHT)
    world.run(60)
    meta = world.meta()
    odd = {**meta, "resourceVersion": "v-two", "labels": {"zone": "a"}}

    sink.observe({"metadata": odd})
    world.run(60)

    assert world.writes() == 2


def test_after_a_loss_of_the_watch_an_older_node_is_believed_and_mended() -> None:
    """The store may have been put back to a backup, in which the labels are not yet."""
    world = World(node=False)
    world.make_node()
    backup = world.server.backup()
    sink = world.node()
    world.set_desired(EIGHT)
    world.run(600)
    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}
    world.server.restore(backup)
    lost = world.server.get(NODES, NAME)
    sink.observe(lost)  # of the same watch: it lags behind the answer
    world.run(600)
    assert world.labels() == {}

    sink.begin_anew()
    sink.observe(lost)
    world.run(60)

    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}


def kill(_: object) -> None:
    raise KilledError


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", range(3))
def test_killed_at_any_write_and_started_again_the_labels_end_right(moment: str, at: int) -> None:
    """Nothing that was not decided to go is gone, and nothing old stays."""
    world = settled()
    world.edit(gpu_machine="old")
    plan = world.api.before if moment == "before" else world.api.after
    steps = (
        {**SEVEN, "nvidia.com/gpu.machine": GONE},
        {MODE: NOT_KNOWN, **values(gpu_count="6")},
        {MODE: NOT_KNOWN, **values(gpu_count="5")},
    )
    for step, decided in enumerate(steps):
        world.set_desired(decided)
        if step == at:
            plan("patch", kill, times=1)
            with pytest.raises(KilledError):
                world.run(120)
            assert "gpu.mode" in world.labels()
            world.start()
            world.node()
            world.set_desired(decided)
        world.run(120)

    assert world.labels() == {"gpu.count": "5", "gpu.mode": "compute"}


def test_an_agent_that_ends_takes_nothing_with_it() -> None:
    world = settled()
    world.start()

    world.run(HOUR)

    assert world.labels() == {"gpu.count": "8", "gpu.mode": "compute"}
