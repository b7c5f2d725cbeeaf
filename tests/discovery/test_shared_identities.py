# SPDX-License-Identifier: Apache-2.0
"""An identity that two devices report is nobody's: simulated machines that the driver confuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from discovery.mig_state import MigGpu, UnreadMigGpu
from discovery.model import GpuState, Reason
from discovery.reader.mig_reading import read_mig
from discovery.shared_identities import without_shared, without_shared_mig
from simulator.simulation import Simulation
from simulator.state.machine_state import MachineState
from tests import build
from tests.discovery.reader.reader_bench import ReaderBench
from tests.log_lines import whys


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReaderBench]:
    bench = ReaderBench(Simulation.create("a30-pair", tmp_path))
    yield bench
    bench.close()


def with_uuids(bench: ReaderBench, *uuids: str | None) -> None:
    """The driver reports these, GPU by GPU."""

    def change(state: MachineState) -> MachineState:
        assert state.machine is not None
        specs = zip(state.machine.gpus, uuids, strict=True)
        gpus = tuple(structs.replace(gpu, uuid=uuid) for gpu, uuid in specs)
        return structs.replace(state, machine=structs.replace(state.machine, gpus=gpus))

    bench.simulation.edit(change)


def test_two_gpus_that_report_one_uuid_have_none_and_it_is_logged_once(
    bench: ReaderBench, caplog: pytest.LogCaptureFixture
) -> None:
    before = bench.reader.discover()
    first, second = before.gpus
    with_uuids(bench, first.uuid, first.uuid)

    with caplog.at_level(logging.ERROR, logger="discovery.known_node_gpus"):
        found = bench.reader.discover()
        bench.reader.discover()

    assert [gpu.uuid for gpu in found.gpus] == [None, None]
    assert [gpu.gap("uuid").reason for gpu in found.gpus] == [Reason.GARBAGE] * 2  # type: ignore[union-attr]
    assert [gpu.state for gpu in found.gpus] == [GpuState.PRESENT] * 2
    assert [gpu.serial for gpu in found.gpus] == [first.serial, second.serial]
    assert whys(caplog, "identity shared") == [
        f"several devices report {first.uuid}: it is not known which one has it"
    ]


def test_both_have_their_own_again_when_the_driver_says_so(bench: ReaderBench) -> None:
    before = bench.reader.discover()
    first, second = before.gpus
    with_uuids(bench, first.uuid, first.uuid)
    bench.reader.discover()
    with_uuids(bench, first.uuid, second.uuid)

    assert bench.reader.discover().gpus == before.gpus


def test_nobody_plans_a_change_of_mig_on_gpus_with_one_uuid(bench: ReaderBench) -> None:
    read = read_mig(bench.reader)
    assert all(isinstance(gpu, MigGpu) for gpu in read)
    with_uuids(bench, read[0].uuid, read[0].uuid)

    found = read_mig(bench.reader)

    assert all(isinstance(gpu, UnreadMigGpu) and gpu.uuid is None for gpu in found)
    assert [gpu.bus_id for gpu in found] == [gpu.bus_id for gpu in read]


def test_a_minor_number_is_one_gpus_and_a_serial_number_may_be_a_boards() -> None:
    gpus = [build.gpu(at, minor=3, serial="123") for at in range(2)]

    found = without_shared(gpus)

    assert [build.nvidia(gpu).minor for gpu in found] == [None, None]
    assert [gpu.serial for gpu in found] == ["123", "123"]
    assert [gpu.uuid for gpu in found] == [gpu.uuid for gpu in gpus]


@pytest.mark.parametrize("places", [(0, 0), (0, 1)])
def test_a_mig_devices_uuid_is_one_devices(places: tuple[int, int]) -> None:
    same, other = build.mig_device(gi=1), replace(build.mig_device(gi=2), uuid="MIG-other")
    twin = replace(same, gpu_instance_id=5)
    devices: list[list[object]] = [[], [other]]
    for place, device in zip(places, (same, twin), strict=True):
        devices[place].append(device)
    gpus = [build.gpu(at, mig_devices=tuple(devices[at])) for at in range(2)]

    found = without_shared(gpus)

    assert found[0].mig_devices == ()
    assert found[1].mig_devices == (() if 1 in places else (other,))
    assert found[0].gap("mig_devices") is not None


def test_a_gpu_that_has_moved_keeps_its_uuid_at_its_new_place_alone() -> None:
    here = build.gpu(1)
    gone = replace(build.silent(0, GpuState.LOST), uuid=here.uuid)

    found = without_shared([gone, here])

    assert [gpu.uuid for gpu in found] == [None, here.uuid]


def test_gpus_that_all_differ_stay_as_they_are() -> None:
    gpus = (build.gpu(0), build.gpu(1), build.silent(2), build.silent(3))
    assert without_shared(gpus) == gpus
    assert without_shared_mig(()) == ()
