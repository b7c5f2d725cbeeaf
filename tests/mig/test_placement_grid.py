# SPDX-License-Identifier: Apache-2.0
"""Where an instance may be, and what is in its way."""

from __future__ import annotations

from discovery.mig_state import CurrentInstance, MigGpu, MigProfile
from discovery.model import Mode
from mig.placement_grid import memory_units, placement_grid

TWO = MigProfile(
    number=1, id=14, name="2g.10gb", slices=2, size=2, starts=(0, 2, 4), max_instances=3,
    memory_bytes=0, multiprocessors=28,
)  # fmt: skip
SEVEN = MigProfile(
    number=4, id=0, name="7g.40gb", slices=7, size=8, starts=(0,), max_instances=1,
    memory_bytes=0, multiprocessors=98,
)  # fmt: skip
ROLLING = MigProfile(
    number=9, id=15, name="1g.10gb", slices=1, size=2, starts=(0, 1, 2, 3), max_instances=4,
    memory_bytes=0, multiprocessors=14,
)  # fmt: skip
"""Of no known GPU: its places overlap each other."""


def gpu(*instances: CurrentInstance, profiles: tuple[MigProfile, ...] = (TWO, SEVEN)) -> MigGpu:
    return MigGpu(
        index=0,
        uuid="GPU-0",
        bus_id="0000:10:00.0",
        model="MOCKMODEL",
        device_id=0,
        subsystem_id=0,
        mode=Mode(current=True, pending=True),
        profiles=profiles,
        instances=instances,
    )


def one(at: int, size: int = 1) -> CurrentInstance:
    return CurrentInstance(id=7 + at, profile="1g.5gb", start=at, size=size)


def taken(grid_of: MigGpu, profile: MigProfile = TWO) -> dict[int, list[int]]:
    rows = placement_grid(grid_of, profile).rows
    return {row.start: [number - 7 for number in row.taken_by] for row in rows}


def test_an_instance_takes_every_place_that_it_meets_and_no_other() -> None:
    assert taken(gpu(one(1), one(2), one(3, 2))) == {0: [1], 2: [2, 3], 4: [3]}
    assert taken(gpu(one(6))) == {0: [], 2: [], 4: []}


def test_instances_stand_by_their_places_whatever_their_ids() -> None:
    there = (one(5), one(0, 2))
    assert [it.start for it in placement_grid(gpu(*there), TWO).instances] == [0, 5]


def test_room_counts_places_side_by_side() -> None:
    assert placement_grid(gpu(one(3)), TWO).room == 2
    rolling = (ROLLING, SEVEN)
    assert placement_grid(gpu(profiles=rolling), ROLLING).room == 2
    assert placement_grid(gpu(one(1), profiles=rolling), ROLLING).room == 1


def test_the_gpu_is_as_large_as_its_largest_profile_or_what_is_on_it() -> None:
    assert memory_units(gpu()) == placement_grid(gpu(), TWO).units == 8
    assert memory_units(gpu(one(9), profiles=())) == 10
    assert memory_units(gpu(profiles=())) == 0
