# SPDX-License-Identifier: Apache-2.0
"""The same pods are placed by all schedulers, and nothing is made of differences by chance."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from placement.class_tables import ScoreTables
from scheduler.simulation import workload
from scheduler.simulation.estimates import Figure, Verdict
from scheduler.simulation.experiment import OURS, PARTS, Plan, SchedulerResult, results
from scheduler.simulation.workload import Arrival, Mix
from tests.scheduler import fleets
from tests.scheduler.simulated import arrival, kind, seeded

GPUS = 8


@pytest.fixture
def tables() -> ScoreTables:
    return ScoreTables()


def drawn(
    tables: ScoreTables,
    *,
    nodes: int,
    pods: int,
    seeds: int,
    first: int = 1,
    machine: str = fleets.MACHINE,
) -> dict[str, SchedulerResult]:
    """Runs of pods of the usual sizes."""
    mix = Mix(pods=pods)
    gpus = GPUS * nodes
    return played(
        tables,
        [workload.drawn_arrivals(mix, gpus, seeded(str(first + at))) for at in range(seeds)],
        nodes=nodes,
        lives=mix.lives(gpus),
        machine=machine,
    )


def played(
    tables: ScoreTables,
    runs: Sequence[Sequence[Arrival]],
    *,
    nodes: int = 1,
    lives: float | None = None,
    machine: str = fleets.MACHINE,
) -> dict[str, SchedulerResult]:
    plan = Plan(
        kinds=(kind(tables, machine),) * nodes,
        runs=runs,
        lag_seconds=1.0,
        first_seed=1,
        lives=lives,
    )
    return {each.scheduler: each for each in results(plan, tables)}


def one_by_one(count: int, gpus: int = 2) -> list[Arrival]:
    """Each pod comes after the one before it has gone."""
    return [arrival(gpus, at=at * 10.0, lasts=5.0) for at in range(count)]


@pytest.mark.parametrize("machine", ["dgx1-v100", "a100-pcie-pairs"])
@pytest.mark.parametrize("first", range(1, 50, 10))
def test_four_nodes_and_200_pods_never_say_that_packing_is_better(
    tables: ScoreTables, machine: str, first: int
) -> None:
    found = drawn(tables, nodes=4, pods=200, seeds=8, first=first, machine=machine)[OURS]
    to_pack = {each.figure: each.verdict for each in found.compared if each.other == "pack"}
    assert to_pack.keys() == set(Figure)
    assert to_pack[Figure.BEST_SETS] is not Verdict.LESS
    assert to_pack[Figure.SPEED] is not Verdict.LESS
    assert to_pack[Figure.MEAN_WAIT] is not Verdict.MORE
    assert any("too small to say much" in each for each in found.warnings)


def test_one_seed_of_that_compares_nothing_and_says_so(tables: ScoreTables) -> None:
    for found in drawn(tables, nodes=4, pods=200, seeds=1).values():
        assert found.compared == ()
        assert found.all.ideal_ratio_error is None
        assert any("200 pods in 1 samples" in each for each in found.warnings)


def test_a_difference_that_is_large_enough_is_found(tables: ScoreTables) -> None:
    found = drawn(tables, nodes=8, pods=600, seeds=8)[OURS]
    verdicts = {(each.other, each.figure): each.verdict for each in found.compared}
    assert verdicts["spread", Figure.BEST_SETS] is Verdict.MORE
    assert verdicts["pack", Figure.BEST_SETS] is Verdict.MORE


def test_all_pods_of_all_seeds_count(tables: ScoreTables) -> None:
    for found in drawn(tables, nodes=2, pods=30, seeds=6).values():
        assert (found.all.pods, found.never_placed, found.samples) == (180, 0, 6)
        assert sum(its.pods for its in found.by_gpus.values()) == 180
        assert found.all.mean_wait_error_seconds is not None


def test_only_ours_is_compared_and_with_every_other(tables: ScoreTables) -> None:
    found = drawn(tables, nodes=2, pods=50, seeds=6)
    assert {each.other for each in found[OURS].compared} == {"spread", "pack", "foresight"}
    assert all(not its.compared for name, its in found.items() if name != OURS)


def test_seeds_draw_other_lots_for_the_same_pods(tables: ScoreTables) -> None:
    """Both runs have the same pods: what differs between them are lots alone."""
    mix = Mix(pods=150)
    runs = [workload.drawn_arrivals(mix, 4 * GPUS, seeded("1"))] * 2
    found = played(tables, runs, nodes=4, lives=20.0)["spread"]
    assert found.all.mean_wait_error_seconds != 0


def test_the_samples_of_one_run_are_its_parts(tables: ScoreTables) -> None:
    """The last tenth waits: in it, each pod comes before the one before it has gone."""
    late = [arrival(8, at=1000.0, lasts=10.0) for _ in range(3)]
    found = played(tables, [[*one_by_one(27, 8), *late]])["pack"]
    assert found.samples == PARTS
    assert found.all.mean_wait_seconds == pytest.approx(1.0)
    assert found.all.mean_wait_error_seconds == pytest.approx(2.262, abs=0.001)


def test_one_run_of_few_pods_is_too_small(tables: ScoreTables) -> None:
    found = played(tables, [one_by_one(4)])[OURS]
    assert (found.samples, found.compared) == (4, ())
    (warning,) = found.warnings
    assert "4 pods in 4 samples" in warning
    assert warning.endswith("; a longer file is needed")


def test_pods_that_no_node_can_hold_are_counted_and_not_compared(tables: ScoreTables) -> None:
    found = played(tables, [[arrival(16)]])[OURS]
    assert (found.never_placed, found.all.pods, found.samples) == (1, 0, 0)
