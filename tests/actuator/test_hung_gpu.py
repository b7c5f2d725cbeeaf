# SPDX-License-Identifier: Apache-2.0
"""A GPU whose calls do not return is held alone; a change of other GPUs ends without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from actuator.change import ChangeResult
from actuator.change_record import ChangeRecord
from actuator.journal import Journal
from actuator.supervisor import run_change
from actuator.worker_messages import ChangeRequest
from api.mig_outcome import Outcome
from mig.gpu_layout import GpuLayout, current_layout, has_layout, layout_from_counts
from simulator.simulation import Hang
from tests import machines
from tests.actuator.simulated_node import FIVE, SimulatedNode, node

DESIRED = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})
EMPTY = GpuLayout(mig=True)
DEADLINE_SECONDS = 20.0
CHANGE = "a-request-of-three"


def changed(on: SimulatedNode, desired: Mapping[str, GpuLayout] | None) -> ChangeResult:
    """Carry a change out, or with None end what is open."""
    request = None
    if desired is not None:
        request = ChangeRequest(desired=dict(desired), origin="a test")
    return run_change(on.order(request, seconds=DEADLINE_SECONDS))


def unended(on: SimulatedNode) -> tuple[ChangeRecord, ...]:
    with Journal(on.journal, lock=False) as journal:
        return journal.content().unended


def test_a_gpu_outside_the_request_that_hangs_is_left_out(tmp_path: Path) -> None:
    """All GPUs are read before the first step; the next worker reads the others."""
    on = node(tmp_path, *FIVE, count=2)
    first, _ = (gpu.uuid for gpu in on.gpus())
    on.simulation.fault(Hang(uninterruptible=True), bus_id=machines.gpu(1).bus_id)

    result = changed(on, {first: DESIRED})

    assert result.outcome is Outcome.APPLIED
    assert unended(on) == ()
    on.simulation.clear()
    assert has_layout(on.gpus()[0], DESIRED)


def test_a_gpu_that_hangs_in_the_middle_holds_itself_alone(tmp_path: Path) -> None:
    """Those before and after it get the desired layout, later changes of them too, at once."""
    on = node(tmp_path, *FIVE, count=3)
    uuids = [gpu.uuid for gpu in on.gpus()]
    bus_id = machines.gpu(1).bus_id
    on.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceCreateGpuInstance*", bus_id=bus_id)

    result = changed(on, dict.fromkeys(uuids, DESIRED))

    assert result.outcome is Outcome.STUCK
    assert [(one.gpu, str(one.outcome)) for one in result.gpus] == [
        (uuids[0], "applied"),
        (uuids[1], "stuck"),
        (uuids[2], "applied"),
    ]
    assert [(one.gpu, one.hung) for one in unended(on)] == [(uuids[1], True)]

    on.simulation.clear()
    on.simulation.fault(Hang(uninterruptible=True), bus_id=bus_id)
    on.simulation.log_calls()
    later = changed(on, {uuids[0]: EMPTY, uuids[2]: EMPTY})
    touched = {at for _, at in on.simulation.calls()}

    assert later.outcome is Outcome.APPLIED
    assert bus_id not in touched
    assert machines.gpu(2).bus_id in touched

    on.simulation.clear()
    assert changed(on, None).outcome is Outcome.ROLLED_BACK
    assert unended(on) == ()
    assert [current_layout(gpu) for gpu in on.gpus()] == [EMPTY] * 3


def test_a_gpu_that_hangs_again_at_a_restore_stays_stuck(tmp_path: Path) -> None:
    """And the other GPU, which was merely interrupted, is not held by it."""
    on = node(tmp_path, *FIVE, count=2)
    uuids = [gpu.uuid for gpu in on.gpus()]
    hang = Hang(uninterruptible=True)
    on.simulation.fault(hang, "nvmlDeviceCreateGpuInstance*", bus_id=machines.gpu(0).bus_id)
    changed(on, dict.fromkeys(uuids, DESIRED))

    again = changed(on, None)

    assert again.outcome is Outcome.STUCK
    assert [one.gpu for one in unended(on)] == [uuids[0]]
    on.simulation.clear()
    assert has_layout(on.gpus()[1], DESIRED)
