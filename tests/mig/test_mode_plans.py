# SPDX-License-Identifier: Apache-2.0
"""Plans that turn MIG on or off where that resets the GPU, and each reason why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.mig_mode_change import ModeChange, annotated_mode_change
from api.mig_resources import MigStrategy
from base.errors import BadInput
from discovery.mig_state import MigGpu
from discovery.model import Mode
from discovery.nvml_terms import Virtualization
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts
from mig.mode_permission import ModePermission
from mig.planned_layouts import PlannedLayouts, planned_layouts
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.steps import CreateInstance, DestroyInstance, SetMode
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.mig import plan_parts
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
OFF, ON = Mode(current=False, pending=False), Mode(current=True, pending=True)
TO_ON, TO_OFF = Mode(current=False, pending=True), Mode(current=True, pending=False)
DRIVER = ModePermission(by=ModeChange.DRIVER)
OWN = ModePermission(by=ModeChange.DRIVER, begun=frozenset({"GPU-0"}))
SEVEN = layout_from_counts({"1g.5gb": 7})
MIXED = layout_from_counts({"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2})


def silent(index: int = 0, mode: Mode = OFF) -> MigGpu:
    """An A100 with MIG off, of which the driver reports no profiles."""
    gpu = mig_gpu(A100, uuid=f"GPU-{index}", index=index, mode=mode)
    return replace(gpu, profiles=())


def planned(
    gpu: MigGpu,
    layout: GpuLayout,
    modes: ModePermission = DRIVER,
    users: DeviceUsers | None = None,
) -> PlannedLayouts:
    """The plan for one GPU."""
    return planned_layouts([gpu], {gpu.uuid: layout}, users or {}, modes=modes)


def refused(gpu: MigGpu, layout: GpuLayout, modes: ModePermission = DRIVER) -> list[ObstacleKind]:
    """Why there is no plan; empty where there is one."""
    found = plan([gpu], {gpu.uuid: layout}, {}, modes=modes)
    return [one.kind for one in found.obstacles] if isinstance(found, MigRefusal) else []


def modes_set(found: PlannedLayouts) -> list[bool]:
    """The modes that steps set, in order."""
    assert found.plan is not None
    return [step.on for step in found.plan.steps if isinstance(step, SetMode)]


@pytest.mark.parametrize("layout", [SEVEN, MIXED, GpuLayout(mig=True)])
def test_mig_is_turned_on_before_anything_is_made(layout: GpuLayout) -> None:
    """By the table of known models, since the driver reports nothing yet, and the plan says so."""
    found = planned(silent(), layout)

    assert found.plan is not None
    assert found.plan.steps[0] == SetMode(gpu="GPU-0", on=True)
    made = [step for step in found.plan.steps if isinstance(step, CreateInstance)]
    assert len(made) == len(layout.instances)
    assert found.resets == (0,)
    assert found.assumed == ((0,) if layout.instances else ())
    assert found.sets_modes
    assert found.changes[0].resets


def test_places_by_the_table_are_not_kept_for_the_driver() -> None:
    """It may have others: the change is for the layout as it is desired."""
    found = planned(silent(), MIXED)
    reported = planned(mig_gpu(A100, mode=OFF), MIXED)

    assert found.plan is not None
    assert found.plan.after == {"GPU-0": MIXED}
    assert reported.plan is not None
    assert reported.assumed == ()
    assert all(one.start >= 0 for one in reported.plan.after["GPU-0"].instances)


def test_the_node_offers_what_the_table_has() -> None:
    """Its GPUs too that keep MIG off."""
    gpus = [silent(0), silent(1)]

    found = plan(gpus, {"GPU-0": MIXED}, {}, strategy=MigStrategy.MIXED, modes=DRIVER)

    assert isinstance(found, MigPlan)
    assert found.allocatable == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.5gb": 2,
        "nvidia.com/mig-2g.10gb": 1,
        "nvidia.com/mig-3g.20gb": 1,
    }


def test_mig_is_turned_off_after_all_is_gone() -> None:
    gpu = mig_gpu(A100, ("1g.5gb", 0), ("3g.20gb", 4))

    found = planned(gpu, MIG_OFF)

    assert found.plan is not None
    assert found.plan.steps[-1] == SetMode(gpu="GPU-0", on=False)
    assert sum(isinstance(step, DestroyInstance) for step in found.plan.steps) == 2
    assert [one.id for _, one in plan_parts.destroyed(found.plan)] == [
        one.id for one in gpu.instances
    ]


@pytest.mark.parametrize("mode", [OFF, ON])
def test_everybody_on_the_gpu_is_disturbed_and_nobody_on_others(mode: Mode) -> None:
    """Who has the whole GPU, who has an instance, and a program with its file open."""
    gpu = mig_gpu(A100, *([("1g.5gb", 0)] if mode.current else []), mode=mode)
    whole, part = DeviceUser(UserKind.POD, "ns/whole"), DeviceUser(UserKind.POD, "ns/part")
    opener = DeviceUser(UserKind.PROCESS, "7 nv-hostengine")
    other = DeviceUser(UserKind.POD, "ns/other")
    users: DeviceUsers = {
        MigPart("GPU-0", None): frozenset({whole, opener}),
        MigPart("GPU-0", 7): frozenset({part}),
        MigPart("GPU-1", None): frozenset({other}),
    }

    found = planned(gpu, GpuLayout(mig=not mode.current), users=users)

    assert found.plan is not None
    assert found.plan.disturbed == {whole, part, opener}


@pytest.mark.parametrize(
    ("gpu", "layout", "modes", "kinds"),
    [
        (silent(), SEVEN, ModePermission(), [ObstacleKind.RESET_NEEDED]),
        (mig_gpu(A100), MIG_OFF, ModePermission(), [ObstacleKind.RESET_NEEDED]),
        (silent(), layout_from_counts({"1g.5gb": 8}), DRIVER, [ObstacleKind.INFEASIBLE]),
        (silent(), layout_from_counts({"9g.80gb": 1}), DRIVER, [ObstacleKind.INFEASIBLE]),
        (
            replace(silent(), device_id=0x123410DE),
            SEVEN,
            DRIVER,
            [ObstacleKind.PROFILES_UNKNOWN],
        ),
        (replace(silent(), device_id=0x123410DE), GpuLayout(mig=True), DRIVER, []),
        (silent(mode=TO_ON), SEVEN, DRIVER, [ObstacleKind.RESET_PENDING]),
        (mig_gpu(A100, mode=TO_OFF), SEVEN, DRIVER, [ObstacleKind.RESET_PENDING]),
        (silent(mode=TO_ON), SEVEN, OWN, []),
        (mig_gpu(A100, mode=None), SEVEN, DRIVER, [ObstacleKind.NO_MIG]),
        (mig_gpu(A100, mode=None), MIG_OFF, DRIVER, []),
        *(
            (replace(silent(), virtualization=kind), SEVEN, DRIVER, [ObstacleKind.VGPU])
            for kind in (Virtualization.VGPU, Virtualization.HOST_VGPU, Virtualization.HOST_VSGA)
        ),
        (replace(silent(), virtualization=Virtualization.PASSTHROUGH), SEVEN, DRIVER, []),
        (
            replace(mig_gpu(A100), virtualization=Virtualization.HOST_VGPU),
            SEVEN,
            DRIVER,
            [],
        ),
        (replace(silent(), resetless=True), SEVEN, DRIVER, [ObstacleKind.PROFILES_UNKNOWN]),
        (replace(silent(), mode=ON), SEVEN, DRIVER, [ObstacleKind.PROFILES_UNKNOWN]),
        (silent(), MIG_OFF, DRIVER, []),
    ],
)
def test_each_reason_against_a_change_of_the_mode_has_its_name(
    gpu: MigGpu, layout: GpuLayout, modes: ModePermission, kinds: list[ObstacleKind]
) -> None:
    """What never fits comes first, so that nobody is drained for it."""
    assert refused(gpu, layout, modes) == kinds


def test_a_pending_mode_on_another_gpu_is_not_the_changes_own() -> None:
    gpus = [silent(0), silent(1, TO_ON)]

    found = plan(gpus, dict.fromkeys(("GPU-0", "GPU-1"), SEVEN), {}, modes=OWN)

    assert isinstance(found, MigRefusal)
    assert [(one.gpu, one.kind) for one in found.obstacles] == [
        ("GPU-1", ObstacleKind.RESET_PENDING)
    ]


def test_its_own_pending_mode_is_asked_for_again_or_taken_back() -> None:
    """Forward the request is repeated, as nvml.h says after IN_USE; back it is cancelled, which
    resets nothing."""
    forward, back = (
        planned(silent(mode=TO_ON), SEVEN, OWN),
        planned(silent(mode=TO_ON), MIG_OFF, OWN),
    )

    assert (modes_set(forward), len(forward.resets)) == ([True], 1)
    assert (modes_set(back), len(back.resets)) == ([False], 0)


def test_a_plan_on_a_gpu_that_needs_no_reset_resets_none() -> None:
    gpu = mig_gpu("h100-sxm5-80gb", mode=OFF, resetless=True)

    found = planned(gpu, GpuLayout(mig=True), ModePermission())

    assert (modes_set(found), found.resets, found.changes[0].resets) == ([True], (), False)


@pytest.mark.parametrize("text", ["", "Driver", "on", "nvidia-smi", "driver "])
def test_a_value_that_is_no_permission_is_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"gpuscape\.io/mig-mode-change is .*: write off or driver"):
        annotated_mode_change(text)


def test_the_two_values_are_understood() -> None:
    assert [annotated_mode_change(text) for text in ("off", "driver")] == list(ModeChange)
