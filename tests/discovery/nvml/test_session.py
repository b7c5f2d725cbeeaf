# SPDX-License-Identifier: Apache-2.0
"""Why there is no session, and what one gives: bus ids, handles, XID events."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch
from discovery.model import Gap, Reason
from discovery.nvml.session import (
    NvmlError,
    XidEvents,
    close_session,
    excluded_bus_ids,
    open_gpu,
    open_session,
    use_library,
)
from discovery.reader.protocol import XidSeen
from simulator.driver.library import put_under_pynvml
from simulator.simulation import Return, Simulation
from tests import machines


def why(load_from: Path | None) -> str:
    """The sentence about a library at this path, or about that of the loader's choice."""
    undo = put_under_pynvml(ctypes.CDLL)
    try:
        if load_from is not None:
            use_library(str(load_from))
        with pytest.raises(DriverAbsent) as caught:
            open_session()
    finally:
        undo()
    return str(caught.value)


def test_a_library_that_is_no_library_does_not_load(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"not an ELF file, as a placeholder of a container image")
    assert why(library).startswith(
        f"the NVIDIA driver's library is there and does not load: {library}"
    )


def test_a_library_that_lacks_another_does_not_load(tmp_path: Path) -> None:
    """Its message ends as that of a file which is not there, and names another."""
    compiler = shutil.which("cc") or pytest.skip("a compiler makes the library")
    source, needed = tmp_path / "empty.c", tmp_path / "libneeded.so"
    source.write_text("int here;")
    library = tmp_path / "libnvidia-ml.so.1"
    for made, linked in ((needed, []), (library, ["-Wl,--no-as-needed", "-L.", "-lneeded"])):
        subprocess.run([compiler, "-shared", "-o", made, source, *linked], cwd=tmp_path, check=True)
    needed.unlink()
    sentence = why(library)
    assert "does not load: libneeded.so: cannot open" in sentence


def test_a_path_without_a_file_is_not_found(tmp_path: Path) -> None:
    assert "libnvidia-ml.so.1 is not found" in why(tmp_path / "none.so")


def test_a_simulated_machine_without_a_driver_has_no_library(tmp_path: Path) -> None:
    simulation = machines.simulation(tmp_path)
    simulation.set_driver("absent")
    with simulation, pytest.raises(DriverAbsent, match="is not found"):
        open_session()
    assert pynvml.nvmlLib is None


# what a session is opened with, and what it gives

FIRST, SECOND, THIRD = (machines.gpu(place).bus_id for place in range(3))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Simulation]:
    """Three GPUs with an open session."""
    simulation = machines.simulation(tmp_path, *(machines.gpu(place) for place in range(3)))
    with simulation:
        open_session()
        yield simulation
        simulation.clear()
        close_session()


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (9, DriverAbsent, "the NVIDIA kernel module is not loaded: load it, or finish its upgrade"),
        (1, DriverAbsent, "the NVIDIA kernel module is not loaded: load it, or finish its upgrade"),
        (
            18,
            DriverMismatch,
            "the driver library and the loaded kernel module are of different versions: "
            "finish the driver upgrade, or reboot",
        ),
        (4, Transient, "NVML cannot be initialised: Insufficient Permissions"),
        (999, Transient, "NVML cannot be initialised: Unknown Error"),
    ],
)
def test_a_session_that_cannot_be_opened_says_what_to_do(
    tmp_path: Path, code: int, kind: type[Transient], sentence: str
) -> None:
    simulation = machines.simulation(tmp_path)
    simulation.fault(Return(code=code), "nvmlInit*")
    with simulation, pytest.raises(Transient) as caught:
        open_session()
    assert type(caught.value) is kind
    assert str(caught.value) == sentence


def test_without_a_library_the_sentence_names_what_to_install_or_to_set() -> None:
    assert why(None) == (
        "no NVIDIA driver: libnvidia-ml.so.1 is not found; install the driver, or name its library "
        "with --library"
    )


def test_a_session_is_opened_and_closed_without_any_gpu(tmp_path: Path) -> None:
    simulation = machines.simulation(tmp_path)
    for number in range(2):
        simulation.remove_gpu(machines.gpu(number).bus_id)
    with simulation:
        open_session()
        assert (machines.bus_ids_by_index(), simulation.clients()) == ((), 1)
        close_session()
        assert simulation.clients() == 0
        close_session()  # it is gone already


