# SPDX-License-Identifier: Apache-2.0
"""A GPU that answered once stays known, with its identity, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from discovery.known_node_gpus import SETTLE_SECONDS, KnownGpus
from discovery.model import Driver, Gap, GpuSnapshot, GpuState, Reason
from discovery.reader.quarantine import Quarantine
from discovery.unread import unread_gpu
from tests import build

A, B, C = build.gpu(0), build.gpu(1), build.gpu(2)
BOTH = (A.bus_id, B.bus_id)


def called(
    known_gpus: KnownGpus,
    listed: Collection[str],
    read: Iterable[GpuSnapshot] = (),
    quarantine: Quarantine | None = None,
    *,
    elsewhere: Collection[str] = (),
    now: float = 0.0,
) -> tuple[GpuSnapshot, ...]:
    """What one discovery gives."""
    known_gpus.expect(listed, elsewhere, now)
    return known_gpus.described(
        listed, {gpu.bus_id: gpu for gpu in read}, quarantine or Quarantine()
    )


def _gap(reason: Reason, source: str, detail: str) -> Gap:
    return Gap(what="state", reason=reason, source=source, detail=detail)


def _states(gpus: tuple[GpuSnapshot, ...]) -> list[tuple[str, GpuState]]:
    return [(gpu.bus_id, gpu.state) for gpu in gpus]


def test_a_quarantined_gpu_is_told_as_hung_with_the_identity_it_had() -> None:
    known_gpus, quarantine = KnownGpus(), Quarantine()
    called(known_gpus, BOTH, (A, B), quarantine)
    quarantine.isolate(A.bus_id, Reason.HUNG, "no answer within 5 s", now=0.0)
    hung, well = called(known_gpus, BOTH, (B,), quarantine)
    assert (hung.state, hung.uuid, hung.model) == (GpuState.HUNG, A.uuid, A.model)
    assert hung.memory_bytes == A.memory_bytes
    assert hung.gaps == (_gap(Reason.HUNG, "device reader", "no answer within 5 s"),)
    assert well == B


def test_a_gpu_that_vanished_without_a_word_is_told_as_lost() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, BOTH, (A, B))
    gpus = called(known_gpus, (B.bus_id,), (B,))
    assert _states(gpus) == [(A.bus_id, GpuState.LOST), (B.bus_id, GpuState.PRESENT)]
    assert gpus[0].uuid == A.uuid
    assert gpus[0].gaps == (_gap(Reason.LOST, "sysfs", "no longer listed"),)


def test_every_part_of_an_identity_is_kept() -> None:
    known = build.gpu(
        0, serial="1", pci_device_id=0x20B010DE, pci_subsystem_id=0x134F10DE, memory_bytes=1
    )
    known_gpus = KnownGpus()
    called(known_gpus, (A.bus_id,), (known,))
    (lost,) = called(known_gpus, ())
    kept = [
        "minor",
        "uuid",
        "serial",
        "model",
        "architecture",
        "compute_capability",
        "pci_device_id",
        "pci_subsystem_id",
    ]
    facts, before = build.gpu_facts(lost), build.gpu_facts(known)
    assert [facts[what] for what in kept] == [before[what] for what in kept]
    assert None not in [facts[what] for what in kept]


def test_gpus_come_in_bus_order_and_are_counted_once() -> None:
    known_gpus = KnownGpus()
    beyond = build.gpu(2, bus_id="10000:01:00.0")
    read = {gpu.bus_id: gpu for gpu in (beyond, B, A)}
    gpus = called(known_gpus, tuple(read), read.values())
    assert [gpu.bus_id for gpu in gpus] == [A.bus_id, B.bus_id, beyond.bus_id]
    assert len(known_gpus) == 3


def test_a_gpu_on_which_the_reader_dies_is_unreadable_for_that_reason() -> None:
    quarantine = Quarantine()
    quarantine.isolate(A.bus_id, Reason.FAILED, "it died", now=0.0)
    (gpu,) = called(KnownGpus(), (A.bus_id,), (), quarantine)
    assert gpu.state is GpuState.UNREADABLE
    assert gpu.gaps == (_gap(Reason.FAILED, "device reader", "it died"),)


def test_a_gpu_that_is_listed_but_was_never_read_is_unreadable_and_nameless() -> None:
    (gpu,) = called(KnownGpus(), (A.bus_id,))
    assert (gpu.state, gpu.uuid) == (GpuState.UNREADABLE, None)
    assert gpu.gaps == (_gap(Reason.FAILED, "device reader", "not read"),)


def test_what_a_lost_gpu_still_told_wins_over_what_was_known() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, (A.bus_id,), (A,))
    told = replace(unread_gpu(A.bus_id, GpuState.LOST), uuid=A.uuid, vbios_version="new")
    (gpu,) = called(known_gpus, (A.bus_id,), (told,))
    assert (gpu.uuid, gpu.model, gpu.vbios_version) == (A.uuid, A.model, "new")


def test_places_follow_the_bus_at_first_and_newcomers_come_last() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, (A.bus_id, C.bus_id), (A, C))
    gpus = called(known_gpus, (A.bus_id, B.bus_id, C.bus_id), (A, B, C))
    assert [(gpu.bus_id, gpu.index) for gpu in gpus] == [
        (A.bus_id, 0),
        (C.bus_id, 1),
        (B.bus_id, 2),
    ]


def test_a_gpu_that_never_answered_has_a_place_so_that_no_other_moves_when_it_does() -> None:
    known_gpus = KnownGpus()
    assert [gpu.index for gpu in called(known_gpus, BOTH, (B,))] == [0, 1]
    assert [gpu.index for gpu in called(known_gpus, BOTH, (A, B))] == [0, 1]


def test_a_gpu_that_another_driver_has_taken_is_forgotten_and_its_place_stays_free() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, BOTH, (A, B))
    (left,) = called(known_gpus, (B.bus_id,), (B,), elsewhere=(A.bus_id,))
    assert (left.bus_id, left.index) == (B.bus_id, 1)
    back, _ = called(known_gpus, BOTH, (B,))
    assert (back.state, back.index, back.uuid) == (GpuState.UNREADABLE, 0, None)


def test_a_place_that_is_free_is_given_to_no_other_gpu() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, BOTH, (A, B))
    called(known_gpus, (B.bus_id,), (B,), elsewhere=(A.bus_id,))
    left, new = called(known_gpus, (B.bus_id, C.bus_id), (B, C), elsewhere=(A.bus_id,))
    assert [(gpu.bus_id, gpu.index) for gpu in (left, new)] == [(B.bus_id, 1), (C.bus_id, 2)]


def test_a_gpu_that_no_driver_is_bound_to_any_more_is_lost() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, BOTH, (A, B))
    assert _states(called(known_gpus, (B.bus_id,), (B,)))[0] == (A.bus_id, GpuState.LOST)


def test_it_settles_a_while_after_the_last_gpu_came() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, (A.bus_id,), (A,), now=100.0)
    called(known_gpus, BOTH, (A, B), now=130.0)
    last = 130.0 + SETTLE_SECONDS
    assert [known_gpus.settling(now) for now in (100.0, last - 0.1, last)] == [True, True, False]
    called(known_gpus, (A.bus_id,), (A,), elsewhere=(B.bus_id,), now=140.0)
    assert not known_gpus.settling(last - 0.1)


def test_a_driver_that_does_not_report_its_version_has_that_of_before_until_it_is_gone() -> None:
    """The one that is loaded next may be another."""
    known_gpus, unread = KnownGpus(), Gap(what="version", reason=Reason.FAILED, source="NVML")
    known_gpus.driver(Driver(version="550.54.15"))
    kept = known_gpus.driver(Driver(gaps=(unread,)))
    known_gpus.driver_gone()
    fresh = known_gpus.driver(Driver(gaps=(unread,)))
    assert (kept.version, fresh.version) == ("550.54.15", None)


def test_a_record_is_all_that_the_next_process_needs_to_know() -> None:
    before = KnownGpus()
    called(before, (*BOTH, C.bus_id), (A, B), elsewhere=(), now=0.0)
    called(before, BOTH, (A, B), elsewhere=(C.bus_id,), now=0.0)

    after = KnownGpus()
    after.restore(before.record, 500.0)
    assert after.record == before.record
    assert len(after) == 2
    assert after.settling(500.0 + SETTLE_SECONDS - 1)
    assert not after.settling(500.0 + SETTLE_SECONDS)
    lost, _, back = called(after, (B.bus_id, C.bus_id), (B, C), now=500.0)
    assert (lost.state, lost.uuid, lost.index) == (GpuState.LOST, A.uuid, 0)
    assert (back.bus_id, back.index) == (C.bus_id, 2)


def test_a_record_does_not_change_with_what_is_known_later() -> None:
    known_gpus = KnownGpus()
    called(known_gpus, (A.bus_id,), (A,))
    record = known_gpus.record
    called(known_gpus, BOTH, (A, B))
    assert dict(record.places) == {A.bus_id: 0}
    assert record.expected == {A.bus_id}
    assert list(record.gpus) == [A.bus_id]
