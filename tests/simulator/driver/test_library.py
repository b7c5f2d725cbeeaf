# SPDX-License-Identifier: Apache-2.0
"""The stand-in for the library gives what a machine's data say, in pynvml's own types."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import byref, c_uint, create_string_buffer
from pathlib import Path
from uuid import UUID

import pynvml as nv
import pytest
from msgspec.structs import replace

from base.errors import BadInput
from simulator.computed_machine import ComputedMachine
from simulator.description.machine_schema import DirectLinks, FabricSpec
from simulator.driver import clients
from simulator.driver.library import Library
from simulator.driver.simulated_driver import SimulatedDriver
from simulator.simulation import Simulation
from simulator.state.state_file import StateFile
from tests import machines

FIRST, SECOND, THIRD = (machines.gpu(at) for at in range(3))
MIB = 1 << 20


def test_identity_is_that_of_the_data(tmp_path: Path) -> None:
    """Name, UUID, serial, minor and PCI ids go through pynvml's buffers and structs unchanged."""
    told = machines.gpu(0, uuid="GPU-aa", serial="1650522003820", minor=5)

    with machines.session(machines.simulation(tmp_path, told)) as handle:
        gpu = handle(0)
        pci = nv.nvmlDeviceGetPciInfo(gpu)

        assert nv.nvmlDeviceGetName(gpu) == "NVIDIA Small"
        assert nv.nvmlDeviceGetUUID(gpu) == "GPU-aa"
        assert nv.nvmlDeviceGetSerial(gpu) == "1650522003820"
        assert nv.nvmlDeviceGetMinorNumber(gpu) == 5
        assert (pci.busId, pci.busIdLegacy) == ("00000000:10:00.0", "0000:10:00.0")
        assert (pci.pciDeviceId, pci.pciSubSystemId) == (0x20B010DE, 0x134F10DE)
        assert nv.nvmlDeviceGetCudaComputeCapability(gpu) == (8, 0)


def test_made_up_identities_differ_between_gpus_and_stay_the_same(tmp_path: Path) -> None:
    """A machine made twice has the same UUIDs and serials, each GPU its own."""
    seen = []
    for name in ("one", "two"):
        with machines.session(machines.simulation(tmp_path / name)) as handle:
            gpus = [handle(0), handle(1)]
            seen.append([(nv.nvmlDeviceGetUUID(g), nv.nvmlDeviceGetSerial(g)) for g in gpus])

    assert seen[0] == seen[1]
    assert len({text for gpu in seen[0] for text in gpu}) == 4


def test_indices_follow_the_pci_bus_and_not_the_data(tmp_path: Path) -> None:
    """NVML counts in bus order, beyond two-digit buses and across domains."""
    far = machines.gpu(2, bus_id="0001:01:00.0")

    with machines.session(machines.simulation(tmp_path, far, SECOND, FIRST)) as handle:
        buses = [nv.nvmlDeviceGetPciInfo(handle(at)).busId for at in range(3)]

    assert buses == ["00000000:10:00.0", "00000000:11:00.0", "00000001:01:00.0"]


@pytest.mark.parametrize("spelling", ["0000:11:00.0", "00000000:11:00.0", "0000:11:00", "11:00.0"])
def test_a_bus_id_is_found_in_any_spelling(tmp_path: Path, spelling: str) -> None:
    """Four or eight digits of domain, or none."""
    with machines.session(machines.simulation(tmp_path)):
        gpu = nv.nvmlDeviceGetHandleByPciBusId(spelling)

        assert nv.nvmlDeviceGetIndex(gpu) == 1


def test_looking_up_what_is_not_there_says_so(tmp_path: Path) -> None:
    """Unknown names are NOT_FOUND; what cannot be a name, or an index past the end, is refused."""
    with machines.session(machines.simulation(tmp_path)):
        by_bus = machines.code_of(lambda: nv.nvmlDeviceGetHandleByPciBusId("0000:99:00.0"))
        by_uuid = machines.code_of(lambda: nv.nvmlDeviceGetHandleByUUID("GPU-none"))
        nonsense = machines.code_of(lambda: nv.nvmlDeviceGetHandleByPciBusId("nonsense"))
        past_end = machines.code_of(lambda: nv.nvmlDeviceGetHandleByIndex(2))

    assert (by_bus, by_uuid) == (nv.NVML_ERROR_NOT_FOUND, nv.NVML_ERROR_NOT_FOUND)
    assert (nonsense, past_end) == (nv.NVML_ERROR_INVALID_ARGUMENT, nv.NVML_ERROR_INVALID_ARGUMENT)


