# SPDX-License-Identifier: Apache-2.0
"""The reference of the placement benchmark: each of its schedulers, and its own simulation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler.simulation import choosers
from scheduler.simulation.fleet_replay import Choose, ReplaySetup, replay
from scheduler.simulation.workload import Arrival
from tests.bench.placement_arms import AHEAD, FASTEST, PACK, SPREAD
from tests.bench.placement_fleets import WORKLOADS, fleet_of
from tests.bench.placement_reference import (
    Day,
    Landed,
    Pod,
    Policy,
    fastest,
    look_ahead,
    pack,
    spread,
)
from tests.bench.placement_runs import Key, Run, kind_of, run, types_of
from tests.scheduler.simulated import seeded

FLEET = "3*dgx1-v100+1*hgx-h100"
FAST = 370.0
"""GB/s of any set behind the NVSwitch of an H100 machine, by the judge."""


def play(policy: Policy, pods: Sequence[Pod], fleet: str = FLEET) -> list[Landed]:
    return Day(types_of(fleet, choosers.predicted), pods, policy, seeded()).play()


@pytest.mark.parametrize(("policy", "choose"), [(pack, choosers.pack), (spread, choosers.spread)])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_the_stock_arms_are_those_of_the_products_own_simulation(
    policy: Policy, choose: Choose, load: float
) -> None:
    """Two simulations that share no code place the same pods: equal up to draws by lot."""
    fleet = fleet_of("10*dgx1-v100")
    arrivals = WORKLOADS["usual"].arrivals(80, load, 6000, seeded())
    setup = ReplaySetup(kinds=tuple(kind_of(each.name) for each in fleet), give=choosers.predicted)
    theirs = replay(setup, arrivals, choose, seeded())
    ours = play(policy, [pod_of(each) for each in arrivals], "10*dgx1-v100")
    assert [each.size for each in ours] == [each.wish.gpus for each in theirs]
    assert mean([each.gbps for each in ours]) == pytest.approx(
        mean([each.gbps for each in theirs]), rel=0.03
    )
    waits = mean([each.wait_seconds for each in theirs])
    assert mean([each.wait_seconds for each in ours]) == pytest.approx(waits, rel=0.2, abs=1)


def pod_of(arrival: Arrival) -> Pod:
    return Pod(arrival.at_seconds, arrival.lasts_seconds, arrival.wish.gpus)


def mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures)


def test_the_fastest_set_is_taken_and_a_single_gpu_goes_to_the_slow_machine() -> None:
    pods = [Pod(0.0, 9.0, 1), Pod(1.0, 9.0, 4), Pod(2.0, 9.0, 4), Pod(3.0, 9.0, 2)]
    speeds = [each.gbps for each in play(fastest, pods)]
    assert speeds[:3] == [0.0, FAST, FAST]
    assert 0 < speeds[3] < FAST


def test_who_knows_the_hour_leaves_the_fast_machine_to_the_pod_that_comes_for_it() -> None:
    """The first pod would be faster by less than the second, which needs all of the machine."""
    pods = [Pod(0.0, 500.0, 2), Pod(1.0, 500.0, 8)]
    assert play(fastest, pods)[0].gbps == FAST
    first, second = play(look_ahead, pods)
    assert first.gbps < FAST < second.gbps


def test_what_comes_after_the_hour_or_after_the_pods_own_end_is_not_known() -> None:
    for lasts in (4000.0, 100.0):
        pods = [Pod(0.0, lasts, 2), Pod(3700.0, 500.0, 8)]
        assert play(look_ahead, pods)[0].gbps == FAST


def test_a_pod_that_waits_gets_the_gpus_that_come_free_and_smaller_ones_pass_it() -> None:
    pods = [Pod(0.0, 10.0, 8), Pod(1.0, 5.0, 4), Pod(2.0, 5.0, 8), Pod(3.0, 9.0, 1)]
    waits = [each.wait_seconds for each in play(pack, pods, "2*hgx-h100")]
    assert waits == [0.0, 0.0, 8.0, 0.0]


def key(spec: str, mix: str, arm: str, *, load: float, pods: int = 1500) -> Key:
    return Key(fleet=spec, mix=mix, load=load, arm=arm, seed=0, pods=pods)


@pytest.mark.parametrize("mix", ["usual", "trace"])
@pytest.mark.parametrize(
    "spec", ["6*dgx1-v100+2*hgx-h100", "3*dgx1-v100+3*a100-pcie-pairs+2*hgx-h100"]
)
def test_both_ways_of_the_reference_are_faster_than_the_stock_scheduler(
    spec: str, mix: str
) -> None:
    """Over the GPUs of all pods with several; and who knows the hour is the faster of the two."""

    def played(arm: str) -> Run:
        return run(key(spec, mix, arm, load=0.7), choosers.predicted)

    stock = max(played(arm).weighted_speed for arm in (SPREAD, PACK))
    assert played(FASTEST).weighted_speed > stock
    assert played(AHEAD).weighted_speed > played(FASTEST).weighted_speed - 0.01
