# SPDX-License-Identifier: Apache-2.0
"""All nodes as the watches tell of them."""

from __future__ import annotations

import itertools
import random
import threading
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from api import state_annotation
from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.node_record import LONGEST_LEASE_SECONDS
from scheduler.cluster.node_views import NoView, ScoringView
from tests.scheduler.fleets import ALL, Fleet, changed, gen, lease, pod, said, topology


def seen(fleet: Fleet, node: str = "a") -> ScoringView:
    """The view of a node that there is something to say of."""
    view = fleet.cache.view(node)
    assert isinstance(view, ScoringView), view
    return view


# what is known of a node


def test_a_node_whose_agent_speaks_is_seen() -> None:
    fleet = Fleet().with_node(clique="c.1", pods={"p": 0b11}, ok=0x7F)

    assert seen(fleet) == ScoringView(
        gen=gen(), free=0b1111100, ok=0x7F, sure=True, clique="c.1", product=gen()
    )


def test_a_node_without_a_clique_is_in_none() -> None:
    assert seen(Fleet().with_node(clique="")).clique is None


def test_a_node_that_nobody_told_of_is_unknown() -> None:
    fleet = Fleet()
    fleet.says("a")
    fleet.bind(pod("p"), "b")

    assert [fleet.cache.view(name) for name in "abc"] == [NoView.UNKNOWN_NODE] * 3


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (None, NoView.NO_TOPOLOGY),
        ("", NoView.BAD_TOPOLOGY),
        ("{", NoView.BAD_TOPOLOGY),
        (changed(nv="0"), NoView.BAD_TOPOLOGY),
        (changed(v=2), NoView.OTHER_VERSION),
        (
            changed(n=0, lbw=[], nv="", pc="", numa=[], ids=[], bus=[], nic=[]),
            NoView.NO_TOPOLOGY,
        ),
    ],
    ids=lambda each: str(each)[:12],
)
def test_a_node_without_a_topology_that_can_be_read_has_no_view(
    annotation: str | None, why: NoView
) -> None:
    fleet = Fleet().with_node()

    fleet.cache.node("a", topology=annotation)

    assert fleet.cache.view("a") is why


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"text": ""}, NoView.BAD_STATE),
        ({"text": said().replace('"ok":"ff"', '"ok":"f"')}, NoView.BAD_STATE),
        ({"text": said().replace('"v":1', '"v":2')}, NoView.OTHER_VERSION),
        ({"of": "0123456789"}, NoView.OTHER_GENERATION),
        ({"text": said().replace('"ff"', '"1ff"').replace('"00"', '"000"')}, NoView.BAD_STATE),
        ({"text": said().replace('"ff"', '"0ff"').replace('"00"', '"100"')}, NoView.BAD_STATE),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_node_whose_state_cannot_be_used_has_no_view(facts: dict[str, Any], why: NoView) -> None:
    assert Fleet().with_node(**facts).cache.view("a") is why


def test_a_state_is_of_the_topology_that_the_node_carries() -> None:
    """A hand changed the matrix and not ``gen``: other nodes' table is not touched by it."""
    fleet = Fleet()
    fleet.cache.node("a", topology=changed(nv="0" * 28))
    fleet.says("a")

    assert seen(fleet).gen not in ("", gen())


def test_a_node_without_a_lease_or_a_state_on_it_has_no_view() -> None:
    fleet = Fleet().with_node()
    bare = lease()
    del bare["metadata"]["annotations"]
    fleet.cache.lease("a", bare, fleet.clock.now)
    without_state = fleet.cache.view("a")
    fleet.says("a")
    fleet.cache.lease_gone("a")

    assert (without_state, fleet.cache.view("a")) == (NoView.NO_STATE, NoView.NO_STATE)


def test_what_was_wrong_is_forgotten_when_it_is_right_again() -> None:
    fleet = Fleet().with_node(text="")
    fleet.cache.node("a", topology="{")

    fleet.cache.node("a", topology=topology())
    fleet.says("a")

    assert seen(fleet).free == ALL


