# SPDX-License-Identifier: Apache-2.0
"""Rings are packed as NCCL packs them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import pytest

from tests.judge.links import drawn
from tests.judge.rings import Channels, closes, most_rings, narrowest_cut

QUAD = list(itertools.combinations(range(4), 2))


def room(channels: Mapping[tuple[int, int], int]) -> Channels:
    """The same in both directions."""
    return {**channels, **{(j, i): count for (i, j), count in channels.items()}}


def each(pairs: Iterable[tuple[int, int]], channels: int) -> Channels:
    return room(dict.fromkeys(pairs, channels))


def test_two_gpus_have_a_ring_for_each_link() -> None:
    assert most_rings((0, 1), each([(0, 1)], 2)) == 2


def test_three_gpus_in_a_triangle_have_a_ring_each_way_around() -> None:
    assert most_rings((0, 1, 2), each([(0, 1), (1, 2), (0, 2)], 1)) == 2


def test_the_narrowest_link_bounds_the_rings_of_a_triangle() -> None:
    assert most_rings((0, 1, 2), room({(0, 1): 2, (1, 2): 2, (0, 2): 1})) == 2


def test_four_gpus_with_two_links_for_each_pair_have_the_six_rings_that_nccl_found() -> None:
    """Source: github.com/NVIDIA/nccl/issues/713, a graph that NCCL wrote on four V100."""
    assert most_rings(range(4), each(QUAD, 2)) == 6


def test_single_links_of_four_gpus_have_room_for_two_rings_and_for_six_of_half_the_speed() -> None:
    """All three links of each GPU are used only by rings of half the speed."""
    assert most_rings(range(4), each(QUAD, 1)) == 2
    assert most_rings(range(4), each(QUAD, 2)) == 6


def test_no_ring_closes_on_a_line() -> None:
    line = each([(0, 1), (1, 2)], 1)
    assert most_rings((0, 1, 2), line) == 0
    assert not closes((0, 1, 2), lambda i, j: (i, j) in line)


def test_a_ring_closes_by_way_of_the_gpu_between_two() -> None:
    line = each([(0, 1), (1, 2)], 1)
    assert most_rings((0, 1, 2), line, relayed={(0, 2), (2, 0)}) == 1


def test_a_relayed_step_takes_room_on_both_links() -> None:
    """Both links have all of one ring, in each direction; two links have that of two rings."""
    wide = room({(0, 1): 2, (1, 2): 1})
    assert most_rings((0, 1, 2), wide, relayed={(0, 2), (2, 0)}) == 1
    assert most_rings((0, 1, 2), each([(0, 1), (1, 2)], 2), relayed={(0, 2), (2, 0)}) == 2


def test_a_step_goes_by_way_of_one_gpu_and_not_of_two() -> None:
    """From the ends of three branches of two links no ring leads around."""
    branches = each([(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6)], 1)
    gpus = range(7)
    apart = {(i, j) for i in gpus for j in gpus if i != j and (i, j) not in branches}
    assert narrowest_cut(gpus, branches) == 1
    assert most_rings(gpus, branches, relayed=apart) == 0


def test_gpus_that_no_link_joins_to_the_others_have_no_ring() -> None:
    two_pairs = each([(0, 1), (2, 3)], 4)
    assert narrowest_cut(range(4), two_pairs) == 0
    assert most_rings(range(4), two_pairs) == 0


@pytest.mark.parametrize("relayed", [(), {(0, 5), (5, 0)}])
def test_the_search_ends_where_rings_are_beyond_count(relayed: set[tuple[int, int]]) -> None:
    """Nine GPUs that all are joined have 40,320 rings."""
    links = drawn(9, dict.fromkeys(itertools.combinations(range(9), 2), 1)).nvlinks
    pairs = [(i, j) for i in range(9) for j in range(i) if links[i][j]]
    assert 4 <= most_rings(range(9), each(pairs, 1), relayed) <= 8
