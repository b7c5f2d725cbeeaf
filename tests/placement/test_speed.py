# SPDX-License-Identifier: Apache-2.0
"""Speeds of sets that can be worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.masks import members, subsets
from placement.rings import has_ring, most_relayed_rings, most_rings
from placement.speed import SetSpeeds
from placement.workspace import TooMuchWork, Workspace
from tests.scheduler.shapes import drawn, machine

QUAD, TWO_PAIRS = 0b1111, 0b110011
"""On a DGX-1: all of one CPU, and two pairs across CPUs."""


def links(n: int, counts: dict[tuple[int, int], int]) -> list[list[int]]:
    return [[counts.get((min(i, j), max(i, j)), 0) for j in range(n)] for i in range(n)]


def complete(n: int, count: int = 1) -> list[list[int]]:
    return links(n, dict.fromkeys(itertools.combinations(range(n), 2), count))


def nothing(_steps: int) -> None:
    return


@pytest.mark.parametrize(
    ("given_links", "rings"),
    [
        pytest.param(links(3, {(0, 1): 2, (1, 2): 1, (0, 2): 3}), 1, id="the thinnest side"),
        pytest.param(links(4, {(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 3): 1}), 1, id="a square"),
        pytest.param(links(4, {(0, 1): 1, (0, 2): 1, (0, 3): 1}), 0, id="a star"),
        pytest.param(complete(5), 2, id="five all joined: two rings take every link"),
        pytest.param(complete(4), 1, id="four all joined: two links are left over"),
        pytest.param(complete(4, 4), 6, id="a quad of A100: all links of all GPUs"),
        pytest.param(complete(8), 3, id="eight all joined"),
        pytest.param(
            links(6, {p: 1 for t in ((0, 1, 2), (3, 4, 5)) for p in itertools.combinations(t, 2)})
            , 0, id="two triangles that nothing joins",
        ),
        pytest.param(
            links(6, {
                **{p: 9 for t in ((0, 1, 2), (3, 4, 5)) for p in itertools.combinations(t, 2)},
                (0, 3): 2, (1, 4): 3,
            }),
            2, id="two triangles: every ring needs two of the five links between them",
        ),
    ],
)  # fmt: skip
def test_rings_that_share_no_link(given_links: list[list[int]], rings: int) -> None:
    assert most_rings(given_links, nothing) == rings


def test_a_step_may_go_by_way_of_a_third_gpu_where_no_link_is() -> None:
    """Along a path of three: there and back, each link once in each direction."""
    assert most_relayed_rings(links(3, {(0, 1): 1, (1, 2): 1}), nothing) == 1
    assert most_relayed_rings(links(3, {(0, 1): 2, (1, 2): 2}), nothing) == 2


def test_a_step_does_not_go_by_way_of_two_gpus() -> None:
    assert most_relayed_rings(links(4, {(0, 1): 1, (1, 2): 1, (2, 3): 1}), nothing) == 1
    path_of_five = {(0, 1): 9, (1, 2): 9, (2, 3): 9, (3, 4): 9}
    assert most_relayed_rings(links(5, path_of_five), nothing) == 9
    spider = {(0, 1): 9, (1, 2): 9, (0, 3): 9, (3, 4): 9, (0, 5): 9, (5, 6): 9}
    assert most_relayed_rings(links(7, spider), nothing) == 0


def test_rings_by_way_of_third_gpus_run_in_either_direction_however_gpus_are_numbered() -> None:
    """Three GPUs of one DGX-1 board in a triangle, and one that a single link joins to them."""
    triangle = {(0, 1): 2, (0, 2): 4, (1, 2): 2}
    for tail in range(3):
        for order in itertools.permutations(range(4)):
            counts = {**triangle, (tail, 3): 4}
            named = {
                (min(order[i], order[j]), max(order[i], order[j])): count
                for (i, j), count in counts.items()
            }
            assert most_relayed_rings(links(4, named), nothing) == 4


@pytest.mark.parametrize(
    ("rings_of", "given_links", "rings"),
    [
        pytest.param(
            most_rings,
            [
                [0, 2, 4, 2, 2, 6],
                [2, 0, 0, 4, 2, 2],
                [4, 0, 0, 4, 4, 2],
                [2, 4, 4, 0, 6, 0],
                [2, 2, 4, 6, 0, 4],
                [6, 2, 2, 0, 4, 0],
            ],
            5,
            id="six GPUs",
        ),
        pytest.param(
            most_relayed_rings,
            links(5, {(0, 1): 2, (0, 2): 2, (0, 3): 4, (1, 2): 4, (2, 4): 2, (3, 4): 2}),
            4,
            id="by way of third GPUs",
        ),
    ],
)
def test_a_search_ends_with_as_many_rings_as_one_gpu_has_links_for(
    rings_of: Callable[[list[list[int]], Callable[[int], None]], int],
    given_links: list[list[int]],
    rings: int,
) -> None:
    """Else it tries on for thousands of steps, and finds no more."""
    steps: list[int] = []
    assert rings_of(given_links, steps.append) == rings
    assert sum(steps) < 1000


def test_gpus_that_nvlink_does_not_join_have_no_ring_of_it() -> None:
    assert most_relayed_rings(links(4, {(0, 1): 4, (2, 3): 4}), nothing) == 0


def test_a_ring_leads_through_all() -> None:
    bow = {(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)}
    assert not has_ring(lambda i, j: (min(i, j), max(i, j)) in bow, range(5), nothing)
    joined = bow | {(1, 3)}
    assert has_ring(lambda i, j: (min(i, j), max(i, j)) in joined, range(5), nothing)


def test_on_a_dgx_1_two_rings_are_twice_as_fast_as_one() -> None:
    """Four GPUs of one CPU have nine NVLinks and two rings; two pairs across have six."""
    speeds = SetSpeeds(machine("dgx1-v100"))
    assert speeds.gbps(QUAD) == 100
    assert speeds.gbps(TWO_PAIRS) == 50
    assert speeds.gbps(0xFF) == 150
    assert speeds.fastest(4) == (0b00001111, 0b11110000)


def test_a_set_of_which_a_third_gpu_closes_the_ring_is_faster_than_pcie() -> None:
    speeds = SetSpeeds(machine("dgx1-v100"))
    by_speed = {speeds.gbps(group) for group in subsets(0xFF, 3)}
    assert by_speed == {10, 25, 50}


def test_gpus_behind_nvswitch_have_all_their_links() -> None:
    speeds = SetSpeeds(machine("hgx-h100"))
    assert {speeds.gbps(group) for size in (2, 4, 8) for group in subsets(0xFF, size)} == {468}


def test_behind_nvswitch_the_best_set_has_the_gpus_with_most_links() -> None:
    whole = machine("hgx-h100")
    slow = [
        tuple(10 if i == 3 or j == 3 else speed for j, speed in enumerate(row))
        for i, row in enumerate(whole.gbps)
    ]
    degraded = SetSpeeds(replace(whole, gbps=tuple(slow)))
    assert [degraded.ideal(size) for size in (2, 7, 8)] == [46800, 46800, 1000]


def test_no_set_is_larger_than_the_node() -> None:
    assert [SetSpeeds(machine("gb200")).ideal(size) > 0 for size in (1, 2, 4, 5)] == [
        False,
        True,
        True,
        False,
    ]


@settings(max_examples=40, deadline=None)
@given(n=st.integers(3, 6), data=st.data())
def test_rings_are_no_more_than_any_cut_has_links_and_no_fewer_in_more_links(
    n: int, data: st.DataObject
) -> None:
    counts = {pair: data.draw(st.integers(0, 3)) for pair in itertools.combinations(range(n), 2)}
    found = most_rings(links(n, counts), nothing)
    for part in range(1, (1 << n) - 1):
        inside = members(part)
        cut = sum(count for (i, j), count in counts.items() if (i in inside) != (j in inside))
        assert 2 * found <= cut
    more = {pair: count + 1 for pair, count in counts.items()}
    assert most_rings(links(n, more), nothing) >= found


def test_a_search_that_is_too_much_work_ends() -> None:
    """Sixteen GPUs, each joined to most others."""
    mesh = drawn(16, {pair: 100 for pair in itertools.combinations(range(16), 2) if sum(pair) % 7})
    workspace = Workspace(most_steps=1000)
    with pytest.raises(TooMuchWork), workspace.counted():
        SetSpeeds(mesh, workspace).fastest(8)
