# SPDX-License-Identifier: Apache-2.0
"""A GPU that leaves the bus after its last step, before a fresh session has shown its layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from actuator.change import apply
from actuator.journal import Journal
from actuator.mig_world import StepFailed
from api.mig_outcome import Outcome
from mig.gpu_layout import GpuLayout, current_layout, layout_from_counts
from tests.actuator.played_world import Hardware, PlayedWorld
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
BEFORE = (
    mig_gpu(A100, ("3g.20gb", 0), ("3g.20gb", 4)),
    mig_gpu(A100, ("2g.10gb", 0), ("1g.5gb", 6), uuid="GPU-1", index=1),
)
DESIRED: Mapping[str, GpuLayout] = {
    "GPU-0": layout_from_counts({"1g.5gb": 7}),
    "GPU-1": layout_from_counts({"7g.40gb": 1}),
}


@pytest.mark.parametrize("failing_step", range(8))
def test_a_gpu_that_no_fresh_session_shows_on_the_way_back_is_held_and_the_other_is_not(
    tmp_path: Path, failing_step: int
) -> None:
    class Losing(PlayedWorld):
        def reopen(self) -> None:
            self.hardware.lost.add("GPU-1")

    hardware = Hardware.of(BEFORE)
    world = Losing(hardware, fails={failing_step: StepFailed("NVML_ERROR_UNKNOWN")})

    with Journal(tmp_path / "mig") as journal:
        result = apply(world, journal, DESIRED, origin="a test")
        held = journal.content().unended

    assert result.outcome is Outcome.STUCK
    assert [change.gpu for change in held] == ["GPU-1"]
    assert current_layout(hardware.seen()[0], exact=True) == current_layout(BEFORE[0], exact=True)
