# SPDX-License-Identifier: Apache-2.0
"""Jobs in simulated fleets of two products and of several NVLink cliques.

Products and cliques of a job are counted here, from the nodes that its pods got.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from placement.class_tables import ScoreTables
from scheduler.placement_aims import ProductOrder
from scheduler.simulation import choosers
from scheduler.simulation.choosers import predicted
from scheduler.simulation.fleet_replay import Choose, NodeKind, Placed, ReplaySetup, replay
from scheduler.simulation.job_spread import JobSpread, job_spread
from scheduler.simulation.workload import Arrival, Mix, drawn_arrivals
from tests.scheduler.simulated import arrival, kind, seeded

SLOW, FAST = "dgx1-v100", "hgx-h100"
FULL = 8


@pytest.fixture(scope="module")
def tables() -> ScoreTables:
    return ScoreTables()


@pytest.fixture(scope="module")
def slow(tables: ScoreTables) -> NodeKind:
    return kind(tables, SLOW)


@pytest.fixture(scope="module")
def fast(tables: ScoreTables) -> NodeKind:
    return kind(tables, FAST)


def placed(
    kinds: Sequence[NodeKind], arrivals: Iterable[Arrival], choose: Choose
) -> tuple[Placed, ...]:
    return replay(ReplaySetup(kinds=tuple(kinds), give=predicted), arrivals, choose, seeded())


def machines(pods: Iterable[Placed], job: str = "train") -> list[str]:
    """Machine of each pod of the job."""
    return [pod.kind.name for pod in pods if pod.job == job and pod.kind]


def alone(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """The same pods, each on its own for the scheduler."""
    return [replace(pod, job=None) for pod in arrivals]


@pytest.mark.parametrize("order", ProductOrder)
def test_four_pods_of_8_of_one_job_are_on_one_product_while_four_nodes_of_each_are_free(
    tables: ScoreTables, slow: NodeKind, fast: NodeKind, order: ProductOrder
) -> None:
    pods = [arrival(FULL, at, 100, job="train") for at in range(4)]
    found = placed([slow, fast] * 4, pods, choosers.ranked(tables, order))
    assert len(machines(found)) == 4
    assert len(set(machines(found))) == 1


def test_a_job_stays_on_the_product_of_its_first_pod_when_faster_nodes_come_free(
    tables: ScoreTables, slow: NodeKind, fast: NodeKind
) -> None:
    """While the first pod comes, all fast nodes are taken; later all four are free."""
    others = [arrival(FULL, 0, 10) for _ in range(4)]
    job = [arrival(FULL, at, 100, job="train") for at in (5, 20, 21, 22)]
    kinds = [fast] * 4 + [slow] * 4
    found = placed(kinds, [*others, *job], choosers.ranked(tables))
    assert machines(found) == [SLOW] * 4
    apart = placed(kinds, alone([*others, *job]), choosers.ranked(tables))
    assert [pod.kind.name for pod in apart[4:] if pod.kind] == [SLOW, FAST, FAST, FAST]


def test_what_does_not_fit_on_the_jobs_product_goes_elsewhere(
    tables: ScoreTables, slow: NodeKind, fast: NodeKind
) -> None:
    pods = [arrival(FULL, at, 100, job="train") for at in range(3)]
    found = placed([fast, fast, slow], pods, choosers.ranked(tables))
    assert sorted(machines(found)) == [SLOW, FAST, FAST]


def test_a_job_whose_pods_have_ended_binds_the_next_one_to_nothing(
    tables: ScoreTables, slow: NodeKind, fast: NodeKind
) -> None:
    pods = [arrival(FULL, 0, 10), arrival(FULL, 1, 5, job="train"), arrival(FULL, 20, job="train")]
    found = placed([fast, slow], pods, choosers.ranked(tables))
    assert machines(found) == [SLOW, FAST]


def test_a_job_stays_in_the_clique_of_its_first_pod(tables: ScoreTables) -> None:
    """Three racks of three trays; a pod of the job takes a tray, and others come between."""
    tray = kind(tables, "gb200")
    kinds = [
        NodeKind(name=f"rack-{rack}", gen=tray.gen, table=tray.table, clique=rack)
        for rack in "abcabcabc"
    ]
    gpus = tray.table.n
    pods = [arrival(gpus, at, 100, job="train" if at % 2 else None) for at in range(6)]
    for seed in range(10):
        setup = ReplaySetup(kinds=tuple(kinds), give=predicted)
        found = replay(setup, pods, choosers.ranked(tables), seeded(seed))
        first, *rest = machines(found)
        room = 3 - sum(
            pod.job is None and pod.kind is not None and pod.kind.name == first for pod in found
        )
        assert [name == first for name in rest] == [True] * min(2, room - 1) + [False] * max(
            0, 3 - room
        )


def mean_products(arrivals: Sequence[Arrival], found: Sequence[Placed]) -> float:
    """Mean number of machines that the pods of a job are on; all pods have been placed."""
    by_job = defaultdict(set)
    for pod, landed in zip(arrivals, found, strict=True):
        by_job[pod.job].add(landed.kind.name if landed.kind else "")
    return fmean(map(len, by_job.values()))


def test_on_a_busy_day_jobs_are_on_fewer_products_than_without_the_aim_and_with_the_stock_scheduler(
    tables: ScoreTables, slow: NodeKind, fast: NodeKind
) -> None:
    """Some are still on two: the first pods of a job take the last nodes of a product."""
    kinds = [slow] * 12 + [fast] * 6
    mix = Mix(sizes={2: 2, 4: 1, 8: 1}, load=0.5, pods=800, job_pods=4)
    arrivals = drawn_arrivals(mix, 8 * len(kinds), seeded("jobs"))
    ours = mean_products(arrivals, placed(kinds, arrivals, choosers.ranked(tables)))
    apart = mean_products(arrivals, placed(kinds, alone(arrivals), choosers.ranked(tables)))
    stock = [
        mean_products(arrivals, placed(kinds, arrivals, choose))
        for choose in (choosers.pack, choosers.spread)
    ]
    assert ours < 0.95 * apart < apart < min(stock)
    assert ours < 0.85 * min(stock)


def test_jobs_of_several_runs_are_counted_apart_and_pods_alone_not_at_all(
    slow: NodeKind, fast: NodeKind
) -> None:
    def pod(its: NodeKind, job: str | None, *, lost: bool = False) -> Placed:
        return Placed(
            wish=arrival(1).wish,
            wait_seconds=0.0,
            gbps=0.0,
            ideal_gbps=0.0,
            lost=lost,
            job=job,
            kind=its,
        )

    both = [pod(slow, "a"), pod(fast, "a"), pod(slow, None), pod(fast, "one"), pod(slow, None)]
    same = [pod(slow, "a"), pod(slow, "a"), pod(fast, "a", lost=True)]
    assert job_spread([both, same]) == JobSpread(jobs=2, mean_products=1.5)
    assert job_spread([[pod(slow, None), pod(fast, "one")]]) is None