def test_what_is_wrong_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.cache.node("a", topology="{")
        fleet.says("a", text="{")

    assert [record.getMessage() for record in caplog.records] == ["node scores 0"] * 2
    topology_line, state_line = map(vars, caplog.records)
    assert (topology_line["levelname"], topology_line["node"]) == ("WARNING", "a")
    assert (state_line["levelname"], state_line["node"]) == ("WARNING", "a")
    assert topology_line["why"].startswith("annotation gpuscape.io/topology")
    assert state_line["why"].startswith("annotation gpuscape.io/state")


def test_what_is_wrong_again_after_it_was_right_is_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = Fleet()
    for text in ("{", None, "{"):
        fleet.cache.node("a", topology=text or topology())
        fleet.says("a", text=text)

    assert [record.getMessage() for record in caplog.records] == ["node scores 0"] * 4


def test_a_node_that_is_gone_is_unknown_and_comes_back_as_it_is() -> None:
    fleet = Fleet().with_node()
    fleet.bind(pod("p"))

    fleet.cache.node_gone("a")
    gone = fleet.cache.view("a")
    fleet.cache.node("a", topology=topology())

    assert gone is NoView.UNKNOWN_NODE
    assert seen(fleet).free == 0b11111100


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_of_a_node_of_which_nothing_is_left_nothing_is_kept(order: tuple[int, ...]) -> None:
    fleet = Fleet().with_node(pods={"p": 0b11})
    fleet.bind(pod("p", job="j"))
    ends = (
        lambda: fleet.cache.pod_gone("uid-p"),
        lambda: fleet.cache.lease_gone("a"),
        lambda: fleet.cache.node_gone("a"),
    )

    for at in order:
        assert fleet.cache.detail("a") is not None
        ends[at]()

    assert fleet.cache.detail("a") is None
    assert list(fleet.cache.nodes_of("j")) == []


def test_nothing_is_kept_of_a_pod_that_was_deleted_after_its_end() -> None:
    fleet = Fleet()
    fleet.bind(pod("p"), ended=True)
    assert fleet.cache.detail("a") is not None
    fleet.cache.pod_gone("uid-p")
    assert fleet.cache.detail("a") is None


# staleness


@pytest.mark.parametrize(("later", "stale"), [(180, False), (180.1, True), (7200, True)])
def test_an_agent_that_is_not_heard_for_its_leases_time_is_stale(later: float, stale: bool) -> None:
    fleet = Fleet().with_node()

    fleet.clock.now += later

    assert (fleet.cache.view("a") is NoView.STALE) is stale


def test_the_same_lease_told_again_is_no_sign_of_life() -> None:
    """As after a relist; an agent may be gone for hours."""
    fleet = Fleet().with_node(renewed=1)
    fleet.clock.now += 181
    fleet.says("a", renewed=1)
    silent = fleet.cache.view("a")
    fleet.says("a", renewed=2)

    assert silent is NoView.STALE
    assert seen(fleet).free == ALL


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "nonsense"])
def test_no_wall_clock_matters(renewed: str) -> None:
    fleet = Fleet().with_node(renewed=renewed)

    fleet.clock.now += 100

    assert seen(fleet).free == ALL


def test_an_agent_that_left_is_stale_at_once() -> None:
    assert Fleet().with_node(holder="").cache.view("a") is NoView.STALE


@pytest.mark.parametrize("seconds", [10**9, 86400])
def test_a_lease_of_days_does_not_keep_a_silent_agent_alive(seconds: int) -> None:
    fleet = Fleet().with_node(seconds=seconds)

    fleet.clock.now += LONGEST_LEASE_SECONDS + 1

    assert fleet.cache.view("a") is NoView.STALE


