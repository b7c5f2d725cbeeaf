# SPDX-License-Identifier: Apache-2.0
"""The judge has the bandwidths that others measured, and has them from no code of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.judge.published import PUBLISHED, Published

FARTHEST_OFF = 0.15


@pytest.mark.parametrize(
    ("published", "gpus"),
    [
        pytest.param(each, gpus, id=f"{each.machine}: {gpus}")
        for each in PUBLISHED
        for gpus in each.gbps
    ],
)
def test_a_measured_bandwidth_is_within_15_percent_of_the_judge(
    published: Published, gpus: int
) -> None:
    reckoned = published.judge().gbps((1 << gpus) - 1)
    assert abs(published.gbps[gpus] / reckoned - 1) <= FARTHEST_OFF


def test_the_judge_loads_no_module_of_the_scheduler() -> None:
    """Neither itself nor by what it imports: it may judge the scheduler's measure only so."""
    modules = [
        f"tests.judge.{path.stem}"
        for path in sorted(Path(__file__).parent.glob("*.py"))
        if not path.stem.startswith(("test_", "__"))
    ]
    assert len(modules) > 3
    program = (
        f"import sys, {', '.join(modules)}\n"
        "print(*(name for name in sys.modules if name.split('.')[0] == 'scheduler'))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert loaded.stdout.split() == []
