"""A GPU that answered once stays known, with its identity, whatever becomes of it."""

from __future__ import annotations

from discovery.model import Gap, GpuSnapshot, GpuState, Reason
from discovery.quarantine import Quarantine
from discovery.roster import Roster
from tests import build

A, B = build.gpu(0), build.gpu(1)
BOTH = (A.bus_id, B.bus_id)


def _gap(reason: Reason, source: str, detail: str) -> Gap:
    return Gap(what="state", reason=reason, source=source, detail=detail)


def _states(gpus: tuple[GpuSnapshot, ...]) -> list[tuple[str, GpuState]]:
    return [(gpu.bus_id, gpu.state) for gpu in gpus]


def test_a_quarantined_gpu_is_told_as_hung_with_the_identity_it_had() -> None:
    roster, quarantine = Roster(), Quarantine()
    roster.call(BOTH, {A.bus_id: A, B.bus_id: B}, quarantine)
    quarantine.isolate(A.bus_id, Reason.HUNG, "no answer within 5 s", now=0.0)
    hung, well = roster.call(BOTH, {B.bus_id: B}, quarantine)
    assert (hung.state, hung.uuid, hung.model) == (GpuState.HUNG, A.uuid, A.model)
    assert hung.memory_bytes is None
    assert hung.gaps == (_gap(Reason.HUNG, "device reader", "no answer within 5 s"),)
    assert well == B


def test_a_gpu_that_vanished_without_a_word_is_told_as_lost() -> None:
    roster = Roster()
    roster.call(BOTH, {A.bus_id: A, B.bus_id: B}, Quarantine())
    gpus = roster.call((B.bus_id,), {B.bus_id: B}, Quarantine())
    assert _states(gpus) == [(A.bus_id, GpuState.LOST), (B.bus_id, GpuState.PRESENT)]
    assert gpus[0].uuid == A.uuid
    assert gpus[0].gaps == (_gap(Reason.LOST, "sysfs", "no longer listed"),)


def test_every_part_of_an_identity_is_kept() -> None:
    known = build.gpu(
        0, serial="1", pci_device_id=0x20B010DE, pci_subsystem_id=0x134F10DE, memory_bytes=1
    )
    roster = Roster()
    roster.call((A.bus_id,), {A.bus_id: known}, Quarantine())
    (lost,) = roster.call((), {}, Quarantine())
    kept = [
        "index",
        "minor",
        "uuid",
        "serial",
        "model",
        "architecture",
        "compute_capability",
        "pci_device_id",
        "pci_subsystem_id",
    ]
    assert [getattr(lost, what) for what in kept] == [getattr(known, what) for what in kept]
    assert None not in [getattr(lost, what) for what in kept]


def test_gpus_come_in_bus_order_and_are_counted_once() -> None:
    roster = Roster()
    beyond = build.gpu(2, bus_id="10000:01:00.0")
    read = {gpu.bus_id: gpu for gpu in (beyond, B, A)}
    gpus = roster.call(tuple(read), read, Quarantine())
    assert [gpu.bus_id for gpu in gpus] == [A.bus_id, B.bus_id, beyond.bus_id]
    assert len(roster) == 3


def test_a_gpu_on_which_the_reader_dies_is_unreadable_for_that_reason() -> None:
    quarantine = Quarantine()
    quarantine.isolate(A.bus_id, Reason.FAILED, "it died", now=0.0)
    (gpu,) = Roster().call((A.bus_id,), {}, quarantine)
    assert gpu.state is GpuState.UNREADABLE
    assert gpu.gaps == (_gap(Reason.FAILED, "device reader", "it died"),)


def test_a_gpu_that_is_listed_but_was_never_read_is_unreadable_and_nameless() -> None:
    (gpu,) = Roster().call((A.bus_id,), {}, Quarantine())
    assert (gpu.state, gpu.uuid) == (GpuState.UNREADABLE, None)
    assert gpu.gaps == (_gap(Reason.FAILED, "device reader", "not read"),)


def test_what_a_lost_gpu_still_told_wins_over_what_was_known() -> None:
    roster = Roster()
    roster.call((A.bus_id,), {A.bus_id: A}, Quarantine())
    told = GpuSnapshot(bus_id=A.bus_id, state=GpuState.LOST, uuid="GPU-new")
    (gpu,) = roster.call((A.bus_id,), {A.bus_id: told}, Quarantine())
    assert (gpu.uuid, gpu.model) == ("GPU-new", A.model)
