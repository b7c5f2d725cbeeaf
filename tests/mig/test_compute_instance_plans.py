# SPDX-License-Identifier: Apache-2.0
"""Compute instances are kept, destroyed and created one by one, inside a kept GPU instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from discovery.mig_state import CurrentCompute, MigGpu
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.planner import MigRefusal, plan
from mig.steps import CreateCompute, DestroyCompute, MigStep
from mig.users.device_users import DeviceUsers, MigPart
from tests.mig import plan_parts
from tests.mig.naive_gpu import as_read, mig_gpu
from tests.mig.test_planner import A100, performed, planned, pod

SEVEN, FOUR, THREE = "7g.40gb", "4g.20gb", "3g.20gb"


def cut(profile: str, *places: tuple[int, int]) -> MigGpu:
    """A GPU with one GPU instance: first slice and slices of its compute instances."""
    gpu = mig_gpu(A100, (profile, 0, ()))
    compute = tuple(
        CurrentCompute(id=number, start=first, slices=slices, uuid=f"MIG-{number}")
        for number, (first, slices) in enumerate(places)
    )
    return as_read(replace(gpu, instances=(replace(gpu.instances[0], compute=compute),)))


def on(gpu: MigGpu, users: Mapping[int | None, str]) -> DeviceUsers:
    """Compute instance to the pod on it."""
    number = gpu.instances[0].id
    return {
        MigPart(gpu.uuid, number, compute): frozenset({pod(name)})
        for compute, name in users.items()
    }


def desired(profile: str, *sizes: int) -> GpuLayout:
    """One GPU instance in these compute instances."""
    return GpuLayout(mig=True, instances=(DesiredInstance(profile, sizes),))


def destroyed(steps: tuple[MigStep, ...]) -> list[int]:
    """Ids of the compute instances that steps destroy; other steps must not destroy anything."""
    return [step.compute for step in steps if isinstance(step, DestroyCompute)]


def made(steps: tuple[MigStep, ...]) -> list[tuple[int, int]]:
    """First slice and slices of the compute instances that steps create."""
    return [(step.first, step.slices) for step in steps if isinstance(step, CreateCompute)]


def test_free_parts_go_next_to_a_part_in_use() -> None:
    """A 4g in 2c, 1c and 1c with a program on the 2c becomes a 4g with the 2c alone."""
    gpu = cut(FOUR, (0, 2), (2, 1), (3, 1))

    found = planned(gpu, desired(FOUR, 2), on(gpu, {0: "ns/train"}), spare_busy=True)

    number = gpu.instances[0].id
    assert found.steps == tuple(
        DestroyCompute(gpu=gpu.uuid, instance=number, compute=compute) for compute in (1, 2)
    )
    assert (len(plan_parts.kept(found)), plan_parts.destroyed(found), found.disturbed) == (
        1,
        (),
        frozenset(),
    )
    assert [(one.id, part.id) for _, one, part in plan_parts.destroyed_compute(found)] == [
        (number, 1),
        (number, 2),
    ]
    performed(gpu, found)


@pytest.mark.parametrize("sizes", [(4, 3), (3, 2, 2), (2, 2, 2, 1), (3, 2, 1, 1)])
def test_mixed_parts_of_seven_slices_are_made_where_they_fit(sizes: tuple[int, ...]) -> None:
    """From nothing, and next to one of them that is in use at any place where the rest fits."""
    empty = cut(SEVEN)
    every = made(planned(empty, desired(SEVEN, *sizes)).steps)
    assert sorted((size for _, size in every), reverse=True) == list(sizes)
    performed(empty, planned(empty, desired(SEVEN, *sizes)))

    for place in every:
        gpu = cut(SEVEN, place)
        found = planned(gpu, desired(SEVEN, *sizes), on(gpu, {0: "ns/a"}), spare_busy=True)
        assert destroyed(found.steps) == []
        assert sorted([*made(found.steps), place]) == every
        performed(gpu, found)


def test_of_equal_parts_the_idle_ones_go() -> None:
    """Three of seven single slices are desired, and those in use are in the middle."""
    gpu = cut(SEVEN, *((at, 1) for at in range(7)))

    found = planned(gpu, desired(SEVEN, 1, 1, 1), on(gpu, {2: "ns/a", 4: "ns/b", 5: "ns/c"}))

    assert destroyed(found.steps) == [0, 1, 3, 6]
    assert found.disturbed == frozenset()


def test_a_part_in_the_way_of_a_larger_one_goes_though_another_one_could() -> None:
    """A 4c starts at 0 alone: of four single slices the ones at 4 and 5 stay."""
    gpu = cut(SEVEN, (0, 1), (3, 1), (4, 1), (5, 1))

    found = planned(gpu, desired(SEVEN, 4, 1, 1))

    assert destroyed(found.steps) == [0, 1]
    assert made(found.steps) == [(0, 4)]
    performed(gpu, found)


def test_an_idle_gpu_instance_loses_more_rather_than_one_with_a_device_user_less() -> None:
    """Three slices in 1c and 1c with a program, and three in 1c, 1c and 1c: one is to become 1c."""
    gpu = mig_gpu(A100, (THREE, 0, (1, 1)), (THREE, 4, (1, 1, 1)))
    first, second = sorted(gpu.instances, key=lambda one: one.start)
    wanted = GpuLayout(
        mig=True, instances=(DesiredInstance(THREE, (1,)), DesiredInstance(THREE, (1, 1, 1)))
    )
    users = {MigPart(gpu.uuid, first.id, 0): frozenset({pod("ns/train")})}

    idle, busy = planned(gpu, wanted), planned(gpu, wanted, users)

    assert [(one.id, part.id) for _, one, part in plan_parts.destroyed_compute(idle)] == [
        (first.id, 1)
    ]
    assert {one.id for _, one, _ in plan_parts.destroyed_compute(busy)} == {second.id}
    assert len(plan_parts.destroyed_compute(busy)) == 2


def test_of_two_device_users_the_one_goes_whose_neighbours_are_no_matter_then() -> None:
    """One of two has to make room for a 2c; the other GPU instance is to become 1c and 1c.

    With the pod of the first GPU instance its two neighbours go, but next to nobody. Else one goes
    next to that pod, which is worse though it is fewer.
    """
    gpu = mig_gpu(A100, (THREE, 0, (1, 1, 1)), (THREE, 4, (1,)))
    first, second = sorted(gpu.instances, key=lambda one: one.start)
    wanted = GpuLayout(
        mig=True, instances=(DesiredInstance(THREE, (2,)), DesiredInstance(THREE, (1, 1)))
    )
    users = {
        MigPart(gpu.uuid, first.id, 0): frozenset({pod("ns/first")}),
        MigPart(gpu.uuid, second.id, 0): frozenset({pod("ns/second")}),
    }

    found = planned(gpu, wanted, users)

    assert found.disturbed == {pod("ns/first")}
    assert [one.id for _, one, _ in plan_parts.destroyed_compute(found)] == [first.id] * 3


def test_a_device_user_who_goes_anyway_is_no_reason_to_spare_its_neighbours() -> None:
    """The pod has all of GPU 1 too, which has to go: so GPU 0 is changed as if it were idle."""
    gpus = [
        mig_gpu(A100, (THREE, 0, (1, 1)), (THREE, 4, (1, 1, 1))),
        mig_gpu(A100, ("1g.5gb", 0), uuid="GPU-1", index=1),
    ]
    first = min(gpus[0].instances, key=lambda one: one.start)
    both = frozenset({pod("ns/train")})
    users = {
        MigPart("GPU-0", first.id, 0): both,
        MigPart("GPU-1", gpus[1].instances[0].id): both,
    }
    wanted = {
        "GPU-0": GpuLayout(
            mig=True, instances=(DesiredInstance(THREE, (1,)), DesiredInstance(THREE, (1, 1, 1)))
        ),
        "GPU-1": GpuLayout(mig=True),
    }

    found = plan(gpus, wanted, users)

    assert not isinstance(found, MigRefusal)
    assert found.disturbed == both
    assert len(plan_parts.destroyed_compute(found)) == 1


@pytest.mark.parametrize("compute", [None, 7])
def test_a_device_user_whose_part_is_not_known_may_be_on_any(compute: int | None) -> None:
    """It is not named, or it is none of those that are there."""
    gpu = cut(FOUR, (0, 2), (2, 1), (3, 1))
    users = on(gpu, {compute: "ns/train"})

    found = planned(gpu, desired(FOUR, 2), users)

    assert found.disturbed == {pod("ns/train")}
    assert planned(gpu, desired(FOUR, 2, 1, 1), users).steps == ()
    assert planned(gpu, GpuLayout(mig=True), users).disturbed == {pod("ns/train")}


def test_parts_are_added_next_to_a_device_user_of_all_of_the_gpu_instance() -> None:
    """To make a compute instance takes nothing from anybody."""
    gpu = cut(FOUR, (0, 2))

    found = planned(gpu, desired(FOUR, 2, 1, 1), on(gpu, {None: "ns/a"}), spare_busy=True)

    assert made(found.steps) == [(2, 1), (3, 1)]
