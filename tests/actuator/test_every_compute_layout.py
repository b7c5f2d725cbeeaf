# SPDX-License-Identifier: Apache-2.0
"""From every layout of compute instances that a GPU instance can have to every other one.

The layouts come from a table of the MIG user guide and a search of its own; what a step does is
the simulator's state machine. The planner has no part in either.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from actuator.layout_steps import reach
from actuator.restore import take_in_order
from actuator.verified_layouts import VerifiedLayout
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.steps import CreateInstance
from simulator.state.machine_state import ComputeInstance, SimulatedGpuState
from tests.actuator.state_machine_world import UUID, StateMachineWorld, with_compute

SIZES: Final = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Slices of a GPU instance to those of its compute instances.
Source: `nvidia-smi mig -lcip`, MIG user guide."""
STARTS: Final = {1: range(7), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
"""Slices of a compute instance to where it may start, as 4c and 3c share a 7g."""

Places = tuple[tuple[int, int], ...]
"""First slice and slices of compute instances that are disjoint, in ascending order."""

PROFILES: Final = {
    "a100-sxm4-40gb": {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "4g.20gb": 4, "7g.40gb": 7},
    "a100-sxm4-80gb": {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3, "4g.40gb": 4, "7g.80gb": 7},
    "a30": {"1g.6gb": 1, "2g.12gb": 2, "4g.24gb": 4},
    "h100-sxm5-80gb": {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3, "4g.40gb": 4, "7g.80gb": 7},
}
A100: Final = "a100-sxm4-40gb"
MOST_STEPS: Final = 2 * 7 + 2
"""All compute instances and the GPU instance go, and come."""


def every_place(slices: int) -> list[Places]:
    """Every set of disjoint places, that of none included."""
    places = [(at, size) for size in SIZES[slices] for at in STARTS[size] if at + size <= slices]

    def grow(number: int, taken: frozenset[int], done: Places) -> Iterator[Places]:
        if number == len(places):
            yield tuple(sorted(done))
            return
        yield from grow(number + 1, taken, done)
        at, size = places[number]
        units = frozenset(range(at, at + size))
        if not units & taken:
            yield from grow(number + 1, taken | units, (*done, places[number]))

    return list(grow(0, frozenset(), ()))


def every_layout(slices: int) -> list[tuple[int, ...]]:
    """The sizes of those sets, the largest first."""
    return sorted({tuple(sorted((s for _, s in one), reverse=True)) for one in every_place(slices)})


def empty(model: str, profile: str) -> StateMachineWorld:
    """A GPU with one GPU instance, without compute instances."""
    world = StateMachineWorld(model)
    (gpu,) = world.observe()
    found = gpu.profile(profile)
    assert found is not None
    world.perform(CreateInstance(gpu=UUID, profile=profile, start=found.starts[0], size=found.size))
    return world


def at_places(world: StateMachineWorld, places: Sequence[tuple[int, int]]) -> SimulatedGpuState:
    """The compute instances at these places, in the order of their ids."""
    (one,) = world.state.instances
    parts = (
        ComputeInstance(id=number, start=at, slices=size)
        for number, (at, size) in enumerate(places)
    )
    return with_compute(world.state, one.start, *parts)


def sizes_now(world: StateMachineWorld) -> list[tuple[str, tuple[int, ...]]]:
    """Profile and compute slices of each GPU instance, in the state machine."""
    return [
        (one.profile, tuple(sorted((part.slices for part in one.compute), reverse=True)))
        for one in world.state.instances
    ]


def check(
    model: str, profile: str, before: Places, after: tuple[int, ...], world: StateMachineWorld
) -> None:
    """One change, in the state machine."""
    world.state, world.taken = at_places(world, before), []
    wanted = GpuLayout(mig=True, instances=(DesiredInstance(profile, after),))

    failure = reach(world, UUID, wanted)

    where = f"{model} {profile} {before} -> {after}: {failure}; {world.taken}"
    assert failure is None, where
    assert sizes_now(world) == [(profile, after)], where
    assert len(world.taken) <= MOST_STEPS, where


def test_the_table_has_the_layouts_that_are_seen_running() -> None:
    """Argonne's Polaris guide, the MIG user guide and NVIDIA's mig-parted have these."""
    assert {(2, 2), (2, 1, 1), (1, 1, 1, 1)} <= set(every_layout(4))
    assert {(4, 3), (3, 2, 2), (3, 2, 1), (2, 2, 2, 1), (4, 2, 1)} <= set(every_layout(7))
    assert len(every_place(7)) == 309
    assert len(every_layout(7)) == 39


@pytest.mark.parametrize("model", PROFILES)
def test_every_layout_of_up_to_four_slices_is_reached_from_every_other(model: str) -> None:
    """Of each GPU instance profile, one instance on the GPU."""
    for profile, slices in PROFILES[model].items():
        if slices < 7:
            world = empty(model, profile)
            at_first = world.state
            for before in every_place(slices):
                for after in every_layout(slices):
                    world.state = at_first
                    check(model, profile, before, after, world)


@pytest.mark.parametrize("model", [one for one in PROFILES if one != "a30"])
def test_layouts_of_seven_slices_are_reached_from_others(model: str) -> None:
    """Every layout, each from some drawn by chance."""
    some = random.Random(model)  # noqa: S311 - repeatable, not secret
    (profile,) = (name for name, slices in PROFILES[model].items() if slices == 7)
    world = empty(model, profile)
    at_first = world.state
    for after in every_layout(7):
        for before in some.sample(every_place(7), 4):
            world.state = at_first
            check(model, profile, before, after, world)


@pytest.mark.parametrize("model", PROFILES)
def test_a_driver_that_chooses_the_places_itself_gets_an_order_that_fits(model: str) -> None:
    """Drivers from before nvmlGpuInstanceCreateComputeInstanceWithPlacement."""
    some = random.Random(model)  # noqa: S311 - repeatable, not secret
    for profile, slices in PROFILES[model].items():
        world = empty(model, profile)
        world.names_places, at_first = False, world.state
        for after in every_layout(slices):
            for before in some.sample(every_place(slices), 2):
                world.state = at_first
                check(model, profile, before, after, world)


@pytest.mark.parametrize("profile", ["3g.20gb", "4g.20gb", "7g.40gb"])
def test_compute_instances_come_back_with_the_ids_and_places_of_before(profile: str) -> None:
    """A MIG device's UUID follows from the ids; in whatever order they were made."""
    some = random.Random(profile)  # noqa: S311 - repeatable, not secret
    world = empty(A100, profile)
    at_first = world.state
    for places in every_place(PROFILES[A100][profile]):
        world.state = at_first
        world.state = before = at_places(world, some.sample(places, len(places)))
        (gpu,) = world.observe()
        image = VerifiedLayout.from_gpu(gpu, "load")
        world.state = SimulatedGpuState(mig=True, mig_pending=True)

        take_in_order(world, gpu, image)

        assert placed(world.state) == placed(before)


def placed(state: SimulatedGpuState) -> list[list[tuple[int, int, int]]]:
    """Id, first slice and slices of compute instances."""
    return [[(part.id, part.start, part.slices) for part in one.compute] for one in state.instances]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", [one for one in PROFILES if one != "a30"])
def test_every_layout_of_seven_slices_is_reached_from_every_other(model: str) -> None:
    """12,051 changes."""
    (profile,) = (name for name, slices in PROFILES[model].items() if slices == 7)
    world = empty(model, profile)
    at_first = world.state
    for before in every_place(7):
        for after in every_layout(7):
            world.state = at_first
            check(model, profile, before, after, world)
