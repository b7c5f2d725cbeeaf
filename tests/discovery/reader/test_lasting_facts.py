# SPDX-License-Identifier: Apache-2.0
"""What stays as it is is asked for rarely, and nothing that changes is missed for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from msgspec import structs

from discovery.model import Gap, GpuSnapshot, GpuState, Reason
from discovery.nvml.facts import LASTING
from discovery.nvml.history import WHOLE_SECONDS, LastingFacts
from discovery.unread import unread_gpu
from simulator.simulation import Return, Simulation
from simulator.state.machine_state import MachineState
from tests import build
from tests.build import gpu
from tests.discovery.reader.reader_bench import ReaderBench

NAME, STATE = "nvmlDeviceGetName", "nvmlDeviceGetNvLinkState"
AS_NEVER_ASKED = {NAME, "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", STATE}
"""Some of what is not asked for at a later discovery."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReaderBench]:
    bench = ReaderBench(Simulation.create("hgx-h100", tmp_path))
    yield bench
    bench.close()


def discovered(bench: ReaderBench) -> tuple[GpuSnapshot, ...]:
    return bench.reader.discover().gpus


def asked(bench: ReaderBench, bus_id: str) -> set[str]:
    """Names of the calls on one GPU in one discovery."""
    bench.simulation.log_calls()
    discovered(bench)
    calls = bench.simulation.calls()
    bench.simulation.log_calls(False)
    return {name for name, on in calls if on == bus_id}


def test_a_later_discovery_has_the_same_facts_without_asking_for_them(bench: ReaderBench) -> None:
    first = discovered(bench)
    assert not AS_NEVER_ASKED & asked(bench, first[0].bus_id)
    assert discovered(bench) == first


def test_a_link_that_goes_down_shows_at_the_next_discovery(bench: ReaderBench) -> None:
    before = discovered(bench)[0]
    bench.simulation.links_down(before.bus_id, 3, 5)
    now = discovered(bench)[0]
    assert [it.link for it in build.nvidia(now).links or () if not it.active] == [3, 5]
    bench.simulation.links_down(before.bus_id)
    assert discovered(bench)[0] == before


def test_where_the_driver_has_no_field_for_links_each_is_asked(bench: ReaderBench) -> None:
    first = discovered(bench)
    fault = Return(code=pynvml.NVML_ERROR_NOT_SUPPORTED)
    bench.simulation.fault(fault, "nvmlDeviceGetFieldValues", bus_id=first[0].bus_id)
    assert STATE in asked(bench, first[0].bus_id)
    assert [it.active for it in build.nvidia(discovered(bench)[0]).links or ()] == [True] * 18


def test_another_gpu_in_its_place_is_read_whole(bench: ReaderBench) -> None:
    before = discovered(bench)[0]

    def exchange(state: MachineState) -> MachineState:
        assert state.machine is not None
        first, *others = state.machine.gpus
        other = structs.replace(
            first, uuid="GPU-11111111-2222-3333-4444-555555555555", serial="1650000000001"
        )
        return structs.replace(state, machine=structs.replace(state.machine, gpus=(other, *others)))

    bench.simulation.edit(exchange)
    now = discovered(bench)[0]
    assert (now.uuid, now.serial) == (
        "GPU-11111111-2222-3333-4444-555555555555",
        "1650000000001",
    )
    assert before.serial != now.serial


def test_what_failed_is_asked_for_at_the_next_discovery(tmp_path: Path) -> None:
    simulation = Simulation.create("hgx-h100", tmp_path)
    fault = simulation.fault(Return(code=pynvml.NVML_ERROR_UNKNOWN), NAME)
    bench = ReaderBench(simulation)
    try:
        assert NAME in asked(bench, bench.bus_ids[0])
        simulation.clear(fault)
        assert discovered(bench)[0].model == "NVIDIA H100 80GB HBM3"
        assert NAME not in asked(bench, bench.bus_ids[0])
    finally:
        bench.close()


def test_a_far_end_that_failed_is_asked_for_at_the_next_discovery(tmp_path: Path) -> None:
    simulation = Simulation.create("dgx1-v100", tmp_path)
    fault = simulation.fault(
        Return(code=pynvml.NVML_ERROR_UNKNOWN), "nvmlDeviceGetNvLinkRemotePciInfo*"
    )
    bench = ReaderBench(simulation)
    try:
        assert {it.peer_bus_id for it in build.nvidia(discovered(bench)[0]).links or ()} == {None}
        simulation.clear(fault)
        assert None not in {it.peer_bus_id for it in build.nvidia(discovered(bench)[0]).links or ()}
    finally:
        bench.close()


def test_a_rare_reading_that_failed_is_made_at_the_next_sample(bench: ReaderBench) -> None:
    fault = bench.simulation.fault(
        Return(code=pynvml.NVML_ERROR_UNKNOWN), "nvmlDeviceGetRemappedRows"
    )
    assert bench.reader.sample()[0].remapped_rows is None
    bench.simulation.clear(fault)
    first = bench.reader.sample()[0].remapped_rows
    assert first is not None
    bench.simulation.set_readings(bench.bus_ids[0], remapped_correctable=first.correctable + 1)
    assert bench.reader.sample()[0].remapped_rows == first
    discovered(bench)
    now = bench.reader.sample()[0].remapped_rows
    assert now is not None
    assert now.correctable == first.correctable + 1


class Clock:
    """A clock that the test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_facts_count_for_ten_minutes_from_when_they_were_read_whole() -> None:
    clock, known = Clock(), gpu(0)
    facts = LastingFacts(clock)
    facts.keep(known)
    clock.seconds = WHOLE_SECONDS - 1
    facts.keep(known)  # from what was known: no new reading of them
    assert facts.of(known.bus_id) is known
    clock.seconds = WHOLE_SECONDS
    assert facts.of(known.bus_id) is None
    facts.keep(known)
    clock.seconds += WHOLE_SECONDS - 1
    assert facts.of(known.bus_id) is known


@pytest.mark.parametrize("what", sorted(LASTING))
def test_a_gpu_with_a_fact_that_failed_is_not_known(what: str) -> None:
    def with_gap(reason: Reason) -> GpuSnapshot:
        return replace(gpu(0), gaps=(Gap(what=what, reason=reason, source="x", detail=""),))

    facts = LastingFacts(lambda: 0.0)
    facts.keep(with_gap(Reason.UNSUPPORTED))
    assert facts.of(gpu(0).bus_id) is not None
    facts.keep(with_gap(Reason.FAILED))
    assert facts.of(gpu(0).bus_id) is None


def test_a_gpu_that_is_lost_is_not_known() -> None:
    facts = LastingFacts(lambda: 0.0)
    facts.keep(gpu(0))
    facts.keep(unread_gpu(gpu(0).bus_id, GpuState.LOST))
    assert facts.of(gpu(0).bus_id) is None
