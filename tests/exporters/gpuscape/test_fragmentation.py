# SPDX-License-Identifier: Apache-2.0
"""How well free GPUs are linked, by hand on known machines."""

from __future__ import annotations

import pytest

from discovery.model import Topology
from exporters.gpuscape.fragmentation import Free, free
from tests import build
from tests.exporters.gpuscape_series import linked

SWITCHED = linked([[0 if i == j else 12 for j in range(8)] for i in range(8)])
PAIRS = linked([[12 if i // 2 == j // 2 and i != j else 0 for j in range(4)] for i in range(4)])
MESH = linked(
    [  # DGX-1: two islands of four, each GPU linked with one across
        [0, 1, 1, 2, 2, 0, 0, 0],
        [1, 0, 2, 1, 0, 2, 0, 0],
        [1, 2, 0, 2, 0, 0, 1, 0],
        [2, 1, 2, 0, 0, 0, 0, 1],
        [2, 0, 0, 0, 0, 1, 1, 2],
        [0, 2, 0, 0, 1, 0, 2, 1],
        [0, 0, 1, 0, 1, 2, 0, 2],
        [0, 0, 0, 1, 2, 1, 2, 0],
    ]
)
NONE = linked([[0] * 4] * 4)


def bus_ids(*places: int) -> set[str]:
    return {build.gpu(at).bus_id for at in places}


@pytest.mark.parametrize(
    ("topology", "places", "island", "fragmentation"),
    [
        (SWITCHED, (0, 3, 7), 3, 0),  # any three of them are an island
        (SWITCHED, (5,), 1, 0),
        (PAIRS, (0, 1), 2, 0),
        (PAIRS, (0, 2), 1, 0.5),  # two free ones could be a pair
        (PAIRS, (0, 1, 2), 2, 0),  # more than two are never an island here
        (PAIRS, (0, 1, 2, 3), 2, 0),
        (MESH, (0, 1, 2, 3), 4, 0),
        (MESH, (0, 5), 1, 0.5),
        (MESH, (0, 4), 2, 0),  # the link across
        (MESH, (0, 1, 6, 7), 2, 0.5),  # half of the four that there could be
        (MESH, (0, 1, 2, 4, 5, 7), 3, 0.25),  # best of six: four
        (NONE, (0, 1, 2), 1, 0),  # no allocation took links that never were
    ],
)
def test_fragmentation_is_what_lacks_of_the_best_island_of_so_many(
    topology: Topology, places: tuple[int, ...], island: int, fragmentation: float
) -> None:
    found = free(topology, bus_ids(*places))

    assert (found.gpus, found.island, found.fragmentation) == (len(places), island, fragmentation)


def test_without_free_gpus_there_is_no_ratio() -> None:
    assert free(SWITCHED, ()) == Free(gpus=0, island=0, best=0)
    assert free(SWITCHED, ()).fragmentation is None


def test_links_that_one_end_does_not_see_or_that_are_not_known_join_nothing() -> None:
    half = linked([[0, 2], [0, 0]])
    unknown = linked([[0, None], [None, 0]])

    assert free(half, bus_ids(0, 1)).island == 1
    assert free(unknown, bus_ids(0, 1)).island == 1


def test_a_free_gpu_outside_of_the_topology_stands_alone() -> None:
    found = free(linked([[0]]), bus_ids(7))

    assert (found.gpus, found.island, found.fragmentation) == (1, 1, 0)
