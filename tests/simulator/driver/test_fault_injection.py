# SPDX-License-Identifier: Apache-2.0
"""Scripted faults do to calls what was asked, to the calls that were meant, and end when told."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml as nv
import pytest

from base.errors import BadInput
from simulator.description.machine_schema import MigInstanceSpec
from simulator.driver.calling_process import CRASH_STATUS
from simulator.simulation import Crash, Delay, Hang, Return, Simulation, Spoil
from tests import machines

FIRST, SECOND = machines.gpu(0), machines.gpu(1)
PATIENCE_SECONDS = 30.0
"""For threads and processes that are to end by themselves; only a failing test waits so long."""


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return machines.simulation(tmp_path)


def test_a_fault_meets_the_calls_its_pattern_matches(simulation: Simulation) -> None:
    """A shell pattern on the C name, version and all."""
    simulation.fault(Return(code=nv.NVML_ERROR_NO_PERMISSION), "nvmlDeviceGetMemoryInfo*")

    with machines.session(simulation) as handle:
        old = machines.code_of(lambda: nv.nvmlDeviceGetMemoryInfo(handle(0)))
        new = machines.code_of(lambda: nv.nvmlDeviceGetMemoryInfo(handle(0), nv.nvmlMemory_v2))
        other = machines.code_of(lambda: nv.nvmlDeviceGetName(handle(0)))

    assert (old, new, other) == (4, 4, 0)


def test_a_fault_on_one_gpu_leaves_the_others_well(simulation: Simulation) -> None:
    """Its MIG devices and instances are its own."""
    simulation.fault(Return(code=999), "nvmlDeviceGetName", bus_id="00000000:11:00.0")

    with machines.session(simulation) as handle:
        codes = [machines.code_of(lambda at=at: nv.nvmlDeviceGetName(handle(at))) for at in (0, 1)]  # type: ignore[misc]

    assert codes == [0, 999]


def test_a_lost_gpu_is_lost_on_every_call_and_still_counted(tmp_path: Path) -> None:
    """Look-ups that lead to it, its MIG devices, and calls on it and another GPU included."""
    three = MigInstanceSpec(profile="3g.20gb", start=0, id=1)
    split = machines.gpu(1, mig=True, instances=(three,))
    simulation = machines.simulation(tmp_path, FIRST, split)

    with machines.session(simulation) as handle:
        well, sick = handle(0), handle(1)
        mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(sick, 0)
        instance = nv.nvmlDeviceGetGpuInstanceById(sick, 1)
        uuid, mig_uuid = nv.nvmlDeviceGetUUID(sick), nv.nvmlDeviceGetUUID(mig)
        simulation.fault(Return(code=nv.NVML_ERROR_GPU_IS_LOST), bus_id=SECOND.bus_id)
        on_it: list[Callable[[], object]] = [
            lambda: nv.nvmlDeviceGetName(sick),
            lambda: nv.nvmlDeviceGetMigMode(sick),
            lambda: nv.nvmlDeviceGetNvLinkState(sick, 0),
            lambda: nv.nvmlDeviceGetFieldValues(sick, [91]),
            lambda: nv.nvmlDeviceGetName(mig),
            lambda: nv.nvmlGpuInstanceGetInfo(instance),
            lambda: nv.nvmlDeviceGetTopologyCommonAncestor(well, sick),
            lambda: nv.nvmlDeviceGetHandleByIndex(1),
            lambda: nv.nvmlDeviceGetHandleByPciBusId(SECOND.bus_id),
            lambda: nv.nvmlDeviceGetHandleByUUID(uuid),
            lambda: nv.nvmlDeviceGetHandleByUUID(mig_uuid),
        ]

        codes = [machines.code_of(call) for call in on_it]

        assert codes == [nv.NVML_ERROR_GPU_IS_LOST] * len(on_it)
        assert (nv.nvmlDeviceGetCount(), nv.nvmlDeviceGetName(well)) == (2, "NVIDIA Small")


def test_a_removed_gpu_is_not_counted_and_its_handle_is_lost(simulation: Simulation) -> None:
    """The others move up; returned, it has its place again."""
    with machines.session(simulation) as handle:
        first = handle(0)
        simulation.remove_gpu(FIRST.bus_id)
        count = nv.nvmlDeviceGetCount()
        name = machines.code_of(lambda: nv.nvmlDeviceGetName(first))
        lookup = machines.code_of(lambda: nv.nvmlDeviceGetHandleByPciBusId(FIRST.bus_id))
        now_first = nv.nvmlDeviceGetPciInfo(handle(0)).busId
        simulation.return_gpu(FIRST.bus_id)
        again = nv.nvmlDeviceGetCount()

    assert (count, name, lookup) == (1, nv.NVML_ERROR_GPU_IS_LOST, nv.NVML_ERROR_NOT_FOUND)
    assert (now_first, again) == ("00000000:11:00.0", 2)


def test_a_fault_may_come_late_and_go_by_itself(simulation: Simulation) -> None:
    """Two calls go well, the next three fail, the rest goes well."""
    simulation.fault(Return(code=999), "nvmlDeviceGetCount_v2", after=2, times=3)

    with machines.session(simulation):
        codes = [machines.code_of(nv.nvmlDeviceGetCount) for _ in range(7)]

    assert codes == [0, 0, 999, 999, 999, 0, 0]


def test_clearing_one_fault_leaves_the_others(simulation: Simulation) -> None:
    """The first of several that match decides; without a number all are cleared."""
    first = simulation.fault(Return(code=17), "nvmlDeviceGetCount_v2")
    simulation.fault(Return(code=19), "nvmlDeviceGetCount_v2")
    codes = []
    with machines.session(simulation) as _:
        codes.append(machines.code_of(nv.nvmlDeviceGetCount))
        simulation.clear(first)
        codes.append(machines.code_of(nv.nvmlDeviceGetCount))
        simulation.clear()
        codes.append(machines.code_of(nv.nvmlDeviceGetCount))

    assert codes == [17, 19, 0]


def test_a_delay_takes_its_time_and_changes_nothing(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call sleeps for as long as the fault says."""
    slept: list[float] = []
    monkeypatch.setattr("simulator.driver.fault_injection.time.sleep", slept.append)
    simulation.fault(Delay(seconds=2.5), "nvmlDeviceGetCount_v2")

    with machines.session(simulation):
        count = nv.nvmlDeviceGetCount()

    assert (count, slept) == (2, [2.5])


