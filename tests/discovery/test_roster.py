"""A GPU that answered once stays known, with its identity, whatever becomes of it."""

from __future__ import annotations

from discovery.model import GpuSnapshot, GpuState, Reason
from discovery.quarantine import Quarantine
from discovery.roster import Roster
from tests import build

A, B = build.gpu(0), build.gpu(1)
BOTH = (A.bus_id, B.bus_id)


def _states(gpus: tuple[GpuSnapshot, ...]) -> list[tuple[str, GpuState]]:
    return [(gpu.bus_id, gpu.state) for gpu in gpus]


def test_a_quarantined_gpu_is_told_as_hung_with_the_identity_it_had() -> None:
    roster, quarantine = Roster(), Quarantine()
    roster.call(BOTH, {A.bus_id: A, B.bus_id: B}, quarantine)
    quarantine.isolate(A.bus_id, Reason.HUNG, "no answer within 5 s", now=0.0)
    hung, well = roster.call(BOTH, {B.bus_id: B}, quarantine)
    assert (hung.state, hung.uuid, hung.model) == (GpuState.HUNG, A.uuid, A.model)
    assert hung.memory_bytes is None
    assert hung.gaps[0].detail == "no answer within 5 s"
    assert well == B


def test_a_gpu_that_vanished_without_a_word_is_told_as_lost() -> None:
    roster = Roster()
    roster.call(BOTH, {A.bus_id: A, B.bus_id: B}, Quarantine())
    gpus = roster.call((B.bus_id,), {B.bus_id: B}, Quarantine())
    assert _states(gpus) == [(A.bus_id, GpuState.LOST), (B.bus_id, GpuState.PRESENT)]
    assert gpus[0].uuid == A.uuid


def test_a_gpu_that_is_listed_but_was_never_read_is_unreadable_and_nameless() -> None:
    (gpu,) = Roster().call((A.bus_id,), {}, Quarantine())
    assert (gpu.state, gpu.uuid) == (GpuState.UNREADABLE, None)


def test_what_a_lost_gpu_still_told_wins_over_what_was_known() -> None:
    roster = Roster()
    roster.call((A.bus_id,), {A.bus_id: A}, Quarantine())
    told = GpuSnapshot(bus_id=A.bus_id, state=GpuState.LOST, uuid="GPU-new")
    (gpu,) = roster.call((A.bus_id,), {A.bus_id: told}, Quarantine())
    assert (gpu.uuid, gpu.model) == ("GPU-new", A.model)
