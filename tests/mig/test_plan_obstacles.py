# SPDX-License-Identifier: Apache-2.0
"""What a refused plan says: each reason whole, with its GPU, its words and its command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.mig_resources import MigStrategy
from discovery.model import Mode
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts
from mig.placement import Limit
from mig.planner import ManualReset, MigPlan, MigRefusal, Obstacle, ObstacleKind, plan
from mig.plugin_resources import allocatable, unserved
from mig.users.device_users import DeviceUsers, MigPart
from tests.mig import plan_parts
from tests.mig.naive_gpu import mig_gpu
from tests.mig.test_planner import A100, OFF, pod


def test_each_obstacle_says_what_is_wrong_and_what_a_person_can_run() -> None:
    """One GPU for each, in bus order; UUIDs that the node does not have come first, sorted."""
    gpus = [
        mig_gpu(A100, uuid="GPU-0", index=0, mode=None),
        mig_gpu(A100, uuid="GPU-1", index=1, mode=Mode(current=True, pending=False)),
        mig_gpu(A100, uuid="GPU-2", index=2, mode=Mode(current=False, pending=True)),
        mig_gpu(A100, uuid="GPU-3", index=3, mode=OFF),
        mig_gpu(A100, uuid="GPU-4", index=4),
        replace(mig_gpu(A100, uuid="GPU-5", index=5), profiles=()),
        mig_gpu(A100, uuid="GPU-6", index=6),
    ]
    on = GpuLayout(mig=True)
    wanted = {
        **dict.fromkeys(["GPU-y", "GPU-x", "GPU-0", "GPU-1", "GPU-2", "GPU-3"], on),
        "GPU-4": MIG_OFF,
        "GPU-5": layout_from_counts({"1g.5gb": 1}),
        "GPU-6": layout_from_counts({"7g.40gb": 1, "1g.5gb": 1}),
    }

    found = plan(gpus, wanted, {}, strategy=MigStrategy.SINGLE)

    assert found == MigRefusal(
        obstacles=(
            *(
                Obstacle(
                    kind=ObstacleKind.UNKNOWN_GPU, gpu=uuid, detail="the driver lists no such GPU"
                )
                for uuid in ("GPU-x", "GPU-y")
            ),
            Obstacle(kind=ObstacleKind.NO_MIG, gpu="GPU-0", detail=f"{A100} has no MIG"),
            Obstacle(
                kind=ObstacleKind.RESET_PENDING,
                gpu="GPU-1",
                detail="MIG will be off after a reset that has not happened yet",
                reset=ManualReset(bus_ids=("0000:01:00.0",)),
            ),
            Obstacle(
                kind=ObstacleKind.RESET_PENDING,
                gpu="GPU-2",
                detail="MIG will be on after a reset that has not happened yet",
                reset=ManualReset(bus_ids=("0000:02:00.0",)),
            ),
            Obstacle(
                kind=ObstacleKind.RESET_NEEDED,
                gpu="GPU-3",
                detail=f"{A100} turns MIG on by a reset of the whole GPU, and mig-mode-change is"
                " off",
                reset=ManualReset(bus_ids=("0000:03:00.0",), mode=True),
            ),
            Obstacle(
                kind=ObstacleKind.RESET_NEEDED,
                gpu="GPU-4",
                detail=f"{A100} turns MIG off by a reset of the whole GPU, and mig-mode-change is"
                " off",
                reset=ManualReset(bus_ids=("0000:04:00.0",), mode=False),
            ),
            Obstacle(
                kind=ObstacleKind.PROFILES_UNKNOWN,
                gpu="GPU-5",
                detail="the driver does not report the GPU's profiles;"
                " most report them with MIG on alone",
            ),
            Obstacle(
                kind=ObstacleKind.INFEASIBLE,
                gpu="GPU-6",
                detail="9 memory units, of which the GPU has 8",
                limit=Limit.ROOM,
                nearest=layout_from_counts({"7g.40gb": 1}),
            ),
        )
    )


@pytest.mark.parametrize("resetless", [True, False])
@pytest.mark.parametrize("reported", [True, False])
def test_what_never_fits_is_the_only_obstacle_whatever_the_mode(
    resetless: bool, reported: bool
) -> None:
    """Nobody is sent to reset a GPU for a layout that is refused afterwards."""
    gpu = mig_gpu(A100, mode=OFF, resetless=resetless)
    gpu = gpu if reported else replace(gpu, profiles=())

    found = plan([gpu], {gpu.uuid: layout_from_counts({"2g.10gb": 4})}, {})

    assert found == MigRefusal(
        obstacles=(
            Obstacle(
                kind=ObstacleKind.INFEASIBLE,
                gpu=gpu.uuid,
                detail="4 of 2g.10gb, of which the GPU allows 3",
                limit=Limit.COUNT,
                nearest=layout_from_counts({"2g.10gb": 3}),
            ),
        )
    )


def test_everybody_in_the_way_is_named_gpu_by_gpu() -> None:
    """Where nobody may be disturbed, and where the plugin could not start."""
    gpus = [mig_gpu(A100, ("1g.5gb", 2), uuid=f"GPU-{at}", index=at) for at in (0, 1)]
    part = MigPart("GPU-0", gpus[0].instances[0].id)
    users: DeviceUsers = {part: frozenset({pod("ns/b"), pod("ns/a")})}
    wanted = {one.uuid: layout_from_counts({"7g.40gb": 1}) for one in gpus}

    detail = "no way leaves alone what is in use; the least would disturb pod ns/a, pod ns/b"
    busy = Obstacle(kind=ObstacleKind.BUSY, gpu="GPU-0", detail=detail, users=users[part])
    assert plan(gpus, wanted, users, spare_busy=True) == MigRefusal(obstacles=(busy,))
    one_alone = plan(gpus, {"GPU-0": wanted["GPU-0"]}, users, strategy=MigStrategy.SINGLE)
    assert one_alone == MigRefusal(
        obstacles=(
            Obstacle(
                kind=ObstacleKind.PLUGIN,
                gpu=None,
                detail="the device plugin could not start: its strategy single needs devices of"
                " one kind; there would be 1g.5gb, 7g.40gb",
            ),
        )
    )


ON, SEVEN, MIX = (
    GpuLayout(mig=True),
    layout_from_counts({"1g.5gb": 7}),
    layout_from_counts({"2g.10gb": 1, "1g.5gb": 1}),
)


@pytest.mark.parametrize(
    ("layouts", "strategy", "why"),
    [
        (
            (SEVEN, MIG_OFF, MIG_OFF),
            MigStrategy.NONE,
            "its strategy none offers whole GPUs alone, and MIG would be on for some",
        ),
        (
            (SEVEN, ON, MIG_OFF),
            MigStrategy.SINGLE,
            "its strategy single needs MIG devices on each GPU; GPU 1 would have none",
        ),
        (
            (SEVEN, ON, ON),
            MigStrategy.SINGLE,
            "its strategy single needs MIG devices on each GPU; GPUs 1, 2 would have none",
        ),
        (
            (SEVEN, MIG_OFF, MIG_OFF),
            MigStrategy.SINGLE,
            "its strategy single needs MIG on all GPUs; it would be off on GPUs 1, 2",
        ),
        (
            (SEVEN, MIX, SEVEN),
            MigStrategy.SINGLE,
            "its strategy single needs devices of one kind; there would be 1g.5gb, 2g.10gb",
        ),
        ((SEVEN, SEVEN, SEVEN), MigStrategy.SINGLE, None),
        ((MIG_OFF, MIG_OFF, MIG_OFF), MigStrategy.SINGLE, None),
        ((SEVEN, ON, MIG_OFF), MigStrategy.MIXED, None),
    ],
)
def test_what_the_device_plugin_cannot_serve_is_named(
    layouts: tuple[GpuLayout, ...], strategy: MigStrategy, why: str | None
) -> None:
    """With the GPUs that it is about."""
    gpus = [mig_gpu(A100, uuid=f"GPU-{at}", index=at) for at in range(3)]

    assert unserved(list(zip(gpus, layouts, strict=True)), strategy) == why


def test_parts_of_the_same_profile_are_of_one_kind_whatever_the_model_is_called() -> None:
    """Equal in memory, multiprocessors and engines; a profile that nobody knows is its model's."""
    layout = layout_from_counts({"1c.3g.20gb": 3})
    gpus = [mig_gpu(A100, uuid="GPU-0"), replace(mig_gpu(A100, uuid="GPU-1"), model="another")]
    silent = [replace(gpu, profiles=()) for gpu in gpus]

    assert unserved([(gpu, layout) for gpu in gpus], MigStrategy.SINGLE) is None
    assert unserved([(gpu, layout) for gpu in silent], MigStrategy.SINGLE) is not None