def test_memory_in_use_is_that_of_the_processes(tmp_path: Path) -> None:
    """Reserved memory is told apart by the newer call and counted as used by the older one."""
    simulation = machines.simulation(tmp_path)
    simulation.add_process(FIRST.bus_id, 71, memory_mib=1000)

    with machines.session(simulation) as handle:
        new = nv.nvmlDeviceGetMemoryInfo(handle(0), nv.nvmlMemory_v2)
        old = nv.nvmlDeviceGetMemoryInfo(handle(0))

    assert (new.total, new.reserved, new.used) == (40960 * MIB, 500 * MIB, 1000 * MIB)
    assert new.free == new.total - new.reserved - new.used
    assert (old.total, old.free, old.used) == (new.total, new.free, 1500 * MIB)


def test_a_struct_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    """As real drivers refuse one that is newer than they are."""
    with machines.session(machines.simulation(tmp_path)) as handle:
        code = machines.code_of(lambda: nv.nvmlDeviceGetMemoryInfo(handle(0), 0x0900FFFF))

    assert code == nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_what_the_model_lacks_is_not_supported(tmp_path: Path) -> None:
    """Unified memory, no ECC, no MIG, no NVLink, no sensors: an error each, never a zero."""
    bare = machines.model(
        memory_mib=None,
        memory_bus_bits=None,
        ecc=None,
        row_remapping=False,
        mig=(),
        nvlink_links=0,
        sensors=False,
        encoder=False,
    )
    asked = [
        nv.nvmlDeviceGetMemoryInfo,
        nv.nvmlDeviceGetMemoryBusWidth,
        nv.nvmlDeviceGetEccMode,
        nv.nvmlDeviceGetRemappedRows,
        nv.nvmlDeviceGetMigMode,
        lambda gpu: nv.nvmlDeviceGetNvLinkState(gpu, 0),
        lambda gpu: nv.nvmlDeviceGetTemperature(gpu, 0),
        nv.nvmlDeviceGetPowerUsage,
        nv.nvmlDeviceGetTotalEnergyConsumption,
        nv.nvmlDeviceGetEncoderUtilization,
    ]

    with machines.session(machines.simulation(tmp_path, FIRST, models={"small": bare})) as handle:
        codes = [machines.code_of(lambda ask=ask: ask(handle(0))) for ask in asked]  # type: ignore[misc]

    assert codes == [nv.NVML_ERROR_NOT_SUPPORTED] * len(asked)


def test_links_to_switches_hide_their_far_end(tmp_path: Path) -> None:
    """All ones for the bus id, and the type says switch, as on real NVSwitch machines."""
    with machines.session(machines.simulation(tmp_path)) as handle:
        states = [nv.nvmlDeviceGetNvLinkState(handle(0), link) for link in range(2)]
        kind = nv.nvmlDeviceGetNvLinkRemoteDeviceType(handle(0), 0)
        peer = nv.nvmlDeviceGetNvLinkRemotePciInfo(handle(0), 0).busId
        past = machines.code_of(lambda: nv.nvmlDeviceGetNvLinkState(handle(0), 2))

    assert (states, kind, peer) == ([1, 1], 2, "FFFFFFFF:FF:FF.0")
    assert past == nv.NVML_ERROR_INVALID_ARGUMENT


def test_direct_links_name_their_peers_and_the_rest_is_inactive(tmp_path: Path) -> None:
    """Three GPUs in a row: the middle one has a link to each, the outer ones one unused each."""
    row = (DirectLinks(a=0, b=1, links=1), DirectLinks(a=1, b=2, links=1))
    simulation = machines.simulation(tmp_path, FIRST, SECOND, THIRD, switched=False, direct=row)

    with machines.session(simulation) as handle:
        middle = [nv.nvmlDeviceGetNvLinkRemotePciInfo(handle(1), link).busId for link in range(2)]
        outer = [nv.nvmlDeviceGetNvLinkState(handle(2), link) for link in range(2)]
        nowhere = machines.code_of(lambda: nv.nvmlDeviceGetNvLinkRemotePciInfo(handle(2), 1))
        p2p = [nv.nvmlDeviceGetP2PStatus(handle(0), handle(at), 2) for at in (1, 2)]

    assert middle == ["00000000:10:00.0", "00000000:12:00.0"]
    assert (outer, nowhere) == ([1, 0], nv.NVML_ERROR_NOT_SUPPORTED)
    assert p2p == [nv.NVML_P2P_STATUS_OK, nv.NVML_P2P_STATUS_NOT_SUPPORTED]


