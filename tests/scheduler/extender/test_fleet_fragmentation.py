# SPDX-License-Identifier: Apache-2.0
"""What free GPUs are worth, of what they could be."""

from __future__ import annotations

import pytest

from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from scheduler.cluster.node_views import ScoringView
from scheduler.extender.fleet_fragmentation import fleet_use
from tests.observed import observed
from tests.scheduler.test_node_ranking import Fleet


def ratio(machine: str, *free: int) -> float | None:
    """Of nodes of this machine with these free GPUs; None where they have no worth at all."""
    tables = ScoreTables()
    gen = tables.add(topology_of(observed(machine).snapshot))
    views = {str(at): ScoringView(gen=gen, free=mask, ok=0xFF) for at, mask in enumerate(free)}
    (use,) = fleet_use(Fleet(views), views, tables, synced=True).classes
    return use.worth / use.best_worth if use.best_worth else None


@pytest.mark.parametrize("machine", ["hgx-h100", "a100-pcie-pairs", "dgx1-v100"])
def test_whole_nodes_are_worth_all_that_they_can_be(machine: str) -> None:
    assert ratio(machine, 0xFF, 0xFF) == 1


@pytest.mark.parametrize(
    ("machine", "free", "expected"),
    [
        ("a100-pcie-pairs", 0b0011, 1.0),
        ("a100-pcie-pairs", 0b0101, 0.0),
        ("a100-pcie-pairs", 0b10111, 0.25),
        ("hgx-h100", 0b0101, None),
    ],
)
def test_free_gpus_that_are_not_linked_are_worth_less(
    machine: str, free: int, expected: float | None
) -> None:
    assert ratio(machine, free) == expected