def test_each_agent_falls_silent_at_the_end_of_its_own_lease() -> None:
    """However often, and in whatever order, others are renewed, leave or fall silent."""
    fleet, chance = Fleet(), random.Random(3)  # noqa: S311  # has to repeat
    ends: dict[str, float] = {}
    for number in range(800):
        name = chance.choice("abcd")
        match chance.randrange(4):
            case 0:
                seconds = chance.choice((30, 60, 300))
                fleet.with_node(name, renewed=number, seconds=seconds)
                ends[name] = fleet.clock.now + seconds
            case 1:
                fleet.cache.lease_gone(name)
                fleet.cache.node_gone(name)
                ends.pop(name, None)
            case 2:
                fleet.bind(pod(f"p{number}"), name)
                fleet.cache.pod_gone(f"uid-p{number}")
            case _:
                fleet.clock.now += chance.choice((0, 1, 10, 29, 30, 200))
        known = fleet.cache.views("abcd")
        silent = {each for each, view in zip("abcd", known, strict=True) if view is NoView.STALE}
        unknown = {
            each for each, view in zip("abcd", known, strict=True) if isinstance(view, NoView)
        }
        assert silent == {each for each, end in ends.items() if fleet.clock.now > end}
        assert unknown == silent | set("abcd") - ends.keys()


def test_a_state_that_cannot_be_used_is_told_before_that_it_is_old() -> None:
    fleet = Fleet().with_node(text="")

    fleet.clock.now += 1000

    assert fleet.cache.view("a") is NoView.BAD_STATE


# pods


def test_a_bound_pod_takes_what_it_will_be_given_until_the_state_names_it() -> None:
    fleet = Fleet().with_node()

    fleet.bind(pod("p", 2))
    expected = seen(fleet).free
    fleet.says(pods={"p": 0b11000000})

    assert (expected, seen(fleet).free) == (0b11111100, 0b00111111)


def test_a_pod_told_twice_counts_once() -> None:
    fleet = Fleet().with_node()

    for _ in range(2):
        fleet.bind(pod("p", 2, job="j"))
    free = seen(fleet).free
    fleet.cache.pod_gone("uid-p")

    assert (free, seen(fleet).free) == (0b11111100, ALL)
    assert list(fleet.cache.nodes_of("j")) == []


@pytest.mark.parametrize("deleted", [True, False])
def test_a_pod_that_ended_gives_its_gpus_back_at_once(deleted: bool) -> None:
    fleet = Fleet().with_node(pods={"p": 0b11})
    fleet.bind(pod("p", 2))

    if deleted:
        fleet.cache.pod_gone("uid-p")
    else:
        fleet.bind(pod("p", 2), ended=True)

    assert (seen(fleet).free, seen(fleet).sure) == (ALL, True)


def test_a_pod_that_ended_before_anybody_looked_has_no_gpus() -> None:
    """Kubelets before 1.34 may list such pods as long as they are there."""
    fleet = Fleet().with_node(pods={"p": 0b11})

    fleet.bind(pod("p", 2), ended=True)

    assert seen(fleet).free == ALL


def test_a_pod_of_the_same_name_has_what_the_state_says() -> None:
    """The state has names and no UIDs: while it names the one before, the number is right."""
    fleet = Fleet().with_node(pods={"p": 0b11})
    fleet.bind(pod("p", 2))
    fleet.cache.mark_synced(CacheSource.PODS)
    fleet.cache.pod_gone("uid-p")

    fleet.bind(pod("p", 2, uid="second"))
    at_first = seen(fleet).free
    fleet.says(pods={"p": 0b1100}, seq=2)

    assert (at_first, seen(fleet).free) == (0b11111100, 0b11110011)
    assert fleet.landed == []


def test_a_pod_that_is_gone_from_the_state_too_is_forgotten() -> None:
    fleet = Fleet().with_node(pods={"p": 0b11})
    fleet.bind(pod("p", 2))
    fleet.cache.pod_gone("uid-p")

    fleet.says()
    fleet.says(pods={"p": 0b11})  # one that the watch of pods has not told of yet

    assert seen(fleet).free == 0b11111100


