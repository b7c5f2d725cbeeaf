# SPDX-License-Identifier: Apache-2.0
"""What a plan means for each GPU and each instance, as people read it."""

from __future__ import annotations

import pytest

from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, layout_from_counts
from mig.gpu_plan import GpuPlan, InstanceAction, InstanceChange
from mig.planner import MigPlan, plan
from mig.users.device_users import DeviceUsers, MigPart
from tests.mig.naive_gpu import ON, mig_gpu
from tests.mig.test_planner import A100, OFF, held, pod

H100 = "h100-sxm5-80gb"
FIRST, SECOND, THIRD = "GPU-0", "GPU-1", "GPU-2"


def changes(
    gpus: list[MigGpu], wanted: dict[str, GpuLayout], users: DeviceUsers | None = None
) -> tuple[GpuPlan, ...]:
    """Of the GPUs that a layout is wanted for."""
    found = plan(gpus, wanted, users or {})
    assert isinstance(found, MigPlan)
    return found.gpus


def test_each_instance_of_each_gpu_has_its_fate_and_its_device_users() -> None:
    """By start; what goes before what comes in its place; GPUs that nobody asks for are left."""
    gpus = [
        mig_gpu(A100, ("3g.20gb", 4, (1,)), ("2g.10gb", 0), ("1g.5gb", 2)),
        mig_gpu(A100, ("7g.40gb", 0), uuid=SECOND, index=1),
        mig_gpu(A100, ("1g.5gb", 0), uuid=THIRD, index=2),
    ]
    kept, gone, idle = gpus[0].instances[0], *sorted(gpus[0].instances[1:], key=lambda it: it.start)
    users = {
        **held(gpus[0], {4: "ns/stays"}),
        MigPart(FIRST, gone.id): frozenset({pod("ns/b"), pod("ns/a")}),
    }
    parts = DesiredInstance("3g.20gb", (1, 1, 1), 4)
    two = DesiredInstance("1g.10gb", (1,), 0)
    wanted = {
        FIRST: GpuLayout(mig=True, instances=(parts, two)),
        THIRD: layout_from_counts({"1g.5gb": 1}),
    }

    first, third = changes(gpus, wanted, users)

    assert (first.gpu, first.sets_mode, first.resets) == (gpus[0], False, False)
    assert first.instances == (
        InstanceChange(
            action=InstanceAction.DESTROY,
            id=gone.id,
            profile="2g.10gb",
            start=0,
            size=2,
            compute=(2,),
            users=(pod("ns/a"), pod("ns/b")),
        ),
        InstanceChange(
            action=InstanceAction.CREATE,
            id=None,
            profile="1g.10gb",
            start=0,
            size=2,
            compute=(1,),
        ),
        InstanceChange(
            action=InstanceAction.DESTROY,
            id=idle.id,
            profile="1g.5gb",
            start=2,
            size=1,
            compute=(1,),
        ),
        InstanceChange(
            action=InstanceAction.KEEP,
            id=kept.id,
            profile="3g.20gb",
            start=4,
            size=4,
            compute=(1, 1, 1),
            added=(1, 1),
            users=(pod("ns/stays"),),
        ),
    )
    assert len(first.steps) == 8
    assert (third.gpu, third.steps) == (gpus[2], ())
    assert [(one.action, one.start) for one in third.instances] == [(InstanceAction.KEEP, 0)]


def test_parts_that_go_and_come_in_a_kept_instance_are_apart() -> None:
    """With what is there at the end, and the device users of all its parts."""
    gpu = mig_gpu(A100, ("4g.20gb", 0, (2, 1, 1)))
    number = gpu.instances[0].id
    wanted = GpuLayout(mig=True, instances=(DesiredInstance("4g.20gb", (2, 2)),))
    users = {MigPart(FIRST, number, 0): frozenset({pod("ns/stays")})}

    (change,) = changes([gpu], {FIRST: wanted}, users)

    assert change.instances == (
        InstanceChange(
            action=InstanceAction.KEEP,
            id=number,
            profile="4g.20gb",
            start=0,
            size=4,
            compute=(2, 2),
            added=(2,),
            removed=(1, 1),
            users=(pod("ns/stays"),),
        ),
    )


def test_parts_are_listed_with_the_largest_first() -> None:
    """Those that are there in whatever order, and those to come."""
    gpu = mig_gpu(A100, ("3g.20gb", 4, (1, 2)))
    wanted = GpuLayout(
        mig=True,
        instances=(DesiredInstance("3g.20gb", (2, 1), 4), DesiredInstance("3g.20gb", (2, 1), 0)),
    )

    (change,) = changes([gpu], {FIRST: wanted})

    assert [(one.action, one.compute, one.added) for one in change.instances] == [
        (InstanceAction.CREATE, (2, 1), ()),
        (InstanceAction.KEEP, (2, 1), ()),
    ]


@pytest.mark.parametrize(
    ("mode", "on", "after", "sets"),
    [
        (None, False, False, False),
        (OFF, False, False, False),
        (OFF, True, True, True),
        (ON, False, False, True),
        (Mode(current=True, pending=False), True, True, True),
        (ON, True, True, False),
    ],
)
def test_the_mode_of_now_and_of_then_is_in_it(
    mode: Mode | None, on: bool, after: bool, sets: bool
) -> None:
    """Also where it is set to what it is, to end the wait for another one."""
    gpu = mig_gpu(H100, mode=mode, resetless=True)

    (change,) = changes([gpu], {FIRST: GpuLayout(mig=True) if on else MIG_OFF})

    assert (change.gpu.mode, change.after.mig, change.sets_mode) == (mode, after, sets)
