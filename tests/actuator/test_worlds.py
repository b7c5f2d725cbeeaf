# SPDX-License-Identifier: Apache-2.0
"""What every world of a MIG change does: the one that is played, and NVML on a simulated machine.

What is shown about changes on the played world holds on the other one as far as the two agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actuator.mig_world import MigWorld, StepFailed
from actuator.nvml_world import NvmlWorld
from discovery.mig_state import CurrentInstance, MigGpu
from discovery.model import Mode
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)
from mig.users.device_users import DeviceUser, MigPart, UserKind
from tests.actuator.played_world import Hardware, PlayedWorld
from tests.actuator.simulated_node import A100, FIVE, node
from tests.mig.naive_gpu import mig_gpu

POD = DeviceUser(UserKind.POD, "ns/train")


@pytest.fixture(params=["played", "nvml"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MigWorld]:
    """A full A100 on which a pod holds the instance at unit 4."""
    if request.param == "played":
        hardware = Hardware.of([mig_gpu(A100, *((one.profile, one.start) for one in FIVE))])
        hardware.held["GPU-0", "2g.10gb", 4] = POD.name
        yield PlayedWorld(hardware)
        return
    on = node(tmp_path, *FIVE)
    named = {MigPart(on.uuid(), 5): frozenset({POD})}
    with on.simulation, NvmlWorld(on.start, named) as found:
        yield found


def gpu(world: MigWorld) -> MigGpu:
    """Its one GPU, as it is now."""
    (found,) = world.observe()
    return found


def at(world: MigWorld, start: int) -> CurrentInstance:
    """The GPU instance at a memory unit."""
    return next(one for one in gpu(world).instances if one.start == start)


def end(world: MigWorld, start: int) -> None:
    """Destroy what is at a memory unit."""
    one = at(world, start)
    for compute in one.compute:
        world.perform(DestroyCompute(gpu=gpu(world).uuid, instance=one.id, compute=compute.id))
    gpu(world)
    world.perform(
        DestroyInstance(gpu=gpu(world).uuid, instance=one.id, profile=one.profile, start=one.start)
    )


def others(world: MigWorld, *starts: int) -> set[tuple[object, ...]]:
    """The instances that are not at these units, with the UUIDs of their devices."""
    return {
        (one.id, one.profile, one.start, tuple(part.uuid for part in one.compute))
        for one in gpu(world).instances
        if one.start not in starts
    }


def test_it_shows_all_instances_at_their_places(world: MigWorld) -> None:
    """With what is in them."""
    found = gpu(world)

    assert {(one.profile, one.start) for one in found.instances} == {
        (one.profile, one.start) for one in FIVE
    }
    assert all(len(one.compute) == 1 for one in found.instances)
    assert found.mode == Mode(current=True, pending=True)


def test_it_shows_who_holds_an_instance(world: MigWorld) -> None:
    """By the id that the instance has."""
    found = gpu(world)

    held = {part: users for part, users in world.device_users().items() if users}

    assert held == {MigPart(found.uuid, at(world, 4).id): frozenset({POD})}


def test_a_step_has_its_effect_and_no_other(world: MigWorld) -> None:
    """From two small instances to a large one: the others keep their ids and their devices."""
    uuid, before = gpu(world).uuid, others(world, 0, 1)

    end(world, 0)
    end(world, 1)
    gpu(world)
    world.perform(CreateInstance(gpu=uuid, profile="2g.10gb", start=0, size=2))
    assert at(world, 0).compute == ()
    world.perform(CreateCompute(gpu=uuid, start=0, slices=1))
    gpu(world)
    world.perform(CreateCompute(gpu=uuid, start=0, slices=1))

    made = at(world, 0)
    assert (made.profile, made.size) == ("2g.10gb", 2)
    assert [part.slices for part in made.compute] == [1, 1]
    assert others(world, 0, 1) == before


def refused(uuid: str, world: MigWorld) -> list[MigStep]:
    """Steps that no hardware takes on this GPU."""
    first, second = at(world, 0), at(world, 2)
    return [
        CreateInstance(gpu=uuid, profile="2g.10gb", start=0, size=2),
        CreateInstance(gpu=uuid, profile="1g.5gb", start=0, size=1),
        CreateCompute(gpu=uuid, start=0, slices=1),
        CreateCompute(gpu=uuid, start=3, slices=1),
        DestroyInstance(gpu=uuid, instance=first.id, profile="1g.5gb", start=0),
        DestroyInstance(gpu=uuid, instance=first.id, profile="2g.10gb", start=2),
        DestroyInstance(gpu=uuid, instance=99, profile="1g.5gb", start=0),
        DestroyCompute(gpu=uuid, instance=second.id, compute=5),
        DestroyCompute(gpu=uuid, instance=99, compute=0),
        SetMode(gpu=uuid, on=False),
    ]


@pytest.mark.parametrize("number", range(10))
def test_a_step_that_cannot_be_done_changes_nothing(world: MigWorld, number: int) -> None:
    """And says so."""
    uuid, before = gpu(world).uuid, others(world)
    step = refused(uuid, world)[number]
    gpu(world)

    with pytest.raises(StepFailed):
        world.perform(step)

    assert others(world) == before
    assert gpu(world).mode is not None


def test_a_session_begun_anew_shows_the_same(world: MigWorld) -> None:
    """On the same boot and load of the driver."""
    before, named = others(world), (world.boot(), world.driver_load())

    world.reopen()

    assert others(world) == before
    assert (world.boot(), world.driver_load()) == named
    assert all(named)
    assert world.now().endswith("Z")