def test_what_a_node_will_offer_is_counted_over_all_of_its_gpus() -> None:
    """Whole ones before and after one with MIG, whose profiles the driver need not report."""
    gpus = [mig_gpu(A100, uuid=f"GPU-{at}", index=at) for at in range(3)]
    silent = [replace(gpu, profiles=()) for gpu in gpus]
    layouts = (MIG_OFF, MIX, MIG_OFF)

    for each in (gpus, silent):
        assert allocatable(list(zip(each, layouts, strict=True)), MigStrategy.MIXED) == {
            "nvidia.com/gpu": 2,
            "nvidia.com/mig-1g.5gb": 1,
            "nvidia.com/mig-2g.10gb": 1,
        }
    assert allocatable(list(zip(gpus, (SEVEN,) * 3, strict=True)), MigStrategy.SINGLE) == {
        "nvidia.com/gpu": 21
    }


def test_a_driver_that_chooses_places_is_named_for_what_it_lacks() -> None:
    """With what a person can do about it."""
    gpu = replace(mig_gpu(A100), places=False)

    found = plan([gpu], {gpu.uuid: SEVEN}, {})

    detail = (
        "this driver chooses the places of instances itself"
        " (nvmlDeviceCreateGpuInstanceWithPlacement is missing): upgrade it"
    )
    obstacle = Obstacle(kind=ObstacleKind.NO_PLACES, gpu=gpu.uuid, detail=detail)
    assert found == MigRefusal(obstacles=(obstacle,))