def test_a_hanging_call_goes_on_when_its_fault_is_cleared(simulation: Simulation) -> None:
    """Until then it blocks, and other calls of the process do not."""
    fault = simulation.fault(Hang(), "nvmlDeviceGetName", bus_id=FIRST.bus_id)
    names: list[str] = []
    with machines.session(simulation) as handle:
        first = handle(0)
        simulation.log_calls()
        thread = threading.Thread(target=lambda: names.append(nv.nvmlDeviceGetName(first)))
        thread.start()
        while not simulation.calls():
            pass
        others = nv.nvmlDeviceGetName(handle(1)), list(names), thread.is_alive()
        simulation.clear(fault)
        thread.join(PATIENCE_SECONDS)

    assert others == ("NVIDIA Small", [], True)
    assert names == ["NVIDIA Small"]


# garbage


def test_garbage_numbers_have_every_bit_set(simulation: Simulation) -> None:
    """In plain results, structs and fields; a field keeps its code, so that it is believed."""
    simulation.fault(Spoil(garbage="max"))

    with machines.session(simulation) as handle:
        memory = nv.nvmlDeviceGetMemoryInfo(handle(0), nv.nvmlMemory_v2)
        (field,) = nv.nvmlDeviceGetFieldValues(handle(0), [nv.NVML_FI_DEV_NVLINK_LINK_COUNT])
        power = nv.nvmlDeviceGetPowerUsage(handle(0))

    assert (power, memory.total) == (2**32 - 1, 2**64 - 1)
    assert (field.nvmlReturn, field.value.ullVal) == (0, 2**64 - 1)


def test_garbage_texts_are_not_utf8(simulation: Simulation) -> None:
    """pynvml's own decoding fails on them, as on a real driver's garbage."""
    simulation.fault(Spoil(garbage="not-utf8"))

    with machines.session(simulation) as handle:
        first = handle(0)
        with pytest.raises(UnicodeDecodeError):
            nv.nvmlDeviceGetName(first)
        with pytest.raises(UnicodeDecodeError):
            _ = nv.nvmlDeviceGetPciInfo(first).busId


