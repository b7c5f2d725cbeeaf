# SPDX-License-Identifier: Apache-2.0
"""Plans, against a search through every final state, and on a GPU that refuses like hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, current_layout, layout_from_counts
from mig.placement import Limit
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.steps import CreateCompute, CreateInstance, DestroyCompute, DestroyInstance, SetMode
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.mig import plan_parts
from tests.mig.naive_gpu import ON, NaiveGpu, mig_gpu

A100 = "a100-sxm4-40gb"
OFF = Mode(current=False, pending=False)


def pod(name: str) -> DeviceUser:
    """A pod that has a device."""
    return DeviceUser(UserKind.POD, name)


def held(gpu: MigGpu, by: Mapping[int, str]) -> DeviceUsers:
    """Start of an instance to the pod on it."""
    return {
        MigPart(gpu.uuid, one.id): frozenset({pod(by[one.start])})
        for one in gpu.instances
        if one.start in by
    }


def planned(
    gpu: MigGpu, want: GpuLayout, users: DeviceUsers | None = None, *, spare_busy: bool = False
) -> MigPlan:
    """The plan for one GPU; fails where it is refused."""
    found = plan([gpu], {gpu.uuid: want}, users or {}, spare_busy=spare_busy)
    assert isinstance(found, MigPlan), found
    return found


def refused(
    gpu: MigGpu, want: GpuLayout, users: DeviceUsers | None = None, *, spare_busy: bool = False
) -> MigRefusal:
    """The refusal for one GPU; fails where there is a plan."""
    found = plan([gpu], {gpu.uuid: want}, users or {}, spare_busy=spare_busy)
    assert isinstance(found, MigRefusal), found
    return found


def performed(gpu: MigGpu, found: MigPlan) -> NaiveGpu:
    """The GPU after the steps, which must be as the plan says."""
    hardware = NaiveGpu(gpu)
    for step in found.steps:
        hardware.take(step)
    assert current_layout(hardware.gpu, exact=True) == found.after[gpu.uuid]
    return hardware


def test_what_is_as_wanted_is_not_touched() -> None:
    """Not one step."""
    gpu = mig_gpu(A100, ("1g.5gb", 0), ("2g.10gb", 2), ("3g.20gb", 4))

    found = planned(gpu, layout_from_counts({"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}))

    assert found.steps == ()
    assert len(plan_parts.kept(found)) == 3
    assert found.allocatable is None  # nobody said what the device plugin's strategy is


def test_a_busy_instance_stays_and_the_others_go_around_it() -> None:
    """A naive tool wipes the GPU. The 3g can start at 0 and 4, and the pod sits at 6."""
    gpu = mig_gpu(A100, ("1g.5gb", 0), ("1g.5gb", 6))

    found = planned(
        gpu, layout_from_counts({"1g.5gb": 1, "3g.20gb": 1}), held(gpu, {6: "default/job"})
    )

    assert found.disturbed == frozenset()
    assert [type(step) for step in found.steps[1:]] == [
        DestroyInstance,
        CreateInstance,
        CreateCompute,
    ]
    assert found.steps[2] == CreateInstance(gpu=gpu.uuid, profile="3g.20gb", start=0, size=4)


def test_one_that_blocks_is_given_up_for_one_that_does_not() -> None:
    """Of seven only the three at 4, 5 and 6 must go, or the four at 0 to 3: fewer."""
    gpu = mig_gpu(A100, *(("1g.5gb", at) for at in range(7)))

    found = planned(gpu, layout_from_counts({"1g.5gb": 4, "3g.20gb": 1}))

    assert sorted(one.start for _, one in plan_parts.destroyed(found)) == [4, 5, 6]


def test_fewer_pods_are_worth_more_than_fewer_instances() -> None:
    """Four idle ones go rather than three of which one is in use."""
    gpu = mig_gpu(A100, *(("1g.5gb", at) for at in range(7)))

    found = planned(
        gpu, layout_from_counts({"1g.5gb": 3, "3g.20gb": 1}), held(gpu, {5: "default/job"})
    )

    assert found.disturbed == frozenset()
    assert sorted(one.start for _, one in plan_parts.destroyed(found)) == [0, 1, 2, 3]


def test_a_pod_with_several_instances_counts_once() -> None:
    """Three instances of one pod are fewer evictions than two of two pods."""
    gpu = mig_gpu(A100, *(("1g.5gb", at) for at in range(7)))
    users = held(gpu, {4: "ns/a", 5: "ns/a", 6: "ns/a", 0: "ns/b", 1: "ns/c"})

    found = planned(gpu, layout_from_counts({"1g.5gb": 3, "3g.20gb": 1}), users)

    assert found.disturbed == {pod("ns/a")}


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("second", [0, 2])
def test_a_pod_on_two_gpus_is_disturbed_once_rather_than_two_pods(first: int, second: int) -> None:
    """Each GPU by itself could as well disturb another pod."""
    gpus = [
        mig_gpu(A100, ("2g.10gb", 0), ("2g.10gb", 2), uuid=f"GPU-{at}", index=at) for at in (0, 1)
    ]
    users = {
        **held(gpus[0], {first: "ns/both", 2 - first: "ns/a"}),
        **held(gpus[1], {second: "ns/both", 2 - second: "ns/b"}),
    }

    found = plan(gpus, {one.uuid: layout_from_counts({"2g.10gb": 1}) for one in gpus}, users)

    assert isinstance(found, MigPlan)
    assert found.disturbed == {pod("ns/both")}


def test_of_equal_ones_that_goes_which_leaves_more_room() -> None:
    """A 4g.20gb starts at 0 alone."""
    gpu = mig_gpu(A100, ("1g.5gb", 0), ("1g.5gb", 6))

    assert [
        one.start
        for _, one in plan_parts.destroyed(planned(gpu, layout_from_counts({"1g.5gb": 1})))
    ] == [0]


def test_a_part_that_is_in_the_way_of_a_larger_one_is_made_anew_and_its_gpu_instance_stays() -> (
    None
):
    """A 2c of three slices starts at 0 alone, and there is the 1c."""
    gpu = mig_gpu(A100, ("3g.20gb", 4, (1,)))

    found = planned(gpu, layout_from_counts({"2c.3g.20gb": 1, "1c.3g.20gb": 1}))

    number = gpu.instances[0].id
    assert found.steps == (
        DestroyCompute(gpu=gpu.uuid, instance=number, compute=0),
        CreateCompute(gpu=gpu.uuid, start=4, slices=2),
        CreateCompute(gpu=gpu.uuid, start=4, slices=1),
    )
    performed(gpu, found)


def test_one_that_is_at_the_place_asked_for_counts_as_that_one() -> None:
    """And the other is made anywhere else."""
    gpu = mig_gpu(A100, ("1g.5gb", 5))
    wishes = (DesiredInstance("1g.5gb", (1,), 5), DesiredInstance("1g.5gb", (1,)))

    found = planned(gpu, GpuLayout(mig=True, instances=wishes))

    assert (len(plan_parts.kept(found)), len(found.steps)) == (1, 2)


def test_an_instance_without_compute_instances_is_completed() -> None:
    """Upstream does not see it, and cannot create what is wanted beside it."""
    gpu = mig_gpu(A100, ("3g.20gb", 4, ()))

    found = planned(gpu, layout_from_counts({"3g.20gb": 1}))

    assert found.steps == (CreateCompute(gpu=gpu.uuid, start=4, slices=3),)


def test_an_instance_without_compute_instances_that_is_in_the_way_goes() -> None:
    """It has no device, and takes its place all the same."""
    gpu = mig_gpu(A100, ("3g.20gb", 0, ()), ("3g.20gb", 4))

    found = planned(gpu, layout_from_counts({"3g.20gb": 1, "2g.10gb": 2}))

    assert [one.start for _, one in plan_parts.destroyed(found)] == [0]
    performed(gpu, found)


@pytest.mark.parametrize(
    ("there", "steps"), [((2,), 4), ((1,), 2), ((1, 1), 1), ((), 3), ((2, 1), 3)]
)
def test_missing_single_slices_are_added(there: Sequence[int], steps: int) -> None:
    """Three of one slice are wanted: what is there stays where it can be a part of that."""
    gpu = mig_gpu(A100, ("3g.20gb", 4, there))

    found = planned(gpu, layout_from_counts({"1c.3g.20gb": 3}))

    assert performed(gpu, found).counts() == Counter({("3g.20gb", (1, 1, 1)): 1})
    assert [one.start for _, one in plan_parts.kept(found)] == [4]
    assert len(found.steps) == steps


def test_media_engines_belong_to_one_instance() -> None:
    """An instance with them cannot stand in for one without."""
    gpu = mig_gpu(A100, ("1g.5gb+me", 0))

    found = planned(gpu, layout_from_counts({"1g.5gb": 1}))

    assert [one.profile for _, one in plan_parts.destroyed(found)] == ["1g.5gb+me"]


def test_a_place_that_is_asked_for_is_taken() -> None:
    """A layout is restored at the same places, so that devices have the same UUIDs."""
    gpu = mig_gpu(A100, ("1g.5gb", 0), ("1g.5gb", 3))

    want = GpuLayout(
        mig=True, instances=(DesiredInstance("1g.5gb", (1,), 5), DesiredInstance("1g.5gb", (1,)))
    )
    found = planned(gpu, want)

    assert len(plan_parts.kept(found)) == 1
    assert {one.start for one in performed(gpu, found).gpu.instances} == {0, 5}


def test_the_exact_layout_of_a_state_is_reached_with_no_step() -> None:
    """And from an empty GPU with the same places."""
    gpu = mig_gpu(A100, ("1g.5gb", 6), ("2g.10gb", 4), ("3g.20gb", 0, (2, 1)))
    exact = current_layout(gpu, exact=True)

    assert planned(gpu, exact).steps == ()
    fresh = replace(gpu, instances=())
    rebuilt = performed(fresh, planned(fresh, exact)).gpu
    assert {(one.profile, one.start) for one in rebuilt.instances} == {
        (one.profile, one.start) for one in gpu.instances
    }


@pytest.mark.parametrize(
    ("devices", "limit", "nearest"),
    [
        ({"4g.20gb": 1, "3g.20gb": 1, "1g.5gb": 1}, Limit.ROOM, {"4g.20gb": 1, "3g.20gb": 1}),
        ({"1g.5gb": 8}, Limit.COUNT, {"1g.5gb": 7}),
        ({"1g.5gb+me": 2}, Limit.COUNT, {"1g.5gb+me": 1}),
        ({"1g.6gb": 2, "1g.5gb": 1}, Limit.PROFILE, {"1g.5gb": 1}),
    ],
)
def test_what_cannot_be_is_refused_with_the_limit_and_what_is_nearest(
    devices: Mapping[str, int], limit: Limit, nearest: Mapping[str, int]
) -> None:
    """Upstream reports success and creates nothing for an unknown profile."""
    gpu = mig_gpu(A100, ("7g.40gb", 0))

    [obstacle] = refused(gpu, layout_from_counts(devices)).obstacles

    assert (obstacle.kind, obstacle.limit) == (ObstacleKind.INFEASIBLE, limit)
    assert obstacle.nearest == layout_from_counts(nearest)


def test_a_change_that_would_disturb_somebody_is_refused_where_nobody_may_be() -> None:
    """With who is in the way; with leave, the plan names the same."""
    gpu = mig_gpu(A100, ("1g.5gb", 2))
    users = held(gpu, {2: "ns/train"})

    [obstacle] = refused(gpu, layout_from_counts({"7g.40gb": 1}), users, spare_busy=True).obstacles

    assert obstacle.kind is ObstacleKind.BUSY
    assert obstacle.users == planned(gpu, layout_from_counts({"7g.40gb": 1}), users).disturbed
    assert "pod ns/train" in obstacle.detail


def test_one_gpu_that_cannot_refuses_the_plan_of_all() -> None:
    """A node is not left half changed."""
    gpus = [mig_gpu(A100, uuid=f"GPU-{at}", index=at) for at in (0, 1)]
    wanted = {
        "GPU-0": layout_from_counts({"1g.5gb": 7}),
        "GPU-1": layout_from_counts({"1g.5gb": 8}),
    }

    found = plan(gpus, wanted, {})

    assert isinstance(found, MigRefusal)
    assert [one.gpu for one in found.obstacles] == ["GPU-1"]


def test_mode_changes_at_once_where_no_reset_is_needed() -> None:
    """Hopper and later; everybody on the GPU is disturbed."""
    gpu = mig_gpu("h100-sxm5-80gb", mode=OFF, resetless=True)
    users = {MigPart(gpu.uuid, None): frozenset({pod("ns/whole")})}

    found = planned(gpu, layout_from_counts({"1g.10gb": 2}), users)

    assert found.steps[0] == SetMode(gpu=gpu.uuid, on=True)
    assert found.disturbed == {pod("ns/whole")}
    assert sum(performed(gpu, found).counts().values()) == 2


def test_mode_goes_off_after_everything_has_ended() -> None:
    """The driver refuses it before."""
    gpu = mig_gpu("h100-sxm5-80gb", ("3g.40gb", 0), ("1g.10gb", 4), resetless=True)

    found = planned(gpu, MIG_OFF, held(gpu, {4: "ns/a"}))

    hardware = performed(gpu, found)
    assert hardware.gpu.mode == OFF
    assert found.disturbed == {pod("ns/a")}


def test_a_change_of_mode_disturbs_who_is_on_that_gpu_and_nobody_on_another() -> None:
    """Those on any of its instances, and those on all of it."""
    gpu = mig_gpu("h100-sxm5-80gb", ("3g.40gb", 0), ("1g.10gb", 4), resetless=True)
    other = mig_gpu("h100-sxm5-80gb", ("3g.40gb", 0), uuid="GPU-1", index=1, resetless=True)
    users = {
        **held(gpu, {0: "ns/a", 4: "ns/b"}),
        **held(other, {0: "ns/elsewhere"}),
        MigPart(gpu.uuid, None): frozenset({pod("ns/whole")}),
    }

    found = planned(gpu, MIG_OFF, users)

    assert found.disturbed == {pod("ns/a"), pod("ns/b"), pod("ns/whole")}


@pytest.mark.parametrize("on", [True, False])
def test_a_reset_is_named_and_never_planned(on: bool) -> None:
    """The command is for a person."""
    mode = OFF if on else ON
    gpu = mig_gpu(A100, mode=mode)

    [obstacle] = refused(gpu, layout_from_counts({"1g.5gb": 1}) if on else MIG_OFF).obstacles

    assert obstacle.kind is ObstacleKind.RESET_NEEDED
    assert obstacle.command is not None
    assert f"-mig {int(on)}" in obstacle.command


def test_a_mode_that_waits_for_a_reset_refuses_everything() -> None:
    """Even what would fit the mode that holds now."""
    gpu = mig_gpu(A100, mode=Mode(current=True, pending=False))

    [obstacle] = refused(gpu, layout_from_counts({"1g.5gb": 1})).obstacles

    assert obstacle.kind is ObstacleKind.RESET_PENDING


@pytest.mark.parametrize(("current", "want"), [(True, True), (True, False), (False, True)])
def test_a_mode_that_waits_without_a_reset_is_asked_for_again(current: bool, want: bool) -> None:
    """It waited for somebody who was on the GPU: a reset has no part in it."""
    gpu = mig_gpu("h100-sxm5-80gb", mode=Mode(current=current, pending=not current), resetless=True)

    found = planned(gpu, GpuLayout(mig=want))

    assert found.steps == (SetMode(gpu=gpu.uuid, on=want),)
    assert performed(gpu, found).gpu.mode == Mode(current=want, pending=want)


def test_a_gpu_without_mig_cannot_get_it_and_has_it_off_already() -> None:
    """Off is no change."""
    gpu = mig_gpu(A100, mode=None)

    assert planned(gpu, MIG_OFF).steps == ()
    assert refused(gpu, GpuLayout(mig=True)).obstacles[0].kind is ObstacleKind.NO_MIG


def test_profiles_that_the_driver_does_not_report_are_not_guessed() -> None:
    """Older drivers report them with MIG on alone."""
    newer = replace(mig_gpu("h100-sxm5-80gb", mode=OFF, resetless=True), device_id=0xFFFF10DE)
    gpu = replace(newer, profiles=())

    assert (
        refused(gpu, layout_from_counts({"1g.10gb": 7})).obstacles[0].kind
        is ObstacleKind.PROFILES_UNKNOWN
    )
    assert planned(gpu, GpuLayout(mig=True)).steps == (SetMode(gpu=gpu.uuid, on=True),)


def test_a_driver_that_chooses_places_itself_gets_no_instance_to_make_or_to_bring_back() -> None:
    """Also a destroy alone has a way back. What needs no place can be done."""
    whole = replace(mig_gpu(A100, ("3g.20gb", 4)), places=False)
    bare = replace(mig_gpu("h100-sxm5-80gb", mode=OFF, resetless=True), places=False)
    half = replace(mig_gpu(A100, ("3g.20gb", 4, ())), places=False)

    for layout in (layout_from_counts({"3g.20gb": 1, "1g.5gb": 1}), layout_from_counts({})):
        [obstacle] = refused(whole, layout).obstacles
        assert obstacle.kind is ObstacleKind.NO_PLACES
        assert obstacle.gpu == whole.uuid
    assert planned(whole, layout_from_counts({"3g.20gb": 1})).steps == ()
    assert planned(bare, GpuLayout(mig=True)).steps == (SetMode(gpu=bare.uuid, on=True),)
    assert len(planned(half, layout_from_counts({"3g.20gb": 1})).steps) == 1


def test_a_gpu_that_is_not_there_is_refused() -> None:
    """By its UUID."""
    found = plan([], {"GPU-x": MIG_OFF}, {})

    assert isinstance(found, MigRefusal)
    assert found.obstacles[0].kind is ObstacleKind.UNKNOWN_GPU


@pytest.mark.parametrize(
    ("first", "second", "served"),
    [
        ({"1g.5gb": 7}, {"1g.5gb": 7}, {"nvidia.com/gpu": 14}),
        ({"1g.5gb": 7}, {"2g.10gb": 3}, None),
        ({"1g.5gb": 2, "2g.10gb": 1}, {"1g.5gb": 7}, None),
        ({"1g.5gb": 7}, {}, None),
        ({"1g.5gb": 7}, None, None),
    ],
)
def test_single_takes_one_kind_of_device_on_all_gpus(
    first: Mapping[str, int], second: Mapping[str, int] | None, served: Mapping[str, int] | None
) -> None:
    """With anything else NVIDIA's plugin ends at once."""
    found = _of_two(first, second, MigStrategy.SINGLE)

    if served is None:
        assert isinstance(found, MigRefusal)
        assert [one.kind for one in found.obstacles] == [ObstacleKind.PLUGIN]
    else:
        assert isinstance(found, MigPlan)
        assert found.allocatable == served


