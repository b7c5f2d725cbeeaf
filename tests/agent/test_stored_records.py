# SPDX-License-Identifier: Apache-2.0
"""What is known about GPUs is the same after it was written and read; contradictions are found."""

from __future__ import annotations

import pytest

from agent import stored_records
from agent.gpu_records import GpuRecords
from agent.stored_records import FORMAT, VERSION, Session, StoredGpu, StoredRecords
from base.errors import BadInput
from discovery.model import GpuState
from discovery.reader.protocol import XidSeen
from exporters.gpuscape.waste import RESUME_SECONDS, WINDOW_SECONDS, GpuUse
from tests import build

SESSION = Session(boot="one", driver="550")
GPU = build.gpu(0)
ENTITY = (GPU.bus_id, None)


def reread(records: GpuRecords, now: float = 0.0) -> GpuRecords:
    """What the next process knows."""
    found = FORMAT.decode(FORMAT.encode(stored_records.stored(records, SESSION)))
    assert found is not None
    after = GpuRecords()
    stored_records.restore(after, found, now)
    return after


def held(at: float) -> GpuUse:
    holder = frozenset({("team", "alice", "main")})
    return GpuUse(entity=ENTITY, at_seconds=at, held_by=holder, busy_ratio=0.0)


def test_the_idle_window_goes_on_from_where_it_was() -> None:
    records = GpuRecords()
    for at in (0.0, WINDOW_SECONDS / 2):
        records.waste.add([held(at)])
    after = reread(records)
    for at in (0.0, WINDOW_SECONDS / 2):
        after.waste.add([held(WINDOW_SECONDS / 2 + RESUME_SECONDS + at)])
    found = after.waste.times[ENTITY]
    assert (found.idle_for_seconds, found.idle) == (WINDOW_SECONDS, True)
    assert found.allocated_seconds == WINDOW_SECONDS


def test_xids_their_needs_and_the_wish_that_was_obeyed_stay() -> None:
    records = GpuRecords()
    records.xids.clear("all")
    records.xids.add(XidSeen(bus_id=GPU.bus_id, code=95), 7.0)
    records.xids.enter(build.node([build.gpu(0, state=GpuState.LOST)]))
    assert records.xids.record.needed != {}
    after = reread(records)
    assert after.xids.record == records.xids.record
    assert not after.xids.clear("all")


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ([("0000:10:00.0", 0), ("0000:10:00.0", 1)], "a bus id comes twice"),
        ([("0000:10:00.0", 0), ("0000:20:00.0", 0)], "numbers from 0 on"),
        ([("0000:10:00.0", 0), ("0000:20:00.0", 2)], "numbers from 0 on"),
    ],
)
def test_gpus_that_contradict_each_other_are_damage(gpus: list[tuple[str, int]], why: str) -> None:
    content = StoredRecords(
        v=VERSION,
        session=SESSION,
        gpus=tuple(StoredGpu(bus_id=bus_id, place=place) for bus_id, place in gpus),
    )
    with pytest.raises(BadInput, match=why):
        FORMAT.decode(FORMAT.encode(content))