def test_a_pod_that_nobody_told_of_may_go() -> None:
    fleet = Fleet().with_node()

    fleet.cache.pod_gone("never-seen")

    assert seen(fleet).free == ALL


def test_pods_may_be_told_before_their_node() -> None:
    fleet = Fleet()
    fleet.bind(pod("p", 2))

    fleet.with_node()

    assert seen(fleet).free == 0b11111100


def test_pods_told_at_once_are_taken_in_the_order_of_their_binding() -> None:
    fleet = Fleet().with_node()

    fleet.bind(pod("late", 1), bound_at="2026-11-21T10:00:01Z")
    fleet.bind(pod("early", 4), bound_at="2026-11-21T10:00:00Z")
    detail = fleet.cache.detail("a")

    assert detail is not None
    assert [each.ask.name for each in detail.pods] == ["early", "late"]
    assert {uid: set(expected.sets) for uid, expected in detail.expected.items()} == {
        "uid-early": {0b1111},
        "uid-late": {0b10000},
    }


def test_a_class_that_has_no_table_makes_the_node_unsure_and_no_more() -> None:
    fleet = Fleet().with_node()
    fleet.tables.lost = True

    fleet.bind(pod("p", 2))

    assert (seen(fleet).free, seen(fleet).sure) == (ALL, False)


# jobs


def test_nodes_of_a_job_are_those_with_its_pods() -> None:
    fleet = Fleet().with_node("a").with_node("b")
    for name, node in (("p", "a"), ("q", "a"), ("r", "b")):
        fleet.bind(pod(name, job="j"), node)
    fleet.bind(pod("other", job="k"), "b")

    all_of_it = set(fleet.cache.nodes_of("j"))
    fleet.cache.pod_gone("uid-p")
    fleet.bind(pod("r", job="j"), "b", ended=True)
    fleet.cache.pod_gone("uid-r")

    assert all_of_it == {"a", "b"}
    assert list(fleet.cache.nodes_of("j")) == ["a"]
    assert list(fleet.cache.nodes_of("k")) == ["b"]
    assert list(fleet.cache.nodes_of("nobody's")) == []


# landings


def test_a_pod_that_shows_up_is_told_with_what_was_predicted() -> None:
    fleet = Fleet().with_node(pods={"before": 0b1})
    fleet.bind(pod("p", 2))

    fleet.says(pods={"before": 0b1, "p": 0b11000})

    (landing,) = fleet.landed
    assert (landing.node, landing.gen, landing.ask) == ("a", gen(), pod("p", 2))
    assert (landing.actual, landing.predicted) == (0b11000, {0b110: Fraction(1)})
    assert landing.chance == 0


def test_a_pod_shows_up_once() -> None:
    fleet = Fleet().with_node()
    fleet.bind(pod("p", 2))

    fleet.says(pods={"p": 0b11})
    fleet.says(pods={"p": 0b11}, renewed=1)
    fleet.says(pods={"p": 0b11, "q": 0b100}, renewed=2, seq=2)

    assert [landing.ask.name for landing in fleet.landed] == ["p"]


def test_a_pod_shows_up_when_all_of_its_containers_have_their_gpus() -> None:
    """The kubelet serves them one after the other, and the agent may look in between."""
    fleet = Fleet().with_node()
    fleet.bind(pod("p", 1, 2))

    fleet.says(pods={"p": 0b1})
    assert fleet.landed == []
    fleet.says(pods={"p": 0b111}, seq=2)

    (landing,) = fleet.landed
    assert (landing.actual, landing.chance) == (0b111, 1)


def test_what_was_there_from_the_start_did_not_show_up() -> None:
    fleet = Fleet()
    fleet.with_node(pods={"p": 0b11})
    fleet.bind(pod("p", 2))
    fleet.bind(pod("q", 2))
    fleet.cache.mark_synced(CacheSource.PODS)

    fleet.with_node(pods={"p": 0b11})

    assert fleet.landed == []