def test_gpus_are_found_by_index_in_pci_bus_order_without_those_that_refuse(
    machine: Simulation,
) -> None:
    assert machines.bus_ids_by_index() == (FIRST, SECOND, THIRD)
    for call in ("nvmlDeviceGetHandleByIndex*", "nvmlDeviceGetPciInfo*"):
        for code in (15, 999):
            machine.fault(Return(code=code), call, bus_id=SECOND)
            assert machines.bus_ids_by_index() == (FIRST, THIRD)
            machine.clear()
    machine.fault(Return(code=999), "nvmlDeviceGetCount*")
    assert machines.bus_ids_by_index() == ()


def test_gpus_that_the_driver_leaves_alone_are_named(tmp_path: Path) -> None:
    left_alone = (machines.gpu(1, excluded=True), machines.gpu(3, excluded=True))
    with machines.simulation(tmp_path, machines.gpu(0), *left_alone) as machine:
        open_session()
        assert excluded_bus_ids() == tuple(gpu.bus_id for gpu in left_alone)
        machine.fault(Return(code=999), "nvmlGetExcludedDeviceInfoByIndex", times=1)
        assert excluded_bus_ids() == (left_alone[1].bus_id,)
        machine.fault(Return(code=13), "nvmlGetExcludedDeviceCount")
        assert excluded_bus_ids() == ()
        close_session()


def test_a_gpu_that_cannot_be_opened_has_a_gap_for_its_state(machine: Simulation) -> None:
    machine.fault(Return(code=4), "nvmlDeviceGetHandleByPciBusId*", bus_id=SECOND)
    handle, gap = open_gpu(SECOND)
    assert handle is None
    assert gap == Gap(
        what="state",
        reason=Reason.FORBIDDEN,
        source="nvmlDeviceGetHandleByPciBusId",
        detail="Insufficient Permissions",
    )
    well, no_gap = open_gpu(FIRST)
    assert (pynvml.nvmlDeviceGetIndex(well), no_gap) == (0, None)


# XID events


@pytest.fixture
def events(machine: Simulation) -> Iterator[XidEvents]:
    """Of the first two of the three."""
    del machine
    events = XidEvents()
    for bus_id in (FIRST, SECOND):
        events.register(bus_id, open_gpu(bus_id)[0])
    yield events
    events.close()


def test_an_xid_comes_with_its_gpu_and_the_instances_that_it_names(
    machine: Simulation, events: XidEvents
) -> None:
    machine.xid(SECOND, 94, gpu_instance_id=3, compute_instance_id=0)
    machine.xid(FIRST, 79)
    assert [events.wait(1000) for _ in range(2)] == [
        XidSeen(bus_id=SECOND, code=94, gpu_instance_id=3, compute_instance_id=0),
        XidSeen(bus_id=FIRST, code=79),
    ]
    assert events.wait(1) is None


def test_an_xid_of_a_gpu_that_is_not_registered_does_not_come(
    machine: Simulation, events: XidEvents
) -> None:
    machine.xid(THIRD, 79)
    assert events.wait(1) is None


def test_a_gpu_is_registered_once_however_often_it_is_discovered(
    machine: Simulation, events: XidEvents
) -> None:
    machine.log_calls()
    for bus_id in (FIRST, THIRD, THIRD):
        events.register(bus_id, open_gpu(bus_id)[0])
    registered = [bus_id for call, bus_id in machine.calls() if call == "nvmlDeviceRegisterEvents"]
    assert (registered, machine.calls()["nvmlDeviceRegisterEvents", THIRD]) == ([THIRD], 1)


def test_a_wait_that_fails_raises_and_one_that_ends_without_an_event_does_not(
    machine: Simulation, events: XidEvents
) -> None:
    machine.fault(Return(code=15), "nvmlEventSetWait*", times=1)
    with pytest.raises(NvmlError, match="GPU is lost"):
        events.wait(1)
    machine.fault(Return(code=10), "nvmlEventSetWait*", times=1)  # NVML_ERROR_TIMEOUT
    assert events.wait(1) is None


def test_an_event_set_is_given_back_even_where_the_driver_refuses_it(machine: Simulation) -> None:
    machine.log_calls()
    XidEvents().close()
    assert machine.calls()["nvmlEventSetFree", None] == 1
    machine.fault(Return(code=1), "nvmlEventSetFree")
    XidEvents().close()
