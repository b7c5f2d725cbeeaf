# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet keeps time, counts GPUs, and believes what it was told, as late as told."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from api.gpu_request import GpuRequest, gpu_request
from placement.class_tables import ScoreTables
from scheduler.pod_request import PodRequest
from scheduler.simulation import choosers
from scheduler.simulation.fleet_replay import (
    Choose,
    Give,
    NodeKind,
    Placed,
    Placement,
    ReplayNode,
    ReplayPod,
    ReplaySetup,
    Summary,
    replay,
    replay_summary,
)
from scheduler.simulation.workload import Arrival
from tests.scheduler import fleets
from tests.scheduler.simulated import arrival, crashing, kind, lowest, seeded


@pytest.fixture
def tables() -> ScoreTables:
    return ScoreTables()


@pytest.fixture
def pairs(tables: ScoreTables) -> NodeKind:
    """Eight GPUs, linked in pairs: 0-1, 2-3, 4-5, 6-7."""
    return kind(tables)


def played(
    kinds: Sequence[NodeKind],
    *arrivals: Arrival,
    choose: Choose = choosers.pack,
    give: Give = lowest,
    lag_seconds: float = 0.0,
) -> tuple[Placed, ...]:
    setup = ReplaySetup(kinds=tuple(kinds), give=give, lag_seconds=lag_seconds)
    return replay(setup, arrivals, choose, seeded())


def waits(*placed: Placed) -> list[float]:
    return [each.wait_seconds for each in placed]


def pod(gpus: int) -> ReplayPod:
    """One of no job."""
    return ReplayPod(wish=gpu_request(gpus))


def ask(name: str, gpus: int) -> PodRequest:
    return PodRequest(namespace="", name="", uid=name, wish=gpu_request(gpus))


def bound(kind: NodeKind, *pods: tuple[str, int]) -> ReplayNode:
    """A node with these pods, by name and mask, of which its agent told nothing yet."""
    node = ReplayNode(f"of-{pods}", kind)
    for order, (name, mask) in enumerate(pods):
        node.bind(ask(name, mask.bit_count()), order, mask)
    return node


def test_a_pod_that_fits_nowhere_waits_until_gpus_come_free(pairs: NodeKind) -> None:
    assert waits(*played([pairs], arrival(8, lasts=7), arrival(2, at=3))) == [0, 4]


def test_smaller_pods_go_before_a_large_one_that_waits(pairs: NodeKind) -> None:
    found = played([pairs], arrival(4, lasts=9), arrival(8, at=1), arrival(2, at=2, lasts=1))
    assert waits(*found) == [0, 8, 0]


def test_pods_that_wait_are_served_in_the_order_in_which_they_came(pairs: NodeKind) -> None:
    found = played([pairs], arrival(8, lasts=5), arrival(8, at=1, lasts=5), arrival(8, at=2))
    assert waits(*found) == [0, 4, 8]


def test_gpus_that_come_free_when_a_pod_comes_are_there_for_it(pairs: NodeKind) -> None:
    assert waits(*played([pairs], arrival(8, lasts=5), arrival(8, at=5))) == [0, 0]


def test_a_pod_that_no_node_can_hold_is_left_out(pairs: NodeKind) -> None:
    assert waits(*played([pairs], arrival(16), arrival(1))) == [0]


def test_a_pod_over_which_the_device_plugin_fails_is_lost_and_takes_nothing(
    pairs: NodeKind,
) -> None:
    first, second = played([pairs], arrival(8), arrival(8), give=crashing)
    assert (first.lost, first.gbps, first.is_ideal) == (True, 0.0, False)
    assert second.wait_seconds == 0