def test_unterminated_texts_fill_their_buffer(simulation: Simulation) -> None:
    """To the last byte, and no further."""
    simulation.fault(Spoil(garbage="unterminated"))

    with machines.session(simulation) as handle:
        name = nv.nvmlDeviceGetName(handle(0))
        bus_id = nv.nvmlDeviceGetPciInfo(handle(0)).busId

    assert (len(name), set(name)) == (nv.NVML_DEVICE_NAME_V2_BUFFER_SIZE, {"A"})
    assert len(bus_id) == nv.NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE


def test_garbage_doubles_are_no_numbers(simulation: Simulation) -> None:
    """A field says that it is a double, and is NaN."""
    simulation.fault(Spoil(garbage="nan"))

    with machines.session(simulation) as handle:
        (field,) = nv.nvmlDeviceGetFieldValues(handle(0), [nv.NVML_FI_DEV_NVLINK_LINK_COUNT])

    assert field.valueType == nv.NVML_VALUE_TYPE_DOUBLE
    assert math.isnan(field.value.dVal)


# the driver


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("absent", nv.NVML_ERROR_LIBRARY_NOT_FOUND),
        ("not-loaded", nv.NVML_ERROR_DRIVER_NOT_LOADED),
        ("mismatch", nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
    ],
)
def test_a_driver_that_is_not_there_shows_at_init_and_is_found_when_it_comes(
    simulation: Simulation, condition: str, code: int
) -> None:
    """Nothing is remembered of the failure."""
    simulation.set_driver(condition)  # type: ignore[arg-type]  # the parameters are such words

    with simulation:
        before = machines.code_of(nv.nvmlInit)
        simulation.set_driver("ok")
        after = machines.code_of(nv.nvmlInit)

    assert (before, after) == (code, 0)


def test_a_library_that_is_loaded_already_says_that_the_driver_is_gone(
    simulation: Simulation,
) -> None:
    """The file is in memory though it is not on disk any more."""
    with machines.session(simulation):
        nv.nvmlShutdown()
        simulation.set_driver("absent")

        assert machines.code_of(nv.nvmlInit) == nv.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_machine_without_a_driver_has_no_library(tmp_path: Path) -> None:
    """As its data say; and no word makes it answer."""
    simulation = machines.simulation(tmp_path, driver=None)

    with simulation:
        without = machines.code_of(nv.nvmlInit)
        simulation.set_driver("ok")
        forced = machines.code_of(nv.nvmlInit)

    assert (without, forced) == (nv.NVML_ERROR_LIBRARY_NOT_FOUND, nv.NVML_ERROR_DRIVER_NOT_LOADED)


# XIDs


def test_an_xid_is_told_once_to_who_listens(simulation: Simulation) -> None:
    """With its GPU, its code and, for a whole GPU, no instance."""
    with machines.session(simulation) as handle:
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(handle(0), nv.nvmlEventTypeXidCriticalError, events)
        simulation.xid(FIRST.bus_id, 79)
        event = nv.nvmlEventSetWait_v2(events, 0)
        bus_id = nv.nvmlDeviceGetPciInfo(event.device).busId
        again = machines.code_of(lambda: nv.nvmlEventSetWait_v2(events, 0))

    assert (bus_id, event.eventData, event.eventType) == ("00000000:10:00.0", 79, 8)
    assert (event.gpuInstanceId, event.computeInstanceId) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert again == nv.NVML_ERROR_TIMEOUT


def test_xids_come_in_order_and_only_for_registered_gpus(simulation: Simulation) -> None:
    """The same code twice is two events; another GPU's wait for whoever listens to it."""
    with machines.session(simulation) as handle:
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(handle(1), nv.nvmlEventTypeXidCriticalError, events)
        simulation.xid(FIRST.bus_id, 48)
        simulation.xid(SECOND.bus_id, 31, gpu_instance_id=3, compute_instance_id=0)
        simulation.xid(SECOND.bus_id, 31)
        seen = [nv.nvmlEventSetWait_v2(events, 0) for _ in range(2)]
        more = machines.code_of(lambda: nv.nvmlEventSetWait_v2(events, 0))

    assert [(one.eventData, one.gpuInstanceId) for one in seen] == [(31, 3), (31, 0xFFFFFFFF)]
    assert more == nv.NVML_ERROR_TIMEOUT
    assert [event.code for event in simulation.state.events] == [48]


