# SPDX-License-Identifier: Apache-2.0
"""The layouts of a self-test have every profile at every place, and each fits an empty GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mig.placement import Grid
from mig.trial_layouts import trial_layouts, trial_title
from simulator.description.machine_catalog import load_models
from tests.mig.mig_gpus import A30, A100, ON, mig_gpu

MODELS = sorted(name for name, model in load_models().items() if model.mig)


@pytest.mark.parametrize("model", MODELS)
def test_every_profile_is_tried_at_every_place(model: str) -> None:
    gpu = mig_gpu(0, model, mode=ON)

    layouts = list(trial_layouts(gpu))

    tried = {(one.profile, one.start) for layout in layouts for one in layout.instances}
    assert {(one.name, start) for one in gpu.profiles for start in one.starts} <= tried
    assert all(Grid(gpu.profiles).misfit(layout.instances) is None for layout in layouts)
    for profile in gpu.profiles:
        most = max(
            sum(one.profile == profile.name for one in layout.instances) for layout in layouts
        )
        assert most == Grid(gpu.profiles).max_count(profile)


def test_parts_of_a_mix_are_replaced_and_an_instance_is_divided() -> None:
    """The mix, the mix without its largest, another one in its room; then parts."""
    *_, mix, rest, other, parts = [
        one.instances for one in trial_layouts(mig_gpu(0, A100, mode=ON))
    ]

    assert [one.profile for one in mix] == ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
    assert [one.profile for one in rest] == ["1g.5gb", "1g.5gb", "2g.10gb"]
    assert [one.profile for one in other] == ["1g.5gb", "1g.5gb", "2g.10gb", "2g.10gb"]
    assert [(one.profile, one.compute) for one in parts] == [("2g.10gb", (1, 1))]


def test_the_report_can_name_each_layout() -> None:
    """In the order in which they are tried."""
    assert [trial_title(one) for one in trial_layouts(mig_gpu(0, A30, mode=ON))] == [
        *("4 x 1g.6gb", "2 x 2g.12gb", "1 x 4g.24gb at 0", "1 x 1g.6gb+me at 0"),
        *(f"1 x 1g.6gb+me at {start}" for start in (1, 2, 3)),
        *("1 x 2g.12gb+me at 0", "1 x 2g.12gb+me at 2"),
        *("2 x 1g.6gb, 1 x 2g.12gb", "2 x 1g.6gb", "3 x 1g.6gb", "1 x 2g.12gb in 1c+1c"),
    ]


def test_a_driver_that_reports_too_many_of_a_profile_is_not_believed() -> None:
    """As it does of an A30: what has no disjoint places is not asked for."""
    gpu = mig_gpu(0, A30, mode=ON)
    boasting = replace(gpu, profiles=tuple(replace(one, max_instances=9) for one in gpu.profiles))

    tried = list(trial_layouts(boasting))

    assert all(Grid(boasting.profiles).misfit(one.instances) is None for one in tried)
    assert tried == list(trial_layouts(gpu))


def test_without_profiles_nothing_is_tried() -> None:
    assert list(trial_layouts(mig_gpu(0, A100, mode=ON, silent=True))) == []
