# SPDX-License-Identifier: Apache-2.0
"""The placement benchmark on a small fleet: what it has to show there, it shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.gpu_request import wish
from labelers.annotations import topology_of
from scheduler.scores.class_tables import ScoreTables
from scheduler.simulation.fleet_replay import Summary
from scheduler.simulation.workload import USUAL
from tests.bench.placement import Plugin, measure, quads
from tests.bench.placement_page import (
    NOW,
    OTHER_POLICY,
    OURS,
    PACK,
    REFERENCE,
    SPREAD,
    Cell,
    page,
    sections,
)
from tests.kubelet.allocator import Allocator
from tests.observed import observed
from tests.scheduler.simulated import kind, seeded

ARMS = (SPREAD, PACK, REFERENCE, *OURS, OTHER_POLICY)


@pytest.fixture(scope="module")
def allocator() -> Iterator[Allocator]:
    """Tests that use it are marked ``cluster``, since it has to be built."""
    with Allocator() as running:
        yield running


def summary(*, wait: float = 0.0, ideal: float = 1.0, lost: int = 0) -> Summary:
    return Summary(
        pods=10,
        lost=lost,
        ideal_ratio=ideal,
        speed_ratio=ideal,
        mean_wait_seconds=wait,
        longest_wait_seconds=wait,
    )


def cell(**runs: list[Summary]) -> Cell:
    return Cell(machine="hgx-h100", load=0.95, runs=runs)


def test_waits_are_compared_over_the_same_seeds() -> None:
    found = cell(ours=[summary(wait=2), summary(wait=9)], pack=[summary(wait=4), summary(wait=6)])
    ratio, error = found.wait_ratio("ours", "pack")
    assert (ratio, round(error, 9)) == (1.1, 0.5)  # without one 1.5, without the other 0.5


def test_where_nobody_waits_there_is_no_ratio() -> None:
    found = cell(ours=[summary()] * 2, pack=[summary()] * 2)
    assert all(map(math.isnan, found.wait_ratio("ours", "pack")))


def test_every_arm_stands_in_the_tables() -> None:
    runs = {name: [summary(wait=1, ideal=0.5)] * 2 for name in ARMS}
    ideals, _, waits = sections("assumed sizes", [cell(**runs)])
    assert ideals.rows == (
        ("NVSwitch, 0.95", "50.0 %", "50.0 %", "50.0 %", "50.0 %", *["1.000"] * 5),
    )
    assert waits.rows[0][-1] == "1.00 ± 0.00"
    assert all(len(each.columns) == len(each.rows[0]) for each in (ideals, waits))


def test_the_page_says_over_how_many_pods_the_device_plugin_failed() -> None:
    runs = {name: [summary(wait=1, lost=3)] * 2 for name in ARMS}
    assert "The device plugin failed over 48 pods." in page({"assumed sizes": [cell(**runs)]})


def test_quads_are_joined_within_and_not_between(tmp_path: Path) -> None:
    found = topology_of(quads(tmp_path))
    assert found.n == 8
    joined = {(a, b) for a in range(8) for b in range(a) if found.links(a, b)}
    assert joined == {(a, b) for a in range(8) for b in range(a) if a // 4 == b // 4}


@pytest.mark.cluster
def test_the_device_plugin_gives_linked_gpus_and_says_so_again(allocator: Allocator) -> None:
    plugin = Plugin(allocator, observed("a100-pcie-pairs").snapshot)
    given = {plugin.give(kind(ScoreTables()), 0b1111, wish(2), seeded(seed)) for seed in range(50)}
    assert given == {0b0011, 0b1100}


@pytest.mark.cluster
def test_ours_finds_what_foresight_finds_and_far_more_than_bin_packing(
    allocator: Allocator,
) -> None:
    (found,) = measure(
        allocator,
        "a100-pcie-pairs",
        USUAL,
        loads=[0.85],
        nodes=32,
        pods=3000,
        seeds=1,
        seeds_of_waits=2,
    )
    best = found.ideal(REFERENCE)
    assert found.ideal(NOW) > 0.99 * best
    assert found.ideal("lag 0.5 s") > 0.97 * best
    assert found.ideal(PACK) < 0.9 * best
    assert found.ideal(OTHER_POLICY) < 0.9 * best
    assert found.lost == 0
    assert {name: len(runs) for name, runs in found.runs.items()} == {
        name: 2 if name in (PACK, NOW) else 1 for name in ARMS
    }
