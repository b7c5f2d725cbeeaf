# SPDX-License-Identifier: Apache-2.0
"""Structs that a driver fills, with what the simulator never says, and the scope of a counter."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from discovery.sample import Board, Platform, ReadingGroup
from simulator.description.machine_catalog import load_machine
from simulator.simulation import Simulation
from tests import machines
from tests.discovery.sampling import Sampler, sampler, small

FIRST = machines.gpu(0).bus_id
KNOWN = bytes([*range(1, 9), *bytes(8), *b"1821025190042\0\0\0", 24, 14, 1, 0, 7])
"""What follows the version in nvmlPlatformInfo_v2_t. Source: nvml.h."""


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path) as taken:
        yield taken


def board(taken: Sampler) -> Board:
    board = taken.sample(FIRST, (ReadingGroup.BOARD,)).board
    assert board is not None
    return board


def platform(taken: Sampler, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> Platform:
    def fill(_handle: object, reference: Any) -> None:
        ctypes.memmove(ctypes.addressof(reference._obj) + 4, answer, len(answer))

    monkeypatch.setattr(nv, "nvmlDeviceGetPlatformInfo", fill)
    platform = board(taken).platform
    assert platform is not None
    return platform


def test_the_place_in_the_rack_is_read_by_bytes_also_where_they_are_zero(
    taken: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert platform(taken, monkeypatch, KNOWN) == Platform(
        infiniband_guid="0x0807060504030201",
        chassis_serial="1821025190042",
        slot=24,
        tray=14,
        host_id=1,
        peer_type=0,
        module_id=7,
    )


def test_a_slot_a_tray_and_a_serial_number_that_the_platform_does_not_give_are_unknown(
    taken: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = platform(taken, monkeypatch, bytes(16) + b"\xff" * 18 + KNOWN[34:])

    assert (read.slot, read.tray, read.chassis_serial) == (None, None, None)
    assert (read.host_id, read.peer_type, read.module_id) == (1, 0, 7)


def test_a_platform_without_a_serial_number_has_none(
    taken: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = platform(taken, monkeypatch, KNOWN[:16] + bytes(16) + KNOWN[32:])

    assert (read.chassis_serial, read.slot) == (None, 24)


@pytest.mark.parametrize("exceeded", [False, True])
def test_the_limit_of_sram_errors_is_exceeded_where_the_driver_says_so(
    taken: Sampler, monkeypatch: pytest.MonkeyPatch, exceeded: bool
) -> None:
    def fill(_handle: object, reference: Any) -> None:
        status = reference._obj
        status.aggregateUncSecDed = 5
        status.bThresholdExceeded = int(exceeded)

    monkeypatch.setattr(nv, "nvmlDeviceGetSramEccErrorStatus", fill)

    assert board(taken).sram_exceeded is exceeded


def test_bytes_over_nvlink_are_those_of_all_links(tmp_path: Path) -> None:
    machine = load_machine("hgx-b200")
    with sampler(lambda: Simulation.create(machine, tmp_path / "machine")) as taken:
        (bus_id, *_) = taken.simulation.state.gpus
        taken.simulation.add_process(bus_id, 71, percent=90)
        taken.wait(600)
        numbers = dict(taken.sample(bus_id, (ReadingGroup.NUMBERS,)).numbers)
        handle = nv.nvmlDeviceGetHandleByPciBusId(bus_id)
        answers = nv.nvmlDeviceGetFieldValues(handle, [(202, 0xFFFFFFFF), (202, 0)])
        of_all, of_first = (answer.value.ullVal for answer in answers)

    assert numbers[202] == of_all
    assert of_all > of_first > 0