def test_a_freed_event_set_cannot_be_waited_on(simulation: Simulation) -> None:
    """Not even when its number looks new."""
    with machines.session(simulation):
        events = nv.nvmlEventSetCreate()
        nv.nvmlEventSetFree(events)
        nv.nvmlEventSetCreate()

        code = machines.code_of(lambda: nv.nvmlEventSetWait_v2(events, 0))

    assert code == nv.NVML_ERROR_INVALID_ARGUMENT


# other processes

CHILD = """
import sys, pynvml
from pathlib import Path
from simulator.simulation import Simulation

Simulation.open(Path(sys.argv[1])).install()
pynvml.nvmlInit()
print("ready", flush=True)
sys.stdin.readline()
print(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)), flush=True)
"""


@pytest.fixture
def child(simulation: Simulation) -> Iterator[subprocess.Popen[str]]:
    """A process with a session, which asks for a name when it is given a line."""
    command = [sys.executable, "-c", CHILD, str(simulation.state_file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("crash", "status"),
    [(Crash(ending="kill"), -signal.SIGKILL), (Crash(ending="exit"), CRASH_STATUS)],
)
def test_a_crash_ends_the_caller_and_leaves_no_client(
    simulation: Simulation, child: subprocess.Popen[str], crash: Crash, status: int
) -> None:
    """The state still names the process; but it does not run, so it does not count."""
    simulation.fault(crash, "nvmlDeviceGetName")
    clients = simulation.clients()

    child.communicate("go\n", PATIENCE_SECONDS)

    assert (clients, child.returncode, simulation.clients()) == (1, status, 0)


@pytest.mark.parametrize("uninterruptible", [False, True])
def test_sigterm_ends_a_hanging_process_unless_it_is_uninterruptible(
    simulation: Simulation, child: subprocess.Popen[str], uninterruptible: bool
) -> None:
    """In a kernel's uninterruptible sleep the signal does nothing; cleared, the call goes on."""
    simulation.log_calls()
    simulation.fault(Hang(uninterruptible=uninterruptible), "nvmlDeviceGetName")
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    while not simulation.calls()["nvmlDeviceGetName", FIRST.bus_id] or (
        uninterruptible and not _ignores_sigterm(child.pid)
    ):
        assert child.poll() is None

    child.send_signal(signal.SIGTERM)
    if uninterruptible:
        simulation.clear()
    said, _ = child.communicate(timeout=PATIENCE_SECONDS)

    ended = ("NVIDIA Small\n", 0) if uninterruptible else ("", -signal.SIGTERM)
    assert (said, child.returncode) == ended


def _ignores_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGTERM - 1))


# mistakes in a script


def test_a_pattern_that_matches_nothing_names_the_nearest(simulation: Simulation) -> None:
    """A misspelt fault would make its test pass for the wrong reason."""
    with pytest.raises(BadInput, match="did you mean 'nvmlDeviceGetName'"):
        simulation.fault(Return(code=1), "nvmlDeviceGetNam")


def test_a_gpu_that_is_not_there_names_those_that_are(simulation: Simulation) -> None:
    """For faults, events, readings and processes alike."""
    for disturb in (
        lambda: simulation.fault(Return(code=1), bus_id="0000:19:00.0"),
        lambda: simulation.xid("0000:19:00.0", 79),
        lambda: simulation.set_readings("0000:19:00.0", pcie_replays=1),
        lambda: simulation.add_process("0000:19:00.0", os.getpid()),
    ):
        with pytest.raises(BadInput, match=r"no GPU at 0000:19:00\.0; did you mean '0000:1"):
            disturb()


def test_an_unknown_reading_names_the_nearest(simulation: Simulation) -> None:
    """Readings have one spelling."""
    with pytest.raises(BadInput, match="did you mean 'gpu_celsius'"):
        simulation.set_readings(FIRST.bus_id, gpu_celcius=1)
