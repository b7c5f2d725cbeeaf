# SPDX-License-Identifier: Apache-2.0
"""Speeds, worth and scores on shapes that can be worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.gpu_request import ContainerRequest, GpuRequest, Link, gpu_request
from placement.best_effort import LOST
from placement.kubelet_model import DevicePluginPolicy, Policies, TopologyManager
from placement.masks import pairs
from placement.score_table import ScoreTable
from placement.shape import Matrix, Shape
from placement.speed import SetSpeeds
from placement.worth import Worth
from scheduler.placement_aims import Aims
from scheduler.rank_levels import BEST, ranks
from tests.scheduler.later import Later
from tests.scheduler.shapes import Links, drawn, machine
from tests.scheduler.weighed import NOTHING, weighed

PAIRS = drawn(8, {(at, at + 1): 300 for at in (0, 2, 4, 6)})
ALL = 0xFF


def worth(shape: Shape, free: int) -> int:
    return Worth(shape, SetSpeeds(shape)).linked(free)


def test_one_gpu_talks_to_nobody() -> None:
    assert SetSpeeds(PAIRS).gbps(0b1) == 0


def test_a_pair_is_as_fast_as_its_links() -> None:
    assert SetSpeeds(PAIRS).gbps(0b11) == 300


def test_a_ring_is_used_both_ways_and_as_fast_as_its_slowest_link() -> None:
    """Around the square everything is linked; the diagonals are not needed."""
    square = drawn(4, {(0, 1): 100, (1, 2): 100, (2, 3): 100, (0, 3): 50})
    assert SetSpeeds(square).gbps(0b1111) == 2 * 50


def test_a_broken_pair_is_worth_less_than_a_whole_one() -> None:
    assert worth(PAIRS, 0b0011) > worth(PAIRS, 0b0101)


def test_worth_counts_the_most_sets_that_fit_beside_each_other() -> None:
    """The chain 0-1-2-3 has two pairs, if the one in the middle is not taken."""
    chain = drawn(4, {(0, 1): 100, (1, 2): 100, (2, 3): 100})
    both = 2 * worth(chain, 0b0011)
    assert worth(chain, 0b1111) == both + 3 * 4  # the only four's


def test_more_free_gpus_are_never_worth_less() -> None:
    shape = machine("dgx1-v100")
    value = Worth(shape, SetSpeeds(shape))
    for free in range(ALL):
        assert all(value.linked(free) <= value.linked(free | 1 << place) for place in range(8))


def test_gpus_in_use_count_by_their_odds_to_come_free() -> None:
    """One pair and a third GPU: three of ten pods ask for the pair, four for all three."""
    shape = drawn(3, {(0, 1): 300})
    value = Worth(shape, SetSpeeds(shape))
    pair, whole = Fraction(3 * 2), Fraction(4 * 3)
    assert value.expected_linked(0b111) == pair + whole
    assert value.expected_linked(0b011) == pair + whole / 4
    assert value.expected_linked(0b101) == pair / 4 + whole / 4
    assert value.expected_linked(0b100) == pair / 16 + whole / 16


def test_what_fits_at_once_counts_free_gpus_alone() -> None:
    value = Worth(PAIRS, SetSpeeds(PAIRS))
    assert value.linked(0b010101) == 0
    assert value.linked(ALL) == 3 * 2 * 4 + 4 * 8  # any four are as fast as any


@pytest.mark.parametrize("n", [6, 8])
def test_where_all_sets_are_alike_the_fuller_node_is_taken_whatever_its_size(n: int) -> None:
    table = ScoreTable(drawn(n, {}))
    by_free = [weighed(table, (1 << free) - 1, gpu_request(2)) for free in range(3, n + 1)]
    assert by_free == sorted(set(by_free), reverse=True)


def test_a_node_that_is_nearly_whole_is_spared_though_a_pair_breaks_elsewhere() -> None:
    """Seven free GPUs are one in use from a whole node; the last pair of a full one is less."""
    table = ScoreTable(PAIRS)
    assert weighed(table, 0b11, gpu_request(1)) > weighed(table, 0b1111111, gpu_request(1))


def test_of_nodes_as_full_the_one_goes_whose_pairs_are_broken_already() -> None:
    table = ScoreTable(PAIRS)
    assert weighed(table, 0b010101, gpu_request(1)) > weighed(table, 0b000111, gpu_request(1))


def test_a_whole_pair_goes_before_two_halves() -> None:
    table = ScoreTable(PAIRS)
    assert weighed(table, 0b0011, gpu_request(2)) > weighed(table, 0b0101, gpu_request(2))


def test_a_single_gpu_goes_where_a_pair_is_broken_already() -> None:
    table = ScoreTable(PAIRS)
    assert weighed(table, 0b0111, gpu_request(1)) < weighed(table, 0b0001, gpu_request(1))


def test_of_equal_outcomes_the_fuller_node_is_taken() -> None:
    """A pair on each of two NUMA nodes are no better for four than a pair alone."""
    table = ScoreTable(machine("a100-pcie-pairs"))
    assert weighed(table, 0b000011, gpu_request(2)) > weighed(table, 0b110011, gpu_request(2))


def test_what_does_not_fit_scores_nothing() -> None:
    outcome = ScoreTable(PAIRS).outcome(0b0111, gpu_request(4))
    assert (outcome.taken, outcome.sets) == (0, {})


def test_gpus_that_the_class_does_not_have_are_not_free() -> None:
    assert weighed(ScoreTable(PAIRS), ALL << 8, gpu_request(1)) == NOTHING


def test_the_slowest_container_that_has_several_gpus_tells_the_speed() -> None:
    table = ScoreTable(drawn(5, {(0, 1): 300, (2, 3): 200}))
    assert (
        table.outcome(0b11111, gpu_request(1, 2)).gbps < table.outcome(0b11111, gpu_request(2)).gbps
    )
    assert table.outcome(0b01111, gpu_request(2, 2)).gbps == 200


def test_of_what_init_containers_had_only_what_is_used_on_is_reported() -> None:
    """The kubelet keeps all three for the pod, and reports the pair that the app has of them."""
    more_first = GpuRequest(
        steps=(ContainerRequest(gpus=3, ends=True), ContainerRequest(gpus=2)),
    )
    outcome = ScoreTable(PAIRS).outcome(0b0111, more_first)
    assert outcome.sets == {0b0111: Fraction(1)}
    assert outcome.reported == dict.fromkeys((0b0011, 0b0101, 0b0110), Fraction(1, 3))


def test_where_apps_use_all_that_init_containers_had_all_of_it_is_reported() -> None:
    less_first = GpuRequest(
        steps=(ContainerRequest(gpus=1, ends=True), ContainerRequest(gpus=2)),
    )
    outcome = ScoreTable(PAIRS).outcome(0b0111, less_first)
    assert outcome.reported is outcome.sets


def test_speed_is_that_of_the_apps_where_init_containers_end() -> None:
    """The app gets any two of the three that the init container had."""
    table = ScoreTable(drawn(3, {(0, 1): 300}))
    both = GpuRequest(steps=(ContainerRequest(gpus=3, ends=True), ContainerRequest(gpus=2)))
    only_init = GpuRequest(steps=(ContainerRequest(gpus=2, ends=True),))
    assert round(table.outcome(0b111, both).gbps) == round((300 + 10 + 10) / 3)
    assert table.outcome(0b011, only_init).gbps == 300


def test_ideal_is_the_best_that_the_class_has_for_each_container() -> None:
    table = ScoreTable(PAIRS)
    assert [
        table.ideal(each)
        for each in (gpu_request(1), gpu_request(2), gpu_request(2, 1), gpu_request(2, 3))
    ] == [
        0,
        300,
        300,
        10,
    ]


def test_likely_is_the_set_of_the_highest_odds_and_the_lowest_gpus() -> None:
    table = ScoreTable(PAIRS)
    assert table.likely(0b11110110, gpu_request(2)) == 0b00110000
    assert table.likely(0b11110110, gpu_request(1)) == 0b00000010
    assert table.likely(0b1, gpu_request(2)) == LOST


def test_linked_gpus_that_are_asked_for_come_before_speed() -> None:
    """One class has faster PCIe than the other has NVLink; who asks for NVLink is sent there."""
    linked, fast = (
        ScoreTable(drawn(3, {(0, 1): 50, (1, 2): 60})),
        ScoreTable(replace(drawn(2, {(0, 1): 60}), nvlinks=((0, 0), (0, 0)))),
    )
    nvlink = gpu_request(2, link=Link.NVLINK)
    assert weighed(linked, 0b11, nvlink) > weighed(fast, 0b11, nvlink)
    assert weighed(linked, 0b11, gpu_request(2)) < weighed(fast, 0b11, gpu_request(2))


def test_gpus_of_one_numa_node_come_before_speed_if_asked_for() -> None:
    near = ScoreTable(replace(drawn(3, {(0, 1): 50, (1, 2): 60}), numa=(1, 1, 0)))
    across = ScoreTable(replace(drawn(2, {(0, 1): 60}), numa=(0, 1)))
    unknown = ScoreTable(replace(drawn(2, {(0, 1): 60}), numa=(-1, -1)))
    scores = [
        weighed(each, 0b11, gpu_request(2, link=Link.NUMA)) for each in (near, across, unknown)
    ]
    assert scores[0] > scores[1] == scores[2]


def test_a_pod_that_wishes_for_a_nic_goes_where_one_is_close_to_all_its_gpus() -> None:
    close = ScoreTable(replace(drawn(2, {}), nics=((1, 5), (2, 3))))
    far = ScoreTable(replace(drawn(2, {}), nics=((1, 5), (5, 1))))
    without = ScoreTable(drawn(2, {}))
    scores = [weighed(each, 0b11, gpu_request(2, nic=True)) for each in (close, far, without)]
    assert scores[0] > scores[1] == scores[2]
    assert len({weighed(each, 0b11, gpu_request(2)) for each in (close, far, without)}) == 1


def test_a_node_that_may_refuse_the_pod_comes_after_one_that_does_not() -> None:
    strict = Policies(tm=TopologyManager.SINGLE_NUMA_NODE)
    refuses = ScoreTable(replace(drawn(2, {(0, 1): 300}), numa=(0, 1)), strict)
    takes = ScoreTable(drawn(2, {}), strict)
    outcome = refuses.outcome(0b11, gpu_request(2))
    assert (outcome.taken, dict(outcome.sets)) == (0, {LOST: Fraction(1)})
    assert weighed(takes, 0b11, gpu_request(2)) > NOTHING


def test_odds_of_a_crash_weigh_more_than_speed_and_links() -> None:
    """The plugin crashes over some pods on the faster nodes."""
    links = drawn(5, dict.fromkeys(pairs(0b11111), 900))
    may_crash = replace(links, points=drawn(5, {(0, 1): 50}).points)
    fast, safe = ScoreTable(may_crash), ScoreTable(drawn(5, {}))
    asked = gpu_request(3, link=Link.NVLINK)
    outcome = fast.outcome(0b11111, asked)
    assert 0 < outcome.sets[LOST] < 0.5
    assert outcome.linked == 1 - float(outcome.sets[LOST])
    assert outcome.gbps > safe.outcome(0b11111, asked).gbps
    assert outcome.taken < safe.outcome(0b11111, asked).taken


def test_a_plugin_that_may_crash_over_the_pod_is_a_refusal() -> None:
    """Of five GPUs three are asked for; the two that are left over have the most links."""
    links = {(0, 1): 100, (0, 2): 100, (1, 2): 100, (3, 4): 1800}
    assert ScoreTable(drawn(5, links)).outcome(0b11111, gpu_request(3)).sets == {LOST: Fraction(1)}


def test_pods_of_very_many_containers_are_nothing_that_is_said() -> None:
    inits = GpuRequest(steps=(ContainerRequest(gpus=1, ends=True),) * 17)
    assert weighed(ScoreTable(PAIRS), ALL, inits) == NOTHING


def test_what_is_not_known_is_worked_out_later_and_once() -> None:
    later = Later()
    table = ScoreTable(PAIRS, later=later)
    assert [table.known(ALL, gpu_request(2)), table.known(ALL, gpu_request(2))] == [None, None]
    assert later.run() == 1
    assert table.known(ALL, gpu_request(2)) == table.outcome(ALL, gpu_request(2))


def test_no_more_is_put_off_than_can_be_done_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.score_table._MOST_DUE", 1)
    later = Later()
    table = ScoreTable(PAIRS, later=later)
    assert [table.known(free, gpu_request(2)) for free in (0b11, 0b110)] == [None, None]
    assert later.run() == 1
    assert table.known(0b110, gpu_request(2)) is None  # there is room for it now
    assert later.run() == 1
    assert table.known(0b110, gpu_request(2)) is not None


def test_of_too_many_outcomes_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.score_table._MOST_OUTCOME_BYTES", 2000)
    table = ScoreTable(PAIRS)
    worked_out = (0b01, 0b11, 0b111)
    for free in worked_out:
        table.outcome(free, gpu_request(1))
    assert [table.kept(free, gpu_request(1)) is not None for free in worked_out] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(("gpus", "most"), [(8, 16), (16, 3)])
def test_of_pods_with_too_many_containers_nothing_is_kept(gpus: int, most: int) -> None:
    later = Later()
    table = ScoreTable(drawn(gpus, {}), later=later)
    many = gpu_request(*[1] * (most + 1))
    for found in (table.outcome(ALL, many), table.known(ALL, many), table.kept(ALL, many)):
        assert found is not None
        assert (found.sets, found.taken, found.given_up) == ({}, 0, False)
    assert table.bytes == 0
    assert table.kept(ALL, gpu_request(*[1] * most)) is None


def test_a_full_table_knows_every_plain_wish() -> None:
    later = Later()
    table = ScoreTable(drawn(3, {}), later=later)
    wishes = [gpu_request(gpus) for gpus in (1, 2, 3)]
    for wish in wishes:
        table.fill(wish)
    assert all(table.known(free, each) for free in range(8) for each in wishes)
    assert later.run() == 0


def test_likely_of_a_small_class_is_worked_out_at_once() -> None:
    """The lowest free GPUs, 0 and 2, are no pair."""
    later = Later()
    assert ScoreTable(PAIRS, later=later).likely(0b1101, gpu_request(2)) == 0b1100


def test_likely_of_a_large_class_has_the_right_number_before_the_set_is_known() -> None:
    table = ScoreTable(drawn(9, {}), later=Later())
    assert table.likely(0b111111110, gpu_request(2, 1)) == 0b1110


def relabelled(shape: Shape, order: tuple[int, ...]) -> Shape:
    """GPU ``order[i]`` is the one at place i."""

    def moved(matrix: Matrix) -> Matrix:
        return tuple(tuple(matrix[i][j] for j in order) for i in order)

    return Shape(
        n=shape.n,
        points=moved(shape.points),
        gbps=moved(shape.gbps),
        nvlinks=moved(shape.nvlinks),
        numa=tuple(shape.numa[i] for i in order),
        nics=tuple(tuple(nic[i] for i in order) for nic in shape.nics),
    )


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Up to five GPUs, with links, NUMA nodes and a NIC anyhow."""
    n = draw(st.integers(1, 5))
    strengths = st.sampled_from([10, 20, 100, 200])
    links: Links = {pair: draw(strengths) for pair in pairs((1 << n) - 1)}
    places = st.tuples(*[st.integers(-1, 1)] * n)
    return replace(
        drawn(n, links), numa=draw(places), nics=(draw(st.tuples(*[st.integers(1, 5)] * n)),)
    )