def test_a_pod_heard_of_after_its_state_shows_up_without_a_prediction() -> None:
    fleet = Fleet()
    fleet.cache.mark_synced(CacheSource.PODS)
    fleet.with_node(pods={"p": 0b11})

    fleet.bind(pod("p", 2))

    (landing,) = fleet.landed
    assert (landing.actual, landing.predicted, landing.chance) == (0b11, {}, None)


def test_masks_of_another_topology_are_no_landing() -> None:
    fleet = Fleet().with_node()
    fleet.bind(pod("p", 2))

    fleet.says(pods={"p": 0b11}, of="0123456789")
    fleet.says(pods={"p": 0b11}, seq=2)

    assert fleet.landed == []


def test_a_prediction_does_not_outlive_the_view_that_it_was_made_for() -> None:
    fleet = Fleet().with_node()
    fleet.bind(pod("p", 2))

    fleet.cache.node("a", topology="{")

    detail = fleet.cache.detail("a")
    assert detail is not None
    assert detail.expected == {}


def test_who_hears_of_a_landing_may_look_at_the_fleet() -> None:
    looks: list[object] = []
    fleet = Fleet()
    cache = NodeCache(
        fleet.tables,
        landed=lambda landing: looks.append(cache.detail(landing.node)),
        clock=fleet.clock,
    )
    fleet.cache = cache
    fleet.with_node()
    fleet.bind(pod("p", 2))

    telling = threading.Thread(target=lambda: fleet.says(pods={"p": 0b11}), daemon=True)
    telling.start()
    telling.join(10)

    assert len(looks) == 1


# all of it


def test_it_is_synced_when_all_three_have_told_everything() -> None:
    cache = Fleet().cache
    before = []
    for source in CacheSource:
        before.append(cache.synced)
        cache.mark_synced(source)

    assert (before, cache.synced) == ([False] * 3, True)


def test_all_nodes_can_be_gone_through() -> None:
    fleet = Fleet().with_node("a").with_node("b")
    fleet.says("only-a-lease")

    assert sorted(fleet.cache.names()) == ["a", "b"]


def test_a_node_can_be_looked_at() -> None:
    fleet = Fleet().with_node(pods={"p": 0b11}, seq=7)
    fleet.bind(pod("p", 2))
    fleet.bind(pod("q", 1))
    fleet.clock.now += 5

    detail = fleet.cache.detail("a")

    assert detail is not None
    assert detail.state is not None
    assert (detail.gen, detail.state.seq, detail.heard_seconds) == (gen(), 7, 5)
    assert detail.state.pods == {state_annotation.pod_key("default", "p"): 0b11}
    assert [each.ask.name for each in detail.pods] == ["p", "q"]
    assert set(detail.expected) == {"uid-q"}


def test_the_real_tables_fit() -> None:
    cache = NodeCache(ScoreTables())
    cache.node("a", topology=topology("a30-pair"))
    cache.lease("a", lease(of=gen("a30-pair"), ok=0b11), 0.0)
    cache.pod(pod("p", 2), "a")

    view = cache.view("a")

    assert isinstance(view, ScoringView | NoView)
    detail = cache.detail("a")
    assert detail is not None
    assert set(detail.expected["uid-p"].sets) == {0b11}


