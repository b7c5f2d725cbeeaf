# SPDX-License-Identifier: Apache-2.0
"""Small fleets of two products: no size of pods is crowded out of the faster one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

import pytest

from placement.class_tables import ScoreTables
from scheduler.simulation import choosers
from scheduler.simulation.choosers import predicted
from scheduler.simulation.fleet_replay import Choose, NodeKind, ReplaySetup, replay
from scheduler.simulation.workload import Mix, drawn_arrivals
from tests.scheduler.simulated import kind, seeded

SLOW, FAST = "dgx1-v100", "hgx-h100"


@pytest.fixture(scope="module")
def tables() -> ScoreTables:
    return ScoreTables()


@pytest.fixture(scope="module")
def kinds(tables: ScoreTables) -> tuple[NodeKind, ...]:
    return (kind(tables, SLOW),) * 9 + (kind(tables, FAST),) * 3


def speeds(kinds: tuple[NodeKind, ...], choose: Choose, lag_seconds: float) -> Mapping[int, float]:
    """Mean speed of the sets of pods of each size, as a part of the fleet's best."""
    by_size: dict[int, list[float]] = defaultdict(list)
    setup = ReplaySetup(kinds=kinds, give=predicted, lag_seconds=lag_seconds)
    for seed in range(8):
        arrivals = drawn_arrivals(Mix(pods=1200), 8 * len(kinds), seeded(seed))
        for placed in replay(setup, arrivals, choose, seeded(f"chance {seed}")):
            if placed.ideal_gbps:
                by_size[placed.wish.gpus].append(placed.gbps / placed.ideal_gbps)
    return {size: fmean(found) for size, found in by_size.items()}


@pytest.mark.parametrize("lag_seconds", [0.0, 5.0])
def test_large_pods_have_faster_sets_than_with_packing_and_pairs_are_not_crowded_out(
    tables: ScoreTables, kinds: tuple[NodeKind, ...], lag_seconds: float
) -> None:
    """Were speed in GB/s, pods of 8 would all be on the slower product: a third.

    How much pairs and pods of 4 gain shows in larger fleets only: docs/scheduler-quality.md.
    """
    ours = speeds(kinds, choosers.ranked(tables), lag_seconds)
    packed = speeds(kinds, choosers.pack, lag_seconds)
    assert ours[8] > 1.2 * packed[8]
    assert ours[4] > packed[4]
    assert ours[2] > 0.9 * packed[2]