def test_a_link_may_be_down_at_one_end_only(tmp_path: Path) -> None:
    """The state of a link is what each end sees."""
    pair = (DirectLinks(a=0, b=1, links=2),)
    simulation = machines.simulation(tmp_path, switched=False, direct=pair)
    simulation.links_down(FIRST.bus_id, 1)

    with machines.session(simulation) as handle:
        seen = [
            [nv.nvmlDeviceGetNvLinkState(handle(at), link) for link in range(2)] for at in range(2)
        ]

    assert seen == [[1, 0], [1, 1]]


@pytest.mark.parametrize("version", [nv.c_nvmlGpuFabricInfo_v2_t, nv.c_nvmlGpuFabricInfo_v3_t])
def test_the_fabric_is_told_in_any_version(tmp_path: Path, version: type) -> None:
    """Cluster, clique and health are in every versioned struct."""
    cluster = UUID("11112222-3333-4444-5555-666677778888")
    fabric = FabricSpec(cluster_uuid=str(cluster), clique_id=7, health_mask=42)
    simulation = machines.simulation(
        tmp_path,
        machines.gpu(0, fabric=fabric),
        models={"small": machines.model(fabric=True)},
    )
    info = version()

    with machines.session(simulation) as handle:
        nv.nvmlDeviceGetGpuFabricInfoV(handle(0), byref(info))

    assert bytes(info.clusterUuid) == cluster.bytes
    assert (info.cliqueId, info.state, info.status, info.healthMask) == (7, 3, 0, 42)


def test_affinity_is_a_bit_set_over_words(tmp_path: Path) -> None:
    """CPU 64 is bit 0 of the second word; the words there is no need for are zero."""
    simulation = machines.simulation(tmp_path, machines.gpu(0, cpus="0-1,64", numa_node=1))

    with machines.session(simulation) as handle:
        cpus = list(nv.nvmlDeviceGetCpuAffinity(handle(0), 3))
        nodes = list(nv.nvmlDeviceGetMemoryAffinity(handle(0), 1, 0))

    assert (cpus, nodes) == ([0b11, 1, 0], [0b10])


def test_fields_have_codes_of_their_own(tmp_path: Path) -> None:
    """An unknown field beside good ones spoils nothing; the scope says which link is meant."""
    simulation = machines.simulation(tmp_path)
    simulation.set_readings(FIRST.bus_id, recovery_action=2)
    asked = [
        nv.NVML_FI_DEV_NVLINK_LINK_COUNT,
        (nv.NVML_FI_DEV_NVLINK_GET_STATE, 1),
        (nv.NVML_FI_DEV_NVLINK_GET_STATE, 9),
        nv.NVML_FI_DEV_C2C_LINK_COUNT,
        nv.NVML_FI_MAX,
        nv.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    ]

    with machines.session(simulation) as handle:
        values = nv.nvmlDeviceGetFieldValues(handle(0), asked)

    assert [(one.nvmlReturn, one.value.uiVal) for one in values] == [
        (nv.NVML_SUCCESS, 2),
        (nv.NVML_SUCCESS, 1),
        (nv.NVML_ERROR_INVALID_ARGUMENT, 0),
        (nv.NVML_ERROR_NOT_SUPPORTED, 0),
        (nv.NVML_ERROR_INVALID_ARGUMENT, 0),
        (nv.NVML_SUCCESS, 2),
    ]


def test_processes_are_listed_on_their_gpu(tmp_path: Path) -> None:
    """With memory in bytes and, without MIG, no instance ids."""
    simulation = machines.simulation(tmp_path)
    simulation.add_process(FIRST.bus_id, 71, memory_mib=3, percent=40)
    simulation.add_process(SECOND.bus_id, 72, kind="graphics")

    with machines.session(simulation) as handle:
        (compute,) = nv.nvmlDeviceGetComputeRunningProcesses(handle(0))
        graphics = nv.nvmlDeviceGetGraphicsRunningProcesses(handle(0))
        (sample,) = nv.nvmlDeviceGetProcessUtilization(handle(0), 0)
        name = nv.nvmlSystemGetProcessName(72)

    assert (compute.pid, compute.usedGpuMemory) == (71, 3 * MIB)
    assert compute.gpuInstanceId == 0xFFFFFFFF
    assert (graphics, sample.smUtil, name) == ([], 40, "python3")