def test_mixed_has_a_resource_for_each_profile_but_for_those_with_attributes() -> None:
    """One without MIG is a whole GPU. The plugin hands out ``1g.5gb+me`` as a ``1g.5gb``."""
    found = _of_two({"1g.5gb": 4, "1g.5gb+me": 1, "2g.10gb": 1}, None, MigStrategy.MIXED)

    assert isinstance(found, MigPlan)
    assert found.allocatable == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.5gb": 5,
        "nvidia.com/mig-2g.10gb": 1,
    }


def test_none_serves_no_mig_device() -> None:
    """The plugin would offer GPUs that no program can use."""
    assert isinstance(_of_two({"1g.5gb": 7}, None, MigStrategy.NONE), MigRefusal)
    assert isinstance(_of_two(None, None, MigStrategy.NONE), MigPlan)


def _of_two(
    first: Mapping[str, int] | None, second: Mapping[str, int] | None, strategy: MigStrategy
) -> MigPlan | MigRefusal:
    """Two GPUs, each with these devices, or with MIG off."""
    gpus = [
        mig_gpu(A100, uuid=f"GPU-{at}", index=at, mode=OFF if devices is None else ON)
        for at, devices in enumerate((first, second))
    ]
    wanted = {
        gpu.uuid: MIG_OFF if devices is None else layout_from_counts(devices)
        for gpu, devices in zip(gpus, (first, second), strict=True)
    }
    return plan(gpus, wanted, {}, strategy=strategy)


def test_the_plugin_is_asked_about_gpus_that_nothing_is_wanted_for_too() -> None:
    """One profile here and another there is mixed, whoever asked for it."""
    gpus = [
        mig_gpu(A100, uuid="GPU-0"),
        mig_gpu(A100, ("2g.10gb", 0), uuid="GPU-1", index=1),
    ]

    found = plan(
        gpus, {"GPU-0": layout_from_counts({"1g.5gb": 7})}, {}, strategy=MigStrategy.SINGLE
    )

    assert isinstance(found, MigRefusal)


def test_equal_names_of_two_models_are_two_kinds_of_device() -> None:
    """The plugin compares sizes and engines, not names."""
    gpus = [mig_gpu(A100, uuid=f"GPU-{at}", index=at) for at in (0, 1)]
    larger = tuple(replace(one, memory_bytes=one.memory_bytes + 1) for one in gpus[1].profiles)
    gpus[1] = replace(gpus[1], profiles=larger)
    wanted = {gpu.uuid: layout_from_counts({"1g.5gb": 7}) for gpu in gpus}

    assert isinstance(plan(gpus, wanted, {}, strategy=MigStrategy.SINGLE), MigRefusal)
