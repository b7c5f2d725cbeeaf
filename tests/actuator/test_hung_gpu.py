# SPDX-License-Identifier: Apache-2.0
"""A GPU whose calls do not return holds every change of its node, and for no longer than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from actuator.supervisor import WorkerHung, run_change
from actuator.worker_messages import ChangeRequest
from api.mig_outcome import Outcome
from mig.gpu_layout import has_layout, layout_from_counts
from simulator.simulation import Hang
from tests import machines
from tests.actuator.simulated_node import FIVE, node

DESIRED = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})
DEADLINE_SECONDS = 4.0


def test_a_change_of_another_gpu_ends_at_the_deadline_and_is_made_once_the_gpu_answers(
    tmp_path: Path,
) -> None:
    """All GPUs are read before the first step, so nothing was written or done."""
    on = node(tmp_path, *FIVE, count=2)
    request, before = on.request(DESIRED), on.found()
    on.simulation.fault(Hang(uninterruptible=True), bus_id=machines.gpu(1).bus_id)

    def changed(seconds: float, request: ChangeRequest | None = request) -> Outcome | None:
        made = run_change(request, source=on.start, journal=on.journal, deadline_seconds=seconds)
        return made.outcome

    for _ in range(2):
        with pytest.raises(WorkerHung):
            changed(DEADLINE_SECONDS)
        assert on.found() == before
    on.simulation.clear()

    assert changed(60.0) is Outcome.APPLIED
    assert has_layout(on.gpus()[0], DESIRED)
