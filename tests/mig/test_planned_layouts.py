# SPDX-License-Identifier: Apache-2.0
"""Desired layouts of a node with their plan or refusal, as agent and command line evaluate them."""

from __future__ import annotations

import pytest

from base.errors import BadInput
from mig.configs.config_choice import LayoutChoice
from mig.configs.layout_annotation import parse_layout_annotation
from mig.planned_layouts import PlannedLayouts, PlanResult, planned_layouts
from mig.users.device_users import UserKind
from tests.mig.naive_gpu import mig_gpu
from tests.mig.test_planner import A100, OFF, held

SPLIT = mig_gpu(A100, ("3g.20gb", 4), ("1g.5gb", 0))
OTHER = mig_gpu(A100, uuid="GPU-1", index=1)
WITHOUT = mig_gpu(A100, uuid="GPU-2", index=2, mode=OFF, resetless=True)
GPUS = (SPLIT, OTHER, WITHOUT)
USERS = held(SPLIT, {4: "ns/job"})


def choice(text: str) -> LayoutChoice:
    return LayoutChoice(layout=parse_layout_annotation(text))


def planned(text: str, *, spare_busy: bool = False) -> PlannedLayouts:
    layouts = choice(text).gpu_layouts(GPUS)
    return planned_layouts(GPUS, layouts, USERS, spare_busy=spare_busy)


@pytest.mark.parametrize(
    ("text", "result", "sets_modes", "pods", "changing"),
    [
        ('{"0": {"7g.40gb": 1}}', PlanResult.STEPS, False, ["ns/job"], [0]),
        ('{"0": {"3g.20gb": 1, "1g.5gb": 1}}', PlanResult.NOTHING, False, [], []),
        ('{"0": {"1g.5gb": 2, "3g.20gb": 1}, "2": {}}', PlanResult.STEPS, True, [], [0, 2]),
        ('{"1": {"7g.40gb": 2}}', PlanResult.REFUSED, False, [], []),
    ],
)
def test_a_layout_has_one_result_and_its_effects(
    text: str, result: PlanResult, sets_modes: bool, pods: list[str], changing: list[int]
) -> None:
    found = planned(text)
    assert (found.result, found.sets_modes) == (result, sets_modes)
    assert (found.plan is None) == (result is PlanResult.REFUSED)
    assert found.disturbed(UserKind.POD) == pods
    assert found.disturbed(UserKind.PROCESS) == []
    assert [change.gpu.index for change in found.changes if change.steps] == changing


def test_a_layout_that_disturbs_somebody_is_refused_where_users_are_spared() -> None:
    assert planned('{"0": {"7g.40gb": 1}}', spare_busy=True).result is PlanResult.REFUSED


def test_a_choice_by_name_is_that_of_the_default_configurations() -> None:
    by_name, in_place = choice("all-1g.5gb"), choice('{"all": {"1g.5gb": 7}}')
    assert by_name.gpu_layouts(GPUS) == in_place.gpu_layouts(GPUS)
    with pytest.raises(BadInput, match=r"all-9g\.90gb"):
        choice("all-9g.90gb").gpu_layouts(GPUS)


@pytest.mark.parametrize(
    ("text", "is_enough"),
    [('{"0": {}}', True), ('{"0,9": {}}', False), ('{"all": {}}', False), ("all-1g.5gb", False)],
)
def test_other_gpus_need_no_reading_only_where_each_gpu_is_named(
    text: str, is_enough: bool
) -> None:
    assert choice(text).is_of(GPUS) is is_enough
