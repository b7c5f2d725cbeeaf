# SPDX-License-Identifier: Apache-2.0
"""The counted table of typical changes: figures that can be worked out by hand."""

from __future__ import annotations

import pytest

from tests.bench.mig_procedures import CHANGES, ChangeCost, TypicalChange, ours, section, whole_node

ONE, MODE, GROWS, ALL, IDLE = CHANGES


def test_one_gpu_of_eight_costs_its_own_pod_alone() -> None:
    """One instance goes, with its compute instance, and seven come: 16 calls, a second each."""
    assert ours(ONE) == ChangeCost(evicted=1, destroyed=1, calls=16, seconds=66)
    assert whole_node(ONE) == ChangeCost(evicted=8, destroyed=1, calls=16, seconds=61)


def test_an_instance_grows_next_to_pods_that_stay() -> None:
    """Two idle ones make room: four calls, and two for what is made."""
    assert ours(GROWS) == ChangeCost(evicted=0, destroyed=2, calls=6, seconds=26)
    assert whole_node(GROWS) == ChangeCost(evicted=9, destroyed=4, calls=14, seconds=59)


def test_a_mode_that_goes_on_is_a_call() -> None:
    assert (ours(MODE).calls, whole_node(MODE).calls) == (15, 15)
    assert (ours(MODE).evicted, whole_node(MODE).evicted) == (1, 8)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_ours_never_costs_more_but_for_the_second_look(
    change: TypicalChange,
) -> None:
    one, other = (cost(change) for cost in (ours, whole_node))

    assert one.evicted <= other.evicted
    assert one.destroyed <= other.destroyed
    assert one.seconds <= other.seconds + 5


def test_what_changes_wholly_costs_the_same() -> None:
    """The table hides no row in which the other way is as good, or sooner."""
    for change in (ALL, IDLE):
        assert ours(change).calls == whole_node(change).calls
        assert ours(change).seconds > whole_node(change).seconds
    assert len(section().rows) == len(CHANGES)