def test_retired_pages_are_those_of_older_gpus(tmp_path: Path) -> None:
    """All retired for double bit errors; newer GPUs remap rows and have none to list."""
    older = machines.model(row_remapping=False)
    simulation = machines.simulation(tmp_path, FIRST, models={"small": older})
    simulation.set_readings(FIRST.bus_id, retired_pages=(0x1000, 0x2000), retired_pending=True)

    with machines.session(simulation) as handle:
        double = nv.nvmlDeviceGetRetiredPages(handle(0), 1)
        timed = nv.nvmlDeviceGetRetiredPages_v2(handle(0), 1)
        single = nv.nvmlDeviceGetRetiredPages(handle(0), 0)
        pending = nv.nvmlDeviceGetRetiredPagesPendingStatus(handle(0))

    assert (double, single, pending) == ([0x1000, 0x2000], [], 1)
    assert [page["address"] for page in timed] == double


# sessions and clients


def test_nothing_works_before_init_and_after_the_last_shutdown(tmp_path: Path) -> None:
    """Sessions are counted: two inits need two shutdowns."""
    with machines.simulation(tmp_path):
        before = machines.code_of(nv.nvmlDeviceGetCount)
        nv.nvmlInit()
        nv.nvmlInit()
        nv.nvmlShutdown()
        between = machines.code_of(nv.nvmlDeviceGetCount)
        nv.nvmlShutdown()
        after = machines.code_of(nv.nvmlDeviceGetCount)
        too_often = machines.code_of(nv.nvmlShutdown)

    closed = nv.NVML_ERROR_UNINITIALIZED
    assert (before, between, after, too_often) == (closed, 0, closed, closed)


def test_a_process_is_one_client_as_long_as_it_has_a_session(tmp_path: Path) -> None:
    """However often it initialises NVML."""
    simulation = machines.simulation(tmp_path)
    counts = [simulation.clients()]

    with simulation:
        for step in (nv.nvmlInit, nv.nvmlInit, nv.nvmlShutdown, nv.nvmlShutdown):
            step()
            counts.append(simulation.clients())

    assert counts == [0, 1, 1, 1, 0]


def test_a_process_that_ended_is_no_client_though_nobody_waited_for_it() -> None:
    """A zombie holds no device; nor does a new process with an old one's id."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        running = clients.live((clients.client_of(process.pid),))
        client = clients.client_of(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        zombie = clients.live((client,))
    other = replace(clients.this_process(), started=1)

    assert running == {client}
    assert (zombie, clients.live((other,))) == (frozenset(), frozenset())


def test_uninstalling_ends_the_sessions_and_gives_the_real_loader_back(tmp_path: Path) -> None:
    """Afterwards pynvml is as if it had never seen the simulator."""
    loader = nv.CDLL
    simulation = machines.simulation(tmp_path)

    simulation.install()
    nv.nvmlInit()
    simulation.uninstall()

    assert (nv.CDLL, nv.nvmlLib, simulation.clients()) == (loader, None, 0)


def test_the_last_machine_installed_is_the_one_that_answers(tmp_path: Path) -> None:
    """Tests may install several in turn without uninstalling."""
    one = machines.simulation(tmp_path / "one", FIRST)
    three = machines.simulation(tmp_path / "three", FIRST, SECOND, THIRD)
    counts = []
    real = nv.CDLL
    for simulation in (one, three):
        simulation.install()
        nv.nvmlInit()
        counts.append(nv.nvmlDeviceGetCount())
    counted = one.clients(), three.clients()
    one.uninstall()  # not installed any more: does nothing
    still = nv.nvmlDeviceGetCount()
    three.uninstall()

    assert (counts, counted, still) == ([1, 3], (0, 1), 3)
    assert nv.CDLL is real


# what is wrong with a call itself


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """The library itself, initialised, for calls that pynvml would not make."""
    file = StateFile(machines.simulation(tmp_path).state_file)
    loaded = Library(SimulatedDriver(file, ComputedMachine(lambda: 0.0)))
    loaded.nvmlInit_v2()
    return loaded


def test_a_name_that_is_not_in_the_table_is_no_symbol(library: Library) -> None:
    """pynvml makes FUNCTION_NOT_FOUND of it, as with an older driver."""
    with pytest.raises(AttributeError, match="nvmlDeviceGetFanSpeedRPM"):
        _ = library.nvmlDeviceGetFanSpeedRPM


def test_a_machine_may_have_an_older_library(tmp_path: Path) -> None:
    """An entry point that it lacks is no symbol; one that no library has is a slip."""
    simulation = machines.simulation(tmp_path)
    simulation.lack("nvmlDeviceGetSerial")
    with machines.session(simulation) as handle:
        assert machines.code_of(lambda: nv.nvmlDeviceGetSerial(handle(0))) == (
            nv.NVML_ERROR_FUNCTION_NOT_FOUND
        )
        assert nv.nvmlDeviceGetName(handle(0))
    with pytest.raises(BadInput, match="nvmlDeviceGetSerial"):
        simulation.lack("nvmlDeviceGetSeriall")


def test_a_buffer_that_is_too_short_gets_nothing(library: Library) -> None:
    """INSUFFICIENT_SIZE, and the buffer is as it was."""
    buffer = create_string_buffer(b"????", 5)

    code = library.nvmlSystemGetDriverVersion(buffer, c_uint(5))

    assert (code, buffer.value) == (nv.NVML_ERROR_INSUFFICIENT_SIZE, b"????")


def test_an_array_that_is_too_short_gets_the_count(tmp_path: Path) -> None:
    """INSUFFICIENT_SIZE, and how many items there are; the array is as it was."""
    simulation = machines.simulation(tmp_path)
    for pid in (71, 72, 73):
        simulation.add_process(FIRST.bus_id, pid)
    count, array = c_uint(2), (nv.c_nvmlProcessInfo_v3_t * 2)()

    with machines.session(simulation) as handle:
        function = nv._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
        code = function(handle(0), byref(count), array)

    assert (code, count.value) == (nv.NVML_ERROR_INSUFFICIENT_SIZE, 3)
    assert [one.pid for one in array] == [0, 0]


def test_null_and_unknown_handles_are_refused(library: Library) -> None:
    """Where C would crash on the one, and NVML refuses the other."""
    unknown = ctypes.cast(0x1234, nv.c_nvmlDevice_t)

    codes = (
        library.nvmlDeviceGetCount_v2(None),
        library.nvmlDeviceGetIndex(None, byref(c_uint())),
        library.nvmlDeviceGetIndex(unknown, byref(c_uint())),
    )

    assert codes == (nv.NVML_ERROR_INVALID_ARGUMENT,) * 3


def test_an_argument_of_a_wrong_type_is_ctypes_own_error(library: Library) -> None:
    """As when pynvml's own constant for it is a tuple: NVML_P2P_CAPS_INDEX_READ."""
    gpu = nv.c_nvmlDevice_t()
    library.nvmlDeviceGetHandleByIndex_v2(c_uint(0), byref(gpu))

    with pytest.raises(ctypes.ArgumentError):
        library.nvmlDeviceGetP2PStatus(gpu, gpu, (0,), byref(c_uint()))


