# SPDX-License-Identifier: Apache-2.0
"""What is known about GPUs is the same after it was written and read; contradictions are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent import stored_records
from agent.gpu_records import GpuRecords
from agent.stored_records import FORMAT, VERSION, Session, StoredGpu, StoredRecords
from base.errors import BadInput
from discovery import remember
from discovery.gpu_part import GpuPart
from discovery.known_node_gpus import SETTLE_SECONDS, KnownGpusRecord
from discovery.model import GpuState, NvLink, Reason
from discovery.reader.protocol import XidSeen
from discovery.reader.quarantine import Quarantine
from discovery.unread import unread_gpu
from exporters.dcgm.windows import Event, Span
from exporters.gpuscape.waste import RESUME_SECONDS, WINDOW_SECONDS, GpuUse
from tests import build

SESSION = Session(boot="one", driver="550")
GPU = build.gpu(0)
ENTITY = GpuPart(GPU.bus_id)


def reread(records: GpuRecords, now: float = 0.0) -> GpuRecords:
    """What the next process knows."""
    found = FORMAT.decode(FORMAT.encode(stored_records.stored(records, SESSION)))
    assert found is not None
    after = GpuRecords()
    stored_records.restore_records(after, found, SESSION, now)
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


def test_places_and_facts_of_gpus_stay_and_what_may_change_does_not() -> None:
    link = NvLink(link=0, active=True, version=4, bytes_per_second=25_000_000_000)
    gpu = build.gpu(
        0,
        serial="1320",
        pci_device_id=0x20B0,
        vbios_version="92.00",
        memory_bus_bits=5120,
        own_numa_node=1,
        ancestors=(("0000:20:00.0", 2),),
        links=(link,),
    )
    lost, elsewhere = "0000:08:00.0", "0000:30:00.0"
    records = GpuRecords()
    records.known_gpus.expect([lost, GPU.bus_id, elsewhere], (), 0.0)
    records.known_gpus.described([GPU.bus_id], {GPU.bus_id: gpu}, Quarantine())
    records.known_gpus.expect([], [elsewhere], 0.0)

    after = reread(records, now=7.0).known_gpus

    known = unread_gpu(GPU.bus_id, GpuState.PRESENT)
    facts = {name: build.gpu_facts(gpu)[name] for name in (*remember.FACTS, "ancestors")}
    assert after.record == KnownGpusRecord(
        places={lost: 0, GPU.bus_id: 1, elsewhere: 2},
        expected=frozenset({lost, GPU.bus_id}),
        gpus={GPU.bus_id: build.changed(known, **facts, links=(replace(link, active=None),))},
    )
    assert after.settling(7.0 + SETTLE_SECONDS - 1)
    assert not after.settling(7.0 + SETTLE_SECONDS)


def test_each_instance_has_its_holders_and_times() -> None:
    records = GpuRecords()
    instance = replace(held(0.0), entity=GpuPart(GPU.bus_id, 3))
    free = replace(held(0.0), entity=GpuPart("0000:11:00.0"), held_by=frozenset())
    records.waste.add([held(0.0), instance, free])
    records.waste.add([replace(held(10.0), busy_ratio=1.0), replace(instance, at_seconds=20.0)])
    before, after = records.waste.times, reread(records).waste.times
    assert after.keys() == {
        ENTITY,
        GpuPart(GPU.bus_id, 3),
    }  # of parts without a user nothing is kept
    for entity, times in after.items():
        assert times.use.held_by == before[entity].use.held_by
        assert times.use.at_seconds == 20.0
        assert times.use.busy_ratio is None
        assert times.allocated_seconds == before[entity].allocated_seconds
        assert times.idle_seconds == before[entity].idle_seconds
        assert times.idle_for_seconds == before[entity].idle_for_seconds


def test_windows_are_those_of_before_until_a_length_is_another() -> None:
    records = GpuRecords()
    windows = records.windows(300.0, 60.0)
    assert windows.lengths == (300.0, 60.0)
    assert records.windows(300.0, 60.0) is windows
    for lengths in ((60.0, 60.0), (60.0, 300.0)):
        assert records.windows(*lengths).lengths == lengths


def test_what_was_counted_before_a_window_began_is_not_counted_in_it() -> None:
    records = GpuRecords()
    records.xids.add(XidSeen(bus_id=GPU.bus_id, code=79), 7.0)
    windows = records.windows(300.0, 60.0)
    counts = []
    for _ in range(2):
        windows.show_snapshot(records.xids.enter(build.node([GPU])), 1000.0)
        counts.append(windows.counts(1000.0)[Event.XID, Span.WINDOW].of(ENTITY))
        records.xids.add(XidSeen(bus_id=GPU.bus_id, code=31), 8.0)
    assert counts == [{}, {"31": 1}]


def test_gpus_that_hang_for_good_are_known_to_the_next_process_once() -> None:
    records, quarantine = GpuRecords(), Quarantine()
    names = [build.gpu(place).bus_id for place in range(3)]
    records.known_gpus.expect(names, (), 0.0)
    for bus_id in names[:2]:
        quarantine.isolate(bus_id, Reason.HUNG, "why", 0.0)
    quarantine.missed(names[0])
    records.known_gpus.described(names, {}, quarantine)
    after = reread(records)
    assert after.known_gpus.record.hung == {names[0]}
    assert after.known_gpus.take_hung_before() == {names[0]}
    assert after.known_gpus.take_hung_before() == frozenset()


def test_a_gpu_that_another_driver_has_is_not_remembered_as_hanging() -> None:
    found = StoredRecords(
        v=VERSION,
        session=SESSION,
        gpus=(StoredGpu(bus_id=GPU.bus_id, place=0, expected=False, hung=True),),
    )
    records = GpuRecords()
    stored_records.restore_records(records, found, SESSION, 0.0)
    assert records.known_gpus.take_hung_before() == frozenset()
