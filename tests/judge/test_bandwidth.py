# SPDX-License-Identifier: Apache-2.0
"""Bandwidths of sets where NVLinks are few, PCIe is all there is, or switches add up."""

from __future__ import annotations

import itertools
from functools import cache

import pytest

from labelers.annotations import topology_of
from tests.judge.bandwidth import AMPERE, HOPPER, VOLTA, Generation, Judge
from tests.judge.links import drawn, links_of
from tests.observed import observed

GENERATIONS = {
    "dgx1-v100": VOLTA,
    "a100-pcie-pairs": AMPERE,
    "dgx-a100": AMPERE,
    "hgx-h100": HOPPER,
    "hgx-16": VOLTA,
}


@cache
def judge(machine: str) -> Judge:
    return Judge(links_of(topology_of(observed(machine).snapshot)), GENERATIONS[machine])


def group(*gpus: int) -> int:
    return sum(1 << gpu for gpu in gpus)


@pytest.mark.parametrize(
    ("gpus", "gbps"),
    [
        pytest.param((0, 3), 40.0, id="two links"),
        pytest.param((0, 1), 20.0, id="one link"),
        pytest.param((0, 5), 6.0, id="no link, two sockets"),
        pytest.param((0, 1, 2, 3), 80.0, id="four rings"),
        pytest.param((0, 1, 4, 5), 40.0, id="one ring each way across the sockets"),
        pytest.param((0, 1, 4), 20.0, id="a ring by way of the GPU in the middle"),
        pytest.param((0, 1, 6, 7), 6.0, id="two pairs that no NVLink joins"),
        pytest.param(range(8), 120.0, id="all six links of each GPU"),
    ],
)
def test_sets_of_a_dgx1(gpus: tuple[int, ...], gbps: float) -> None:
    assert judge("dgx1-v100").gbps(group(*gpus)) == gbps


def test_bridged_pairs_are_fast_and_what_is_more_than_a_pair_is_as_fast_as_pcie() -> None:
    pairs = judge("a100-pcie-pairs")
    assert pairs.gbps(group(0, 1)) == AMPERE.gpu
    assert pairs.gbps(group(0, 2)) == pairs.gbps(group(0, 1, 2)) == AMPERE.pcie
    assert pairs.gbps(group(0, 4)) == pairs.gbps(group(0, 1, 4)) == AMPERE.sockets


def test_behind_a_switch_all_sets_of_a_size_are_alike() -> None:
    for machine, size in (("dgx-a100", 4), ("hgx-h100", 6), ("hgx-16", 4)):
        its = judge(machine)
        sets = itertools.combinations(range(8), size)
        assert len({its.gbps(group(*gpus)) for gpus in sets}) == 1


def test_switches_that_add_up_count_from_five_gpus_on() -> None:
    its = judge("hgx-h100")
    assert its.gbps(group(*range(4))) == HOPPER.gpu < its.gbps(group(*range(5)))


def test_one_gpu_alone_has_no_bandwidth() -> None:
    assert judge("dgx1-v100").gbps(group(3)) == judge("dgx1-v100").gbps(0) == 0


def test_the_best_of_a_size_is_that_of_the_fastest_set() -> None:
    its = judge("dgx1-v100")
    assert [its.best(size) for size in (1, 2, 4, 8, 9)] == [0.0, 40.0, 80.0, 120.0, 0.0]


@pytest.mark.parametrize(
    ("level", "generation", "gbps"),
    [(1, VOLTA, 12.0), (2, VOLTA, 12.0), (4, VOLTA, 10.0), (5, VOLTA, 6.0), (1, AMPERE, 24.0)],
)
def test_pcie_is_slower_through_a_cpu_and_slowest_between_two(
    level: int, generation: Generation, gbps: float
) -> None:
    """From 6 to 12 GB/s with PCIe 3 and twice that with PCIe 4.
    Source: github.com/NVIDIA/nccl/issues/766, 2023-01-03."""
    assert Judge(drawn(4, {}, level=level), generation).gbps(group(0, 1, 2)) == gbps


def test_without_relays_a_set_that_closes_no_ring_has_pcie() -> None:
    line = drawn(3, {(0, 1): 2, (1, 2): 2}, level=1)
    assert Judge(line, VOLTA).gbps(0b111) == 40.0
    assert Judge(line, VOLTA, relays=False).gbps(0b111) == VOLTA.pcie


def test_a_broken_link_costs_what_its_rings_carried() -> None:
    links = dict.fromkeys(itertools.combinations(range(4), 2), 4)
    whole, broken = (drawn(4, each) for each in (links, {**links, (0, 1): 3}))
    assert Judge(whole, AMPERE).gbps(0b1111) == AMPERE.gpu
    assert Judge(broken, AMPERE).gbps(0b1111) == 220.0