@pytest.mark.parametrize("start", [0, 4])
def test_of_plans_that_disturb_as_many_the_one_that_destroys_less_is_taken(start: int) -> None:
    """Two groups of four pods, each on both GPUs: either can be spared, but the one costs three
    instances and the other two. Which of them is the better one on the first GPU alone is decided
    by the room that is left."""
    cheap, dear = (frozenset(pod(f"{name}/{at}") for at in range(4)) for name in ("cheap", "dear"))
    gpus = [
        mig_gpu(A100, ("1g.10gb", 0), ("1g.10gb", 4)),
        mig_gpu(A100, ("1g.10gb", 0), ("1g.5gb", 4), ("1g.5gb", 5), uuid="GPU-1", index=1),
    ]
    users = {
        MigPart(gpu.uuid, one.id): cheap if one.start == (0 if gpu.index else start) else dear
        for gpu in gpus
        for one in gpu.instances
    }
    wanted = {
        "GPU-0": layout_from_counts({"3g.20gb": 1, "1g.10gb": 2}),
        "GPU-1": layout_from_counts({"3g.20gb": 1, "1g.10gb": 1, "1g.5gb": 2}),
    }

    found = plan(gpus, wanted, users)

    assert isinstance(found, MigPlan)
    assert found.disturbed == cheap
    assert [(uuid, one.start) for uuid, one in plan_parts.destroyed(found)] == [
        ("GPU-0", start),
        ("GPU-1", 0),
    ]
