# SPDX-License-Identifier: Apache-2.0
"""Plans of drawn states, against the least that any plan costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from discovery.mig_state import CurrentCompute, MigGpu
from mig.gpu_layout import DesiredInstance, GpuLayout, current_layout
from mig.planner import MigPlan, MigRefusal, ObstacleKind, plan
from mig.steps import CreateCompute, DestroyCompute, DestroyInstance, MigStep
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.conftest import SCALE
from tests.mig import plan_parts
from tests.mig.drawn_plans import crowded, drawn
from tests.mig.exhaustive_plans import Cost, Gpu, least
from tests.mig.naive_gpu import NaiveGpu, as_read, mig_gpu

CASES = 1_000 if SCALE == 1 else 2_000 * SCALE
SHARES = 20
"""Tests that the cases are divided among."""
DECIDED = CASES // 100
"""Cases at least in which compute instances beside device users decide between plans."""


def read(drawn_gpus: Sequence[Gpu]) -> list[MigGpu]:
    """The GPUs as the driver reports them."""
    return [_read(index, gpu) for index, gpu in enumerate(drawn_gpus)]


def _read(index: int, drawn_gpu: Gpu) -> MigGpu:
    placed = [(one.profile, one.start, ()) for one in drawn_gpu.instances]
    gpu = mig_gpu(drawn_gpu.model, *placed, uuid=f"GPU-{index}", index=index)
    compute = {
        one.start: tuple(
            CurrentCompute(id=number, start=first, slices=slices, uuid=None)
            for number, (first, slices) in enumerate(one.compute)
        )
        for one in drawn_gpu.instances
    }
    with_compute = (replace(one, compute=compute[one.start]) for one in gpu.instances)
    return as_read(replace(gpu, instances=tuple(with_compute)))


def users_of(gpus: Sequence[MigGpu], drawn_gpus: Sequence[Gpu]) -> DeviceUsers:
    """The drawn device users as pods."""
    ids = [{one.start: one.id for one in gpu.instances} for gpu in gpus]
    return {
        MigPart(f"GPU-{index}", ids[index][start], compute): frozenset(
            DeviceUser(UserKind.POD, name) for name in names
        )
        for index, gpu in enumerate(drawn_gpus)
        for (start, compute), names in gpu.users.items()
    }


def layouts(drawn_gpus: Sequence[Gpu]) -> dict[str, GpuLayout]:
    """What is desired."""
    return {
        f"GPU-{index}": GpuLayout(
            mig=True,
            instances=tuple(
                DesiredInstance(one.profile, one.sizes, -1 if one.start is None else one.start)
                for one in gpu.desired
            ),
        )
        for index, gpu in enumerate(drawn_gpus)
    }


def cost_of(drawn_gpus: Sequence[Gpu], gpus: Sequence[MigGpu], steps: Sequence[MigStep]) -> Cost:
    """What steps cost, by what they destroy and who is on it."""
    disturbed: set[str] = set()
    lost_beside: list[tuple[set[str], int]] = []
    for gpu, its in zip(gpus, drawn_gpus, strict=True):
        mine = [step for step in steps if step.gpu == gpu.uuid]
        gone = {step.instance for step in mine if isinstance(step, DestroyInstance)}
        for one in gpu.instances:
            lost = {
                step.compute
                for step in mine
                if isinstance(step, DestroyCompute) and step.instance == one.id
            }
            whose = {at: names for (start, at), names in its.users.items() if start == one.start}
            if one.id in gone:
                disturbed.update(*whose.values())
            elif lost:
                disturbed.update(*(whose.get(at, frozenset()) for at in (*lost, None)))
                lost_beside.append((set().union(*whose.values()), len(lost)))
    return Cost(
        disturbed=len(disturbed),
        beside=sum(lost for whose, lost in lost_beside if whose - disturbed),
        lost=sum(isinstance(step, DestroyCompute | DestroyInstance) for step in steps),
        steps=len(steps),
    )


@pytest.mark.parametrize("share", range(SHARES))
def test_no_plan_costs_less_and_no_feasible_layout_is_refused(share: int) -> None:
    """By all four criteria together; and the steps lead there on hardware that refuses."""
    for seed in range(share, CASES, SHARES):
        assert_least(drawn(seed), seed)


@pytest.mark.parametrize("share", range(SHARES))
def test_no_plan_costs_less_where_most_device_users_are_on_several_gpus(share: int) -> None:
    """Of them it is decided for all GPUs together who goes."""
    for seed in range(share, CASES // 5, SHARES):
        assert_least(crowded(seed), seed)


def assert_least(drawn_gpus: Sequence[Gpu], seed: int) -> None:
    """The plan costs the least, and leads to the layouts; or there is none at all."""
    gpus, desired = read(drawn_gpus), layouts(drawn_gpus)
    users, best = users_of(gpus, drawn_gpus), least(drawn_gpus)

    found = plan(gpus, desired, users)

    if isinstance(found, MigRefusal):
        kinds = {obstacle.kind for obstacle in found.obstacles}
        assert (best, kinds) == (None, {ObstacleKind.INFEASIBLE}), seed
        return
    cost = cost_of(drawn_gpus, gpus, found.steps)
    assert cost == best, seed
    assert len(found.disturbed) == cost.disturbed, seed
    assert_leads_there(gpus, desired, found)
    spared = plan(gpus, desired, users, spare_busy=True)
    assert spared == found if cost.disturbed == 0 else isinstance(spared, MigRefusal), seed


def assert_leads_there(
    gpus: Sequence[MigGpu], desired: dict[str, GpuLayout], found: MigPlan
) -> None:
    """The steps can be taken one after the other, and the plan says what stays."""
    for gpu in gpus:
        hardware = NaiveGpu(gpu)
        for step in found.steps:
            if step.gpu == gpu.uuid:
                hardware.take(step)
        after = hardware.gpu
        assert current_layout(after, exact=True) == found.after[gpu.uuid]
        assert meets(after, desired[gpu.uuid])
        kept = [one for uuid, one in plan_parts.kept(found) if uuid == gpu.uuid]
        gone = [one for uuid, one in plan_parts.destroyed(found) if uuid == gpu.uuid]
        lost = [
            (one.id, part.id)
            for uuid, one, part in plan_parts.destroyed_compute(found)
            if uuid == gpu.uuid
        ]
        assert sorted(one.id for one in (*kept, *gone)) == [one.id for one in gpu.instances]
        stayed = {(one.id, one.start): set(one.compute) for one in after.instances}
        for one in kept:
            still = {part for part in one.compute if (one.id, part.id) not in lost}
            assert still <= stayed[one.id, one.start]


def meets(gpu: MigGpu, desired: GpuLayout) -> bool:
    """Whether a GPU has the desired instances, those with a place at it."""

    def key(profile: str, sizes: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        return profile, tuple(sorted(sizes, reverse=True))

    there = {one.start: key(one.profile, [p.slices for p in one.compute]) for one in gpu.instances}
    wanted = Counter(key(one.profile, one.compute) for one in desired.instances)
    at_place = [one for one in desired.instances if one.start >= 0]
    return Counter(there.values()) == wanted and all(
        there.get(one.start) == key(one.profile, one.compute) for one in at_place
    )


def test_compute_instances_beside_device_users_decide_often_enough() -> None:
    """Else a planner without that criterion would pass."""
    decided = 0
    for seed in range(CASES):
        drawn_gpus = drawn(seed)
        best, careless = least(drawn_gpus), least(drawn_gpus, careless=True)
        decided += best is not None and careless is not None and best.beside < careless.beside
        if decided == DECIDED:
            return
    raise AssertionError(f"{decided} of {CASES} cases, and not {DECIDED}")


@pytest.mark.parametrize("share", range(SHARES))
def test_the_plan_after_any_step_is_the_rest_of_the_plan(share: int) -> None:
    """Once those who are disturbed have gone; so each step leaves fewer of them."""
    for seed in range(share, CASES // 4, SHARES):
        drawn_gpus = drawn(seed)
        gpus, desired = read(drawn_gpus), layouts(drawn_gpus)
        users = users_of(gpus, drawn_gpus)
        found = plan(gpus, desired, users)
        if isinstance(found, MigRefusal):
            continue
        left = {part: whose - found.disturbed for part, whose in users.items()}
        hardware = {gpu.uuid: NaiveGpu(gpu) for gpu in gpus}
        for number, step in enumerate(found.steps, 1):
            hardware[step.gpu].take(step)
            now = [as_read(one.gpu) for one in hardware.values()]

            rest = plan(now, desired, left, spare_busy=True)

            assert isinstance(rest, MigPlan), (seed, number)
            expected = found.steps[number:]
            assert [*map(without_place, rest.steps)] == [*map(without_place, expected)], seed
            assert rest.after == found.after, seed


def without_place(step: MigStep) -> MigStep:
    """Where a GPU instance is not there to ask, the place of a compute instance is not known."""
    return replace(step, first=-1) if isinstance(step, CreateCompute) else step


@pytest.mark.parametrize("share", range(SHARES))
def test_a_change_that_stopped_after_any_step_goes_back(share: int) -> None:
    """From whatever is there then, to the layout of before at the same places."""
    for seed in range(share, CASES // 4, SHARES):
        drawn_gpus = drawn(seed)
        gpus, desired = read(drawn_gpus), layouts(drawn_gpus)
        found = plan(gpus, desired, {})
        if isinstance(found, MigRefusal):
            continue
        before = {gpu.uuid: current_layout(gpu, exact=True) for gpu in gpus}
        hardware = {gpu.uuid: NaiveGpu(gpu) for gpu in gpus}
        for step in found.steps[: seed % (len(found.steps) + 1)]:
            hardware[step.gpu].take(step)
        stopped = [as_read(one.gpu) for one in hardware.values()]

        back = plan(stopped, before, {})

        assert isinstance(back, MigPlan), seed
        for step in back.steps:
            hardware[step.gpu].take(step)
        after = {uuid: current_layout(one.gpu, exact=True) for uuid, one in hardware.items()}
        assert after == before, seed