def test_a_lost_pod_is_not_counted_where_it_was_lost(pairs: NodeKind) -> None:
    seen = []

    def watching(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:
        del pod, chance
        seen.append(nodes[0].view())
        return Placement(node=nodes[0])

    played([pairs], arrival(2), arrival(2), choose=watching, give=crashing)
    assert seen[0] == seen[1]


def test_a_set_is_judged_by_what_came_and_not_by_what_was_expected(pairs: NodeKind) -> None:
    """The lowest two of 1, 2, 3 are no pair."""
    _, second = played([pairs], arrival(1), arrival(2))
    assert second.gbps == pairs.table.gbps(0b110) < second.ideal_gbps
    assert not second.is_ideal


def test_the_best_speed_is_that_of_the_best_nodes_of_the_fleet(
    tables: ScoreTables, pairs: NodeKind
) -> None:
    switched = kind(tables, "hgx-h100")
    (placed,) = played([pairs, switched], arrival(2), choose=first_of)
    assert placed.ideal_gbps == switched.table.ideal(gpu_request(2))


def test_what_was_told_is_believed(pairs: NodeKind) -> None:
    node = bound(pairs, ("p", 0b1000))
    node.report(node.sets())
    assert (node.view().free, node.view().sure) == (0xF7, True)


def test_a_set_that_was_not_told_yet_is_predicted(pairs: NodeKind) -> None:
    """The prediction of a pair is the lowest one; it has another."""
    node = bound(pairs, ("p", 0b1100))
    assert (
        node.view().free
        == fleets.ALL & ~pairs.table.likely(fleets.ALL, gpu_request(2))
        != node.free
    )


def test_a_pod_that_ended_is_free_again_though_its_agent_did_not_say_so(pairs: NodeKind) -> None:
    node = bound(pairs, ("p", 0b1100))
    node.report(node.sets())
    node.end(ask("p", 2))
    assert node.view().free == fleets.ALL


def test_what_an_agent_sees_is_told_after_the_lag_and_no_sooner(pairs: NodeKind) -> None:
    seen = []

    def watching(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:
        del pod, chance
        seen.append(nodes[0].view().free)
        return Placement(node=nodes[0])

    pods = (arrival(1, at=0), arrival(1, at=1.9), arrival(1, at=2.0))
    played([pairs], *pods, choose=watching, give=highest, lag_seconds=2.0)
    assert seen == [0xFF, 0xFE, 0x7E]  # nothing; a guess; the first told, the second guessed


def highest(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """Gives the highest free GPU out."""
    del kind, wish, chance
    return 1 << free.bit_length() - 1


def first_of(nodes: Sequence[ReplayNode], pod: ReplayPod, chance: Random) -> Placement:
    """Takes the first node."""
    del pod, chance
    return Placement(node=nodes[0])


def test_spread_takes_the_emptiest_node_and_pack_the_fullest(pairs: NodeKind) -> None:
    nodes = [
        bound(pairs, ("p", 0b1)),
        ReplayNode("empty", pairs),
        bound(pairs, ("q", 0b111)),
    ]
    assert choosers.spread(nodes, pod(1), seeded()).node is nodes[1]
    assert choosers.pack(nodes, pod(1), seeded()).node is nodes[2]


def test_lots_are_drawn_among_equal_nodes(pairs: NodeKind) -> None:
    nodes = [ReplayNode(name, pairs) for name in "abc"]
    drawn = {choosers.pack(nodes, pod(1), seeded(seed)).node.name for seed in range(20)}
    assert drawn == set("abc")


def test_ours_takes_a_pair_where_the_fullest_node_has_none(
    tables: ScoreTables, pairs: NodeKind
) -> None:
    broken = bound(pairs, ("p", 0b11110110))
    whole = bound(pairs, ("q", 0b11110000))
    for node in (broken, whole):
        node.report(node.sets())
    assert choosers.pack([broken, whole], pod(2), seeded()).node is broken
    assert choosers.ranked(tables)([broken, whole], pod(2), seeded()).node is whole


def test_ours_goes_by_what_it_believes(tables: ScoreTables, pairs: NodeKind) -> None:
    """It takes both GPUs for a pair, for it thinks that the pod has 0-1."""
    wrong = bound(pairs, ("p", 0b11111100), ("q", 0b1))
    right = bound(pairs, ("r", 0b11110000))
    right.report(right.sets())
    assert choosers.ranked(tables)([wrong, right], pod(1), seeded()).node is wrong


@pytest.mark.parametrize(
    ("best", "other"),
    [
        pytest.param(0b11, 0b11101110, id="a fast set goes before what is left"),
        pytest.param(0b10001100, 0b11110000, id="what is left goes before a full node"),
        pytest.param(0b11001111, 0b11000011, id="then a full node is taken"),
    ],
)
def test_foresight_has_the_aims_of_ours(pairs: NodeKind, best: int, other: int) -> None:
    """The lowest free GPUs are handed out; these have some already."""
    nodes = [bound(pairs, ("p", taken)) for taken in (other, best)]
    choice = choosers.foreseeing(lowest)(nodes, pod(2), seeded())
    assert choice.node is nodes[1]
    assert choice.chosen == lowest(pairs, nodes[1].free, gpu_request(2), seeded())


def test_foresight_gets_what_it_saw(pairs: NodeKind) -> None:
    """Every look draws another set, and the last one is not asked for again."""
    seen: list[int] = []

    def next_one(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
        del kind, free, wish, chance
        seen.append(0b11 << len(seen))
        return seen[-1]

    (placed,) = played([pairs], arrival(2), choose=choosers.foreseeing(next_one), give=crashing)
    assert not placed.lost
    assert seen == [0b11]


def test_a_predicted_device_plugin_gives_sets_by_their_odds(pairs: NodeKind) -> None:
    given = {choosers.predicted(pairs, 0b1111, gpu_request(2), seeded(seed)) for seed in range(20)}
    assert given == set(pairs.table.outcome(0b1111, gpu_request(2)).sets)


def test_a_predicted_device_plugin_gives_likelier_sets_more_often(pairs: NodeKind) -> None:
    """Of five GPUs one goes to the first container, and a pair that is left to the other."""
    sets = pairs.table.outcome(0b11111, gpu_request(1, 2)).sets
    assert len(set(sets.values())) > 1
    chance = seeded()
    given = [choosers.predicted(pairs, 0b11111, gpu_request(1, 2), chance) for _ in range(2000)]
    assert {each: given.count(each) / 2000 for each in sets} == pytest.approx(
        {each: float(odds) for each, odds in sets.items()}, abs=0.05
    )


def test_the_same_seed_plays_the_same_game(tables: ScoreTables, pairs: NodeKind) -> None:
    pods = [arrival(gpus, at=at) for at, gpus in enumerate((1, 2, 4, 1, 2, 8, 4, 1))]
    first, second = (
        played([pairs] * 3, *pods, choose=choosers.ranked(tables), give=choosers.predicted)
        for _ in range(2)
    )
    assert first == second


def placed(gpus: int, *, wait: float = 0.0, gbps: float = 0.0, lost: bool = False) -> Placed:
    ideal = 300.0 if gpus > 1 else 0.0
    return Placed(wish=gpu_request(gpus), wait_seconds=wait, gbps=gbps, ideal_gbps=ideal, lost=lost)


def test_only_pods_with_several_gpus_count_for_sets_and_all_for_waiting() -> None:
    several = [placed(2, gbps=300), placed(4, gbps=75), placed(4, gbps=75)]
    pods = [placed(1, wait=6), *several, placed(2, lost=True)]
    assert replay_summary(pods) == Summary(
        pods=5,
        lost=1,
        ideal_ratio=0.25,
        speed_ratio=0.375,
        mean_wait_seconds=1.2,
        longest_wait_seconds=6,
    )


def test_nothing_is_said_of_sets_where_nobody_asked_for_several() -> None:
    found = replay_summary([placed(1)])
    assert (found.ideal_ratio, found.speed_ratio) == (None, None)
