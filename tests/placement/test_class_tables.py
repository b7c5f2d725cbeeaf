# SPDX-License-Identifier: Apache-2.0
"""The tables of a fleet's classes."""

from __future__ import annotations

import msgspec

from api.gpu_request import gpu_request
from api.topology_annotation import generation
from labelers.annotations import topology_of
from placement.best_effort import LOST
from placement.class_tables import ScoreTables
from placement.kubelet_model import DevicePluginPolicy, Policies, TopologyManager
from tests.observed import observed
from tests.scheduler.later import Later

PAIRS = topology_of(observed("a100-pcie-pairs").snapshot)
ACROSS = 0b10001
"""Two GPUs of PAIRS on two NUMA nodes."""


def renamed(number: int) -> str:
    """The class of some topology that has not been seen."""
    return f"{number:010x}"


def test_a_class_is_named_by_what_the_topology_is_and_not_by_what_was_sent() -> None:
    tables = ScoreTables()
    lying = msgspec.structs.replace(PAIRS, gen=renamed(1))
    assert tables.add(lying) == generation(PAIRS) == tables.add(PAIRS)
    assert tables.find(renamed(1)) is None
    assert tables.find(PAIRS.gen) is not None


def test_of_too_many_classes_those_go_that_were_not_used_for_longest() -> None:
    tables = ScoreTables(max_classes=2)
    gens = [tables.add(msgspec.structs.replace(PAIRS, lbw=(rate,))) for rate in (50, 51)]
    tables.find(gens[0])
    gens.append(tables.add(msgspec.structs.replace(PAIRS, lbw=(52,))))
    assert [tables.find(gen) is not None for gen in gens] == [True, False, True]


def test_a_node_with_more_gpus_than_any_has_no_table() -> None:
    n = 17
    pairs = n * (n - 1) // 2
    huge = msgspec.structs.replace(
        PAIRS, n=n, nv="0" * pairs, pc="5" * pairs, numa=(0,) * n, ids=("",) * n, bus=("",) * n
    )
    tables = ScoreTables()
    assert tables.find(tables.add(huge)) is None


def test_nodes_follow_the_configured_policies() -> None:
    strict = Policies(tm=TopologyManager.SINGLE_NUMA_NODE)
    likely = [
        table.likely(ACROSS, gpu_request(2))
        for tables in (ScoreTables(policies=strict), ScoreTables())
        if (table := tables.find(tables.add(PAIRS)))
    ]
    assert likely == [LOST, ACROSS]


def test_a_plugin_of_another_allocation_policy_may_hand_out_any_set() -> None:
    tables = ScoreTables(policies=Policies(al=DevicePluginPolicy.RANDOM))
    table = tables.find(tables.add(PAIRS))
    assert table
    assert len(table.outcome(0b1111, gpu_request(2)).sets) == 6


def test_a_new_class_is_filled_later() -> None:
    later = Later()
    tables = ScoreTables(later)
    table = tables.find(tables.add(PAIRS))
    assert table
    assert table.known_best_speed(gpu_request(2)) is None
    table.best_speed(gpu_request(3))
    assert table.known_best_speed(gpu_request(3)) is not None
    assert table.known_best_speed(gpu_request(2, 3)) is None  # of one container only
    assert later.run() == 1 + PAIRS.n  # the best speeds, and one job for each size
    assert table.known_best_speed(gpu_request(2)) == table.best_speed(gpu_request(2)) > 0
    assert all(table.known(0b1111, gpu_request(gpus)) for gpus in range(1, PAIRS.n + 1))
    tables.add(PAIRS)
    assert later.run() == 0
