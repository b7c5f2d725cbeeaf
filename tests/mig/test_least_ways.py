# SPDX-License-Identifier: Apache-2.0
"""Ways of many GPUs together: those that share device users, and the bound on the work."""

from __future__ import annotations

import random

import pytest

from discovery.mig_state import MigGpu
from mig import least_ways
from mig.gpu_layout import GpuLayout, current_layout, layout_from_counts
from mig.planner import MigPlan, plan
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart
from tests.mig import plan_parts
from tests.mig.naive_gpu import NaiveGpu, mig_gpu
from tests.mig.test_planner import A100, pod

GPUS = 16
Case = tuple[list[MigGpu], dict[str, GpuLayout], dict[MigPart, frozenset[DeviceUser]]]


def seven_each(number: int, wanted: dict[str, int]) -> tuple[list[MigGpu], dict[str, GpuLayout]]:
    """GPUs with seven instances each, and the same layout for all."""
    gpus = [
        mig_gpu(A100, *(("1g.5gb", at) for at in range(7)), uuid=f"GPU-{index}", index=index)
        for index in range(number)
    ]
    return gpus, {gpu.uuid: layout_from_counts(wanted) for gpu in gpus}


def spread(gpus: list[MigGpu], instances: int, seed: int) -> DeviceUsers:
    """Pods that have so many instances each, anywhere."""
    some = random.Random(seed)  # noqa: S311 - repeatable, not secret
    parts = [MigPart(gpu.uuid, one.id) for gpu in gpus for one in gpu.instances]
    some.shuffle(parts)
    return {
        part: frozenset({pod(f"ns/{number // instances}")}) for number, part in enumerate(parts)
    }


def planned(gpus: list[MigGpu], wanted: dict[str, GpuLayout], users: DeviceUsers) -> MigPlan:
    """The plan, which leads to the layouts and disturbs whom it names."""
    found = plan(gpus, wanted, users)
    assert isinstance(found, MigPlan)
    for gpu in gpus:
        hardware = NaiveGpu(gpu)
        for step in found.steps:
            if step.gpu == gpu.uuid:
                hardware.take(step)
        assert current_layout(hardware.gpu) == wanted[gpu.uuid]
    gone = {MigPart(uuid, one.id) for uuid, one in plan_parts.destroyed(found)}
    assert found.disturbed == frozenset().union(*(users.get(part, ()) for part in gone))
    return found


def test_a_pod_on_every_gpu_is_disturbed_once_rather_than_one_on_each() -> None:
    """On each GPU another instance of the one pod is in a place that has to go or can."""
    gpus, wanted = seven_each(GPUS, {"1g.5gb": 6})
    some = random.Random(1)  # noqa: S311 - repeatable, not secret
    users: dict[MigPart, frozenset[DeviceUser]] = {}
    for gpu in gpus:
        everywhere = some.choice(gpu.instances)
        for one in gpu.instances:
            name = "ns/everywhere" if one is everywhere else f"ns/{gpu.index}-{one.id}"
            users[MigPart(gpu.uuid, one.id)] = frozenset({pod(name)})

    assert planned(gpus, wanted, users).disturbed == {pod("ns/everywhere")}


@pytest.mark.parametrize("instances", [1, 3, 7, 16])
def test_many_gpus_with_pods_on_several_are_planned(instances: int) -> None:
    """Sixteen GPUs and 112 instances, all in use; of each four have to go at least."""
    gpus, wanted = seven_each(GPUS, {"1g.5gb": 3, "3g.20gb": 1})
    users = spread(gpus, instances, seed=instances)

    found = planned(gpus, wanted, users)

    alone = frozenset[DeviceUser]().union(
        *(planned([gpu], {gpu.uuid: wanted[gpu.uuid]}, users).disturbed for gpu in gpus)
    )
    assert len(found.disturbed) <= len(alone)
    assert len(found.disturbed) >= GPUS * 3 / instances


def test_at_the_bound_of_the_work_there_is_a_plan_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leads to the layouts and names whom it disturbs, who may be more than the fewest."""
    gpus, wanted = seven_each(GPUS, {"1g.5gb": 4, "2g.10gb": 1})
    users = spread(gpus, 2, seed=1)
    best = planned(gpus, wanted, users)
    monkeypatch.setattr(least_ways, "MOST_TRIED", 1)

    found = planned(gpus, wanted, users)

    assert len(found.disturbed) >= len(best.disturbed)
    assert len(plan_parts.destroyed(found)) >= len(plan_parts.destroyed(best))
