# SPDX-License-Identifier: Apache-2.0
"""A few transitions of the benchmark: what ours must never do, and that the others are played."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from simulator.description.machine_catalog import load_models
from tests.bench.mig_changes.arms import OURS, PARTED, WIPE, ArmOutcome
from tests.bench.mig_changes.published_places import PUBLISHED, least_change
from tests.bench.mig_changes.side_by_side import of_model
from tests.bench.mig_changes.transitions import Transition, transitions
from tests.conftest import SCALE
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA

A100 = "a100-sxm4-40gb"
FEW = 14 * SCALE


def check_ours(transition: Transition, outcome: ArmOutcome) -> None:
    """As good as can be: nobody is disturbed whom the least change spares, nothing half done."""
    assert not outcome.half_done
    if transition.least is None:
        assert (outcome.reached, outcome.destroyed, outcome.calls) == (False, 0, 0)
        return
    assert outcome.reached
    assert outcome.at_once == (transition.least[0] == 0)
    assert (outcome.disturbed, outcome.destroyed) == transition.least


@pytest.mark.parametrize("model", PUBLISHED)
def test_ours_reaches_every_layout_that_can_be_with_the_least_change(model: str) -> None:
    """Programs that end are those that must, and what cannot be is refused untouched."""
    played = of_model(model, FEW, None)

    assert len(played) == FEW // len(PUBLISHED)
    for transition, found in played:
        check_ours(transition, found[OURS])


@pytest.mark.cluster
@pytest.mark.parametrize("model", list(PUBLISHED)[: 2 * SCALE])
def test_mig_parted_and_the_few_lines_that_stand_for_it_end_alike(model: str) -> None:
    """In what they reach and what they destroy; which order comes first is its own affair."""
    for transition, found in of_model(model, FEW, binaries(NVIDIA)):
        theirs, wiped = found[PARTED], found[WIPE]
        assert (theirs.reached, theirs.disturbed) == (wiped.reached, wiped.disturbed), transition
        assert theirs.destroyed == wiped.destroyed, transition


def test_the_transitions_are_of_all_kinds() -> None:
    """Half of them busy; some that cannot be, that disturb somebody, and that leave a place."""
    drawn = transitions(210)

    assert drawn[:20] == transitions(20)
    assert Counter(one.fragmented for one in drawn) == {True: 105, False: 105}
    assert {one.model for one in drawn} == set(PUBLISHED)
    assert any(one.least is None for one in drawn)
    assert any(one.least is not None and one.least[0] for one in drawn)
    assert any(one.hollow for one in drawn)


def test_the_least_change_is_found_by_hand_too() -> None:
    """Seven of one slice, and half of the memory is wanted: four go, or the three that are idle."""
    model = PUBLISHED[A100]
    there = tuple(("1g.5gb", at) for at in range(7))
    wanted = Counter({"3g.20gb": 1, "1g.5gb": 3})

    assert least_change(model, there, frozenset(), wanted) == (0, 4)
    assert least_change(model, there, frozenset({("1g.5gb", 0)}), wanted) == (0, 4)
    assert least_change(model, there, frozenset({("1g.5gb", 0), ("1g.5gb", 5)}), wanted) == (1, 4)
    assert least_change(model, there, frozenset(), Counter({"1g.5gb": 8})) is None


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_simulator_has_the_published_places(name: str) -> None:
    """Ids, counts, sizes and starts; so the arms' GPUs are those that the tables describe."""
    simulated = {
        one.name: (one.id, one.max, one.size, one.starts) for one in load_models()[name].mig
    }

    published = {
        key: (one.id, one.most, one.size, one.starts)
        for key, one in PUBLISHED[name].profiles.items()
    }
    assert simulated == published


@pytest.mark.cluster
def test_the_places_on_an_a100_are_those_of_go_nvmls_mock() -> None:
    """Read from the library's source: profile by its number in nvml.h, then starts and sizes."""
    source = (binaries(NVIDIA) / "mig-profile.go").read_text("utf-8")
    table = source.split("GpuInstancePossiblePlacements: ")[1].split("ComputeInstancePossible")[0]
    blocks = re.findall(r"nvml\.GPU_INSTANCE_PROFILE_(\w+): \{(.*?)\n\t\t\},", table, re.S)
    found = {
        number: [(int(at), int(size)) for at, size in re.findall(_PLACE, block)]
        for number, block in blocks
    }

    assert found == {
        number: [(start, one.size) for start in one.starts]
        for number, one in zip(_NUMBERS, PUBLISHED[A100].profiles.values(), strict=True)
    }


_PLACE = r"Start:\s*(\d+),\s*Size:\s*(\d+)"
_NUMBERS = (
    *("1_SLICE", "1_SLICE_REV1", "1_SLICE_REV2"),
    *("2_SLICE", "3_SLICE", "4_SLICE", "7_SLICE"),
)