_NODES = st.sampled_from(["a", "b"])
_PODS = st.sampled_from("pqrs")
_TOLD = st.dictionaries(_PODS, st.integers(0, ALL), max_size=3)


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order, the answer is as if only the last had been told.

    So restarts and relists, which tell everything anew, lead to the same view.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.topologies: dict[str, tuple[str, str | None]] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, tuple[Any, str, bool]] = {}
        self.renewals = 0
        self.bindings = 0

    @rule(
        name=_NODES,
        text=st.sampled_from([topology(), "{", changed(v=2)]),
        product=st.sampled_from(["V", None]),
    )
    def node(self, name: str, text: str, product: str | None) -> None:
        """A Node is there, or changed."""
        self.topologies[name] = text, product
        self.fleet.cache.node(name, topology=text, product=product)

    @rule(name=_NODES)
    def node_gone(self, name: str) -> None:
        """A Node goes; that it never was there is all right."""
        self.topologies.pop(name, None)
        self.fleet.cache.node_gone(name)

    @rule(name=_NODES, pods=_TOLD)
    def lease(self, name: str, pods: dict[str, int]) -> None:
        """An agent renews its Lease."""
        self.renewals += 1
        self.leases[name] = lease(pods=pods, renewed=self.renewals, seq=self.renewals)
        self.fleet.cache.lease(name, self.leases[name], self.fleet.clock.now)

    @rule(name=_NODES)
    def lease_gone(self, name: str) -> None:
        """A Lease goes."""
        self.leases.pop(name, None)
        self.fleet.cache.lease_gone(name)

    @rule(name=_PODS, node=_NODES, gpus=st.integers(1, 2))
    def bound(self, name: str, node: str, gpus: int) -> None:
        """A pod is bound, unless one of that name is."""
        if name not in self.pods:
            self.bindings += 1
            ask = pod(name, gpus, uid=f"uid-{self.bindings}", job="j")
            self.pods[name] = (ask, node, False)
            self.fleet.bind(ask, node, bound_at=f"{self.bindings:04d}")

    @rule(name=_PODS)
    def ended(self, name: str) -> None:
        """A pod ends and stays."""
        if name in self.pods:
            ask, node, _ = self.pods[name]
            self.pods[name] = (ask, node, True)
            self.fleet.bind(ask, node, ended=True)

    @rule(name=_PODS)
    def gone_with_its_state(self, name: str) -> None:
        """A pod goes, and its agent says so."""
        if name in self.pods:
            ask, node, _ = self.pods.pop(name)
            self.fleet.cache.pod_gone(ask.uid)
            if node in self.leases:
                self.lease(node, {})

    @invariant()
    def it_looks_as_if_told_anew(self) -> None:
        """The views and jobs of a cache that starts now."""
        new = Fleet()
        for name, (text, product) in self.topologies.items():
            new.cache.node(name, topology=text, product=product)
        for ask, node, ended in self.pods.values():
            at = ask.uid.removeprefix("uid-").zfill(4)
            new.bind(ask, node, bound_at=at, ended=ended)
        for name, there in self.leases.items():
            new.cache.lease(name, there, new.clock.now)
        for name in ("a", "b"):
            assert self.fleet.cache.view(name) == new.cache.view(name)
        assert set(self.fleet.cache.nodes_of("j")) == set(new.cache.nodes_of("j"))
        assert set(self.fleet.cache.names()) == set(new.cache.names())


AnyOrder.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
test_relists_and_restarts_change_nothing = AnyOrder.TestCase


# products


@pytest.mark.parametrize(("label", "product"), [("V100", "V100/8"), (None, gen())])
def test_a_node_is_of_the_product_that_its_label_names(label: str | None, product: str) -> None:
    fleet = Fleet()
    fleet.cache.node("a", topology=topology(), product=label)
    fleet.says("a")
    assert seen(fleet).product == product


# a store that was put back to a backup


def test_a_pod_that_comes_on_another_node_is_on_the_former_no_more() -> None:
    fleet = Fleet().with_node("a").with_node("b")
    fleet.bind(pod("p", job="j"), node="a")
    fleet.bind(pod("p", job="j"), node="b")

    assert [len(fleet.cache.detail(name).pods) for name in ("a", "b")] == [0, 1]  # type: ignore[union-attr]  # both are there
    assert list(fleet.cache.nodes_of("j")) == ["b"]
    fleet.cache.pod_gone("uid-p")
    assert list(fleet.cache.nodes_of("j")) == []


def test_of_a_pod_that_has_not_ended_after_all_nothing_is_kept_when_it_goes() -> None:
    fleet = Fleet()
    fleet.bind(pod("p"), ended=True)
    fleet.bind(pod("p"))
    fleet.cache.pod_gone("uid-p")
    assert fleet.cache.detail("a") is None
