# SPDX-License-Identifier: Apache-2.0
"""Compute instances get disjoint places that the driver has named, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovery.mig_state import ComputeProfile, CurrentCompute, MigProfile
from mig.compute_places import chosen_places, compute_places
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.steps import CreateCompute
from tests.mig.grids import profiles
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
STARTS = {1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}


def whole(*, named: bool = True) -> MigProfile:
    """The profile of seven slices."""
    found = next(one for one in profiles(A100) if one.slices == 7)
    compute = (
        ComputeProfile(slices=size, id=at, starts=starts if named else ())
        for at, (size, starts) in enumerate(STARTS.items())
    )
    return replace(found, compute=tuple(compute))


def places(profile: MigProfile, *sizes: int, present: dict[int, int] | None = None) -> object:
    """First slice and slices of each; ``present``: the same of those that are there."""
    there = [
        CurrentCompute(id=at, start=first, slices=slices, uuid=None)
        for at, (first, slices) in enumerate((present or {}).items())
    ]
    found = compute_places(profile, sizes, there)
    return None if found is None else [(one.first, one.slices) for one in found]


@pytest.mark.parametrize(
    ("sizes", "present", "expected"),
    [
        ((3, 4), {}, [(0, 4), (4, 3)]),
        ((3, 2, 2), {}, [(0, 2), (2, 2), (4, 3)]),
        ((2, 1), {0: 3}, [(3, 1), (4, 2)]),
        ((2,), {1: 1, 2: 1, 5: 1}, None),
        ((4,), {4: 3}, [(0, 4)]),
        ((4, 4), {}, None),
        ((5,), {}, None),
        ((), {0: 7}, []),
    ],
)
def test_places_are_disjoint_and_those_of_the_driver(
    sizes: tuple[int, ...], present: dict[int, int], expected: object
) -> None:
    """Worked out by hand on the seven slices."""
    assert places(whole(), *sizes, present=present) == expected
    assert places(whole(named=False), *sizes, present=present) == expected


def test_a_driver_that_names_other_starts_is_believed() -> None:
    """A 3c at 0 and 3 leaves no room for a 4c next to it."""
    other = replace(
        whole(),
        compute=(
            ComputeProfile(slices=3, id=2, starts=(0, 3)),
            ComputeProfile(slices=4, id=3, starts=(0,)),
        ),
    )
    assert places(other, 3, 3) == [(0, 3), (3, 3)]
    assert places(other, 3, 4) is None


def test_a_start_is_chosen_only_among_those_that_are_named() -> None:
    """Else the driver has the choice."""
    assert chosen_places(whole(), (3, 4))
    assert not chosen_places(whole(named=False), (3, 4))
    assert not chosen_places(whole(), (5,))


def planned(*compute: int, named: bool = True) -> MigPlan | MigRefusal:
    """From a 7g without compute instances to one that has these."""
    gpu = mig_gpu(A100, ("7g.40gb", 0, ()))
    known = tuple(whole(named=named) if one.slices == 7 else one for one in gpu.profiles)
    wanted = GpuLayout(mig=True, instances=(DesiredInstance("7g.40gb", compute),))
    return plan([replace(gpu, profiles=known)], {gpu.uuid: wanted}, {})


def test_a_plan_names_the_place_of_each_compute_instance() -> None:
    """In ascending order, so that a driver which takes the first free place does the same."""
    found, unnamed = planned(3, 2, 2), planned(3, 2, 2, named=False)

    assert isinstance(found, MigPlan)
    assert [(one.first, one.slices) for one in found.steps if isinstance(one, CreateCompute)] == [
        (0, 2),
        (2, 2),
        (4, 3),
    ]
    assert isinstance(unnamed, MigPlan)
    assert [(one.first, one.slices) for one in unnamed.steps if isinstance(one, CreateCompute)] == [
        (-1, 2),
        (-1, 2),
        (-1, 3),
    ]


def test_sizes_without_places_are_infeasible_with_the_sizes_there_are() -> None:
    """Whatever is on the GPU now."""
    found = planned(5)

    assert isinstance(found, MigRefusal)
    (obstacle,) = found.obstacles
    assert obstacle.kind is ObstacleKind.INFEASIBLE
    assert obstacle.detail == "no places for 5c in one 7g.40gb; it may have 1c, 2c, 3c, 4c, 7c"
