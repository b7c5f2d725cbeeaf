# SPDX-License-Identifier: Apache-2.0
"""Of several plans that are as good, which one; and the order of its steps."""

from __future__ import annotations

from mig.gpu_layout import DesiredInstance, GpuLayout, layout_from_counts
from mig.steps import CreateCompute
from tests.mig.naive_gpu import mig_gpu
from tests.mig.test_planner import A100, planned


def test_room_is_what_is_left_beside_what_is_made_too() -> None:
    """With the 3g.20gb at 4 a 2g.10gb fits beside the other one, with it at 0 none does."""
    gpu = mig_gpu(A100, ("1g.5gb", 0), ("1g.5gb", 4))

    found = planned(gpu, layout_from_counts({"1g.5gb": 1, "3g.20gb": 1}))

    assert [(one.profile, one.start) for one in found.after[gpu.uuid].instances] == [
        ("1g.5gb", 0),
        ("3g.20gb", 4),
    ]


def test_the_largest_is_made_first_and_of_equal_ones_the_lowest() -> None:
    """Of instances and of their parts: the order in which a driver that chooses itself succeeds."""
    gpu = mig_gpu(A100, ("3g.20gb", 4, ()))
    parts = GpuLayout(
        mig=True,
        instances=(
            DesiredInstance("3g.20gb", (2, 1), 4),
            *(DesiredInstance("1g.5gb", (1,), at) for at in (0, 1)),
            DesiredInstance("2g.10gb", (2,), 2),
        ),
    )

    found = planned(gpu, parts)

    made = [(step.start, step.slices) for step in found.steps if isinstance(step, CreateCompute)]
    assert made == [(4, 2), (4, 1), (2, 2), (0, 1), (1, 1)]