def test_an_exception_inside_is_an_unknown_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine that contradicts itself answers 999, and the log says where it failed."""
    simulation = machines.simulation(tmp_path, FIRST)
    simulation.edit(lambda state: replace(state, models={}))

    with machines.session(simulation) as handle:
        code = machines.code_of(lambda: handle(0))

    assert code == nv.NVML_ERROR_UNKNOWN
    (line,) = caplog.records
    assert line.__dict__["call"] == "nvmlDeviceGetHandleByIndex_v2"


def test_error_strings_are_texts_for_every_code(library: Library) -> None:
    """pynvml sets the return type on the function before it calls it."""
    function = library.nvmlErrorString
    function.restype = ctypes.c_char_p

    assert function(nv.NVML_ERROR_IN_USE) == b"In Use"
    assert function(31) == b"Unknown"


def test_calls_are_logged_by_gpu(tmp_path: Path) -> None:
    """A MIG-less call counts for its GPU, one on two GPUs for both, one on none for None."""
    simulation = machines.simulation(tmp_path)
    with machines.session(simulation) as handle:
        gpus = handle(0), handle(1)
        simulation.log_calls()
        nv.nvmlDeviceGetCount()
        nv.nvmlDeviceGetName(gpus[1])
        nv.nvmlDeviceGetName(gpus[1])
        nv.nvmlDeviceGetTopologyCommonAncestor(*gpus)
        simulation.log_calls(False)
        nv.nvmlDeviceGetCount()

    ancestor = "nvmlDeviceGetTopologyCommonAncestor"
    assert simulation.calls() == {
        ("nvmlDeviceGetCount_v2", None): 1,
        ("nvmlDeviceGetName", SECOND.bus_id): 2,
        (ancestor, FIRST.bus_id): 1,
        (ancestor, SECOND.bus_id): 1,
    }


def test_one_look_at_a_machine_is_not_the_next(tmp_path: Path) -> None:
    """A session sees what another simulation of the same file changed, at the next call."""
    simulation = machines.simulation(tmp_path)
    other = Simulation.open(simulation.state_file)

    with machines.session(simulation) as handle:
        gpu = handle(0)
        other.set_readings(FIRST.bus_id, gpu_celsius=77)

        assert nv.nvmlDeviceGetTemperature(gpu, 0) == 77