wishes = st.builds(
    gpu_request,
    st.integers(1, 3),
    st.integers(1, 2),
    link=st.sampled_from(Link),
    nic=st.booleans(),
) | st.builds(gpu_request, st.integers(1, 4), link=st.sampled_from(Link), nic=st.booleans())


@settings(max_examples=150, deadline=None)
@given(shape=shapes(), asked=wishes, tm=st.sampled_from(TopologyManager), data=st.data())
def test_another_order_of_the_gpus_keeps_the_scores(
    shape: Shape, asked: GpuRequest, tm: TopologyManager, data: st.DataObject
) -> None:
    """Exactly: the expectations are of whole numbers and fractions, never of floats. What NVIDIA's
    plugin hands out goes by the order."""
    order = tuple(data.draw(st.permutations(range(shape.n))))
    policies = Policies(tm=tm, al=DevicePluginPolicy.RANDOM)
    here, there = ScoreTable(shape, policies), ScoreTable(relabelled(shape, order), policies)
    for free in range(1 << shape.n):
        renamed = sum(1 << place for place, was in enumerate(order) if free >> was & 1)
        assert weighed(here, free, asked) == weighed(there, renamed, asked)


@settings(max_examples=50, deadline=None)
@given(shape=shapes(), asked=wishes, tm=st.sampled_from(TopologyManager))
def test_the_same_is_answered_whatever_was_asked_before(
    shape: Shape, asked: GpuRequest, tm: TopologyManager
) -> None:
    everything = range(1 << shape.n)
    up, down = ScoreTable(shape, Policies(tm=tm)), ScoreTable(shape, Policies(tm=tm))
    upwards = {free: up.outcome(free, asked) for free in everything}
    for gpus in range(shape.n):
        down.fill(gpu_request(gpus + 1))
    downwards = {free: down.outcome(free, asked) for free in reversed(everything)}
    assert upwards == downwards


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), size=st.integers(2, 4))
def test_where_as_much_is_kept_the_faster_set_is_not_ranked_lower(shape: Shape, size: int) -> None:
    table = ScoreTable(shape)
    alike: dict[float, list[tuple[float, Aims]]] = {}
    for free in range(1, 1 << shape.n):
        outcome = table.outcome(free, gpu_request(size))
        if outcome.sets and LOST not in outcome.sets:
            kept = round(table.linked_worth(free) - outcome.kept, 6)
            found = outcome.gbps, weighed(table, free, gpu_request(size))
            alike.setdefault(kept, []).append(found)
    for nodes in alike.values():
        for (slow_gbps, slow), (fast_gbps, fast) in itertools.permutations(nodes, 2):
            if slow_gbps + 0.01 < fast_gbps:  # what an aim tells apart
                assert slow < fast
                assert ranks([slow, fast])[1] == BEST
