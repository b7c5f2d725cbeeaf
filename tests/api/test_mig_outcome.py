# SPDX-License-Identifier: Apache-2.0
"""The reasons of several GPUs in one line."""

from __future__ import annotations

import pytest

from api.mig_outcome import GpuOutcome, Outcome, joint_reason

APPLIED, BACK, STUCK = Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.STUCK


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([], ""),
        ([(0, APPLIED, "")], ""),
        ([(3, BACK, "no room")], "GPU 3: no room"),
        (
            [(0, BACK, "no room"), (1, APPLIED, ""), (7, STUCK, "lost")],
            "GPU 7: lost; GPU 0: no room",
        ),
        ([(at, BACK, "in use") for at in (0, 1, 2, 5)], "GPU 0-2, 5: in use"),
        ([(0, BACK, "lost"), (1, STUCK, "lost")], "GPU 1: lost; GPU 0: lost"),
        ([(None, BACK, "in use"), (2, BACK, "in use")], "GPU 2, GPU-x0: in use"),
    ],
)
def test_reasons_name_gpus_by_index_each_once_and_the_stuck_ones_first(
    gpus: list[tuple[int | None, Outcome, str]], text: str
) -> None:
    outcomes = [
        GpuOutcome(gpu=f"GPU-x{number}", outcome=outcome, reason=reason, index=index)
        for number, (index, outcome, reason) in enumerate(gpus)
    ]
    assert joint_reason(outcomes) == text
