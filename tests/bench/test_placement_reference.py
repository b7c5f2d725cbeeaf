# SPDX-License-Identifier: Apache-2.0
"""The reference of the placement benchmark against every way to place a few pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import pytest

from api.gpu_request import GpuRequest, gpu_request
from scheduler.simulation.fleet_replay import (
    Choose,
    NodeKind,
    Placement,
    ReplayNode,
    ReplaySetup,
    replay,
)
from scheduler.simulation.workload import Arrival
from tests.bench.placement_arms import PACK, REFERENCE, SPREAD
from tests.bench.placement_fleets import Machine, fleet_of, machine
from tests.bench.placement_reference import Reference, worth
from tests.bench.placement_runs import JudgedTable, Key, run
from tests.scheduler.simulated import seeded

DAYS = {
    "2*dgx1-v100": 60,
    "2*quads": 60,
    "3*a100-pcie-pairs": 15,
    "3*dgx1-v100": 15,
    "4*dgx1-v100": 4,
    "2*dgx1-v100+1*hgx-h100": 8,
    "2*four-a100+1*dgx1-v100": 8,
}
"""Fleets to as many days as there is time to try all choices on."""
WITH_SMALL_NODES = ("16*four-a100+8*dgx1-v100", "16*four-a100+8*hgx-h100")
MIXED = (
    "3*dgx1-v100+1*hgx-h100",
    "3*a100-pcie-pairs+1*hgx-h100",
    "2*dgx1-v100+1*a100-pcie-pairs+1*hgx-h100",
)
RESIDENTS, PODS = 5, 7
"""Pods that every scheduler finds there already, and pods that come then."""


class OwnPart(JudgedTable):
    """Sets are as fast as the judge says, to the best of their own machine."""

    def gbps(self, group: int) -> float:
        best = self.judge.best(group.bit_count())
        return self.judge.gbps(group) / best if best else 0.0


@cache
def kind(name: str) -> NodeKind:
    its = machine(name)
    return NodeKind(name=name, gen=name, table=OwnPart(its.topology, its.judge))


def likely(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """A device plugin that always hands out the set that is most likely."""
    del chance
    return kind.table.likely(free, wish)


def day(seed: int) -> tuple[Arrival, ...]:
    """Residents that end one after the other, and pods that come meanwhile."""
    chance = seeded(f"day {seed}")

    def pod(at: int) -> Arrival:
        (size,) = chance.choices([1, 2, 4, 8], [6, 4, 3, 1])
        return Arrival(at_seconds=at, lasts_seconds=chance.uniform(3, 12), wish=gpu_request(size))

    return (*(pod(0) for _ in range(RESIDENTS)), *map(pod, range(1, 1 + PODS)))


def after_residents(choose: Choose) -> Choose:
    """Residents are where chance has put them; the others are placed by the scheduler."""
    left = RESIDENTS

    def chosen(nodes: Sequence[ReplayNode], wish: GpuRequest, chance: Random) -> Placement:
        nonlocal left
        left -= 1
        return Placement(node=chance.choice(nodes)) if left >= 0 else choose(nodes, wish, chance)

    return chosen


def value(fleet: Sequence[Machine], arrivals: Sequence[Arrival], choose: Choose) -> float:
    """Sum over the GPUs of pods with several: speed of the set to the best of its machine."""
    setup = ReplaySetup(kinds=tuple(kind(each.name) for each in fleet), give=likely)
    placed = replay(setup, arrivals, after_residents(choose), seeded())
    return sum(each.wish.gpus * each.gbps for each in placed[RESIDENTS:])


def best_of_all(fleet: Sequence[Machine], arrivals: Sequence[Arrival]) -> float:
    """The greatest value of any sequence of choices; nodes that are alike count as one."""
    return max(value(fleet, arrivals, choose) for choose in _every_choice())


def _every_choice() -> Iterator[Choose]:
    """Choosers that between them make every sequence of choices; each is good for one replay."""
    script: list[int] = []
    while True:
        counts: list[int] = []

        def choose(
            nodes: Sequence[ReplayNode],
            wish: GpuRequest,
            chance: Random,
            script: Sequence[int] = tuple(script),
            counts: list[int] = counts,
        ) -> Placement:
            del wish, chance
            unlike = list({(node.kind.name, node.free): node for node in nodes}.values())
            at = script[len(counts)] if len(counts) < len(script) else 0
            counts.append(len(unlike))
            return Placement(node=unlike[at])

        yield choose
        script += [0] * (len(counts) - len(script))
        while script and script[-1] + 1 >= counts[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


@pytest.mark.parametrize("spec", DAYS)
def test_the_reference_is_near_the_best_that_any_choices_reach(spec: str) -> None:
    """By its first aim. It does not know which pods come next; who tries all choices does."""
    fleet = fleet_of(spec)
    days = [day(seed) for seed in range(DAYS[spec])]
    best = sum(best_of_all(fleet, arrivals) for arrivals in days)
    found = sum(value(fleet, arrivals, Reference(fleet, likely).choose) for arrivals in days)
    assert 0.95 * best <= found <= best * (1 + 1e-9)


@pytest.mark.parametrize("mix", ["usual", "trace"])
@pytest.mark.parametrize("spec", MIXED)
def test_no_stock_scheduler_is_faster_in_a_mixed_fleet_than_the_reference(
    spec: str, mix: str
) -> None:
    """Over many pods, counted by their GPUs, to the best of the fleet."""
    found = {
        arm: sum(run(key(spec, mix, arm, seed), likely).weighted_speed for seed in range(3))
        for arm in (REFERENCE, SPREAD, PACK)
    }
    assert found[REFERENCE] > max(found[SPREAD], found[PACK])


@pytest.mark.parametrize("spec", WITH_SMALL_NODES)
def test_with_smaller_nodes_the_reference_is_faster_too_and_large_pods_do_not_starve(
    spec: str,
) -> None:
    found = {
        arm: [run(key(spec, "usual", arm, seed), likely) for seed in range(3)]
        for arm in (REFERENCE, SPREAD, PACK)
    }
    speed = {arm: sum(it.weighted_speed for it in runs) for arm, runs in found.items()}
    waits = {arm: sum(it.wait_seconds() for it in runs) for arm, runs in found.items()}
    assert speed[REFERENCE] > max(speed[SPREAD], speed[PACK])
    assert waits[REFERENCE] < 1.5 * waits[PACK]


def test_the_reference_leaves_room_to_pods_that_fit_on_large_nodes_alone() -> None:
    """Single GPUs are slow nowhere, and many."""
    fleet = "32*four-a100+16*dgx1-v100"

    def wait_seconds(arm: str) -> float:
        keys = [key(fleet, "trace", arm, seed, load=0.70, pods=3000) for seed in range(3)]
        return sum(run(it, likely).wait_seconds() for it in keys)

    assert 10 * wait_seconds(REFERENCE) < wait_seconds(SPREAD)


def key(spec: str, mix: str, arm: str, seed: int, *, load: float = 0.85, pods: int = 1500) -> Key:
    return Key(fleet=spec, mix=mix, load=load, arm=arm, seed=seed, pods=pods)


def test_every_choice_is_tried_once() -> None:
    """Two pods on two nodes that are not alike, where all fit: four ways."""
    fleet = fleet_of("1*dgx1-v100+1*hgx-h100")
    none = [Arrival(at_seconds=0, lasts_seconds=0.5, wish=gpu_request(1))] * RESIDENTS
    pods = [*none, *[Arrival(at_seconds=1, lasts_seconds=1, wish=gpu_request(2))] * 2]
    tried = [value(fleet, pods, choose) for choose in _every_choice()]
    assert len(tried) == 4
    assert len({*tried}) == 1  # each is a best set of its machine


def test_free_gpus_are_worth_most_where_best_sets_are_whole() -> None:
    its = machine("dgx1-v100")
    of = worth(its.name, its.judge, 8)
    assert of(0b11111111) > of(0b00001111) > of(0b00110011) > of(0b00000001)


def test_behind_a_switch_only_a_whole_node_is_worth_more_than_its_count() -> None:
    """Any two GPUs of as many are alike there, so nothing is lost by where they are."""
    its = machine("hgx-h100")
    of = worth(its.name, its.judge, 8)
    assert of(0b00001111) == of(0b10100101)
