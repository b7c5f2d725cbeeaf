# SPDX-License-Identifier: Apache-2.0
"""Every NVML error code on every entry point used costs one reading, with a reason, and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from msgspec.structs import replace

from discovery.driver_errors import DriverAbsent, DriverMismatch, GpuLost
from discovery.model import GpuSnapshot, GpuState, Reason
from discovery.nvml.facts import read_gpu
from discovery.nvml.samples import read_sample
from discovery.nvml.session import close_session, open_gpu, open_session
from discovery.nvml_terms import Architecture, LinkPeer
from discovery.sample import GpuSample, MemoryUse
from discovery.unread import unread_gpu
from simulator.description.machine_catalog import load_machine
from simulator.simulation import Return, Simulation, Spoil
from tests import build
from tests.discovery.nvml.error_codes import some_codes
from tests.discovery.sampling import leaves

ENTRIES = (
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGridLicensableFeatures_v4",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlGpuInstanceGetInfo",
)
"""What is called for one GPU; :func:`test_no_entry_point_is_missing_here` keeps it complete."""

HANDLES = {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetMigDeviceHandleByIndex"}
"""Their answers are opaque: no caller could see through a senseless one."""

SESSION = {
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
}

NO_SUCH_DEVICE = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
"""How NVML says that there is a hole in the numbering of MIG devices."""

VARYING = {"energy_joules", "power_watts", "gpu_celsius", "memory_celsius"} | {
    "nvlink_received_bytes",
    "nvlink_sent_bytes",
}
"""Readings that differ from one second to the next."""


class Bench:
    """Two GPUs with MIG devices and NVLinks, in this process."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.sick, self.well = (gpu.bus_id for gpu in load_machine(MACHINE).gpus[6:8])
        self.other = self.well
        self.other_handle, _ = open_gpu(self.other)
        self.before = {bus_id: self.read(bus_id) for bus_id in (self.sick, self.well)}

    def read(self, bus_id: str) -> tuple[GpuSnapshot, GpuSample | None]:
        try:
            handle, gap = open_gpu(bus_id)
        except GpuLost:
            return unread_gpu(bus_id, GpuState.LOST), None
        if gap is not None:
            return unread_gpu(bus_id, GpuState.UNREADABLE, gap), None
        peers = {self.other: self.other_handle} if bus_id != self.other else {}
        return read_gpu(bus_id, handle, peers), read_sample(bus_id, handle, lambda: 0.0)


MACHINE = "hgx-h100-mig-mixed"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    machine = load_machine(MACHINE)
    folder: Path = tmp_path_factory.mktemp("machine")
    simulation = Simulation.create(replace(machine, gpus=machine.gpus[6:8]), folder)
    with simulation:
        open_session()
        yield Bench(simulation)
        close_session()


@pytest.fixture(autouse=True)
def _healthy(bench: Bench) -> Iterator[None]:
    yield
    bench.simulation.clear()


def _differing(now: Any, before: Any) -> dict[str, Any]:
    """Fields that are not as they were, but for gaps and what varies anyway."""
    known = _facts(before)
    return {
        name: fact
        for name, fact in _facts(now).items()
        if name not in {*VARYING, "gaps"} and fact != known[name]
    }


def _facts(of: Any) -> dict[str, Any]:
    if isinstance(of, GpuSnapshot):
        return build.gpu_facts(of)
    return {field.name: getattr(of, field.name) for field in dataclasses.fields(of)}


def _is_less(field: str, now: Any, before: Any) -> bool:
    """None, or a part of the items, or items that know less: never another fact."""
    if now is None or field == "state":
        return True
    if field in ("links", "mig_devices", "mig_memory"):
        return len(now) <= len(before)
    if field == "memory":  # the first version of the call counts the reserved part as used
        return isinstance(now, MemoryUse) and now.reserved_bytes is None
    if field == "fabric":  # the first version of the call has no health
        without = dataclasses.replace(before, health_mask=None, health_summary=None)
        return bool(now == without)
    return isinstance(now, tuple) and set(now) <= set(before)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_error_code_costs_that_reading_alone_and_leaves_a_reason(
    bench: Bench, entry: str
) -> None:
    gpu_before, sample_before = bench.before[bench.sick]
    for code in some_codes(ENTRIES.index(entry)):
        bench.simulation.fault(Return(code=code), entry, bus_id=bench.sick)
        gpu, sample = bench.read(bench.sick)
        bench.simulation.clear()

        lost = _differing(gpu, gpu_before)
        known = _facts(gpu_before)
        assert all(_is_less(f, v, known[f]) for f, v in lost.items()), (code, lost)
        told = {gap.what for gap in gpu.gaps}
        hidden = {"links"} if entry.startswith("nvmlDeviceGetNvLink") else set()
        hidden |= {"links"} if entry == "nvmlDeviceGetFieldValues" else set()  # rates alone
        if build.nvidia(gpu).fabric is not None:  # without health, by the older call
            hidden.add("fabric")
        if entry == "nvmlDeviceGetMigDeviceHandleByIndex" and code in NO_SUCH_DEVICE:
            hidden |= {"mig_devices"}
        assert gpu.state is not GpuState.PRESENT or set(lost) - hidden - _behind(lost) <= told, code
        if sample is not None and sample_before is not None:
            gone = _differing(sample, sample_before)
            assert all(_is_less(f, v, getattr(sample_before, f)) for f, v in gone.items()), gone


def _behind(lost: dict[str, Any]) -> set[str]:
    """What is not asked at all once something else is not known."""
    return (
        {"mig_devices", "max_mig_devices"} if "mig" in lost or "max_mig_devices" in lost else set()
    )


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_error_on_one_gpu_changes_nothing_of_another(bench: Bench, entry: str) -> None:
    gpu_before, sample_before = bench.before[bench.well]
    for code in some_codes(ENTRIES.index(entry)):
        bench.simulation.fault(Return(code=code), entry, bus_id=bench.sick)
        gpu, sample = bench.read(bench.well)
        bench.simulation.clear()
        unrelated = _differing(gpu, gpu_before).keys() - {"ancestors"}  # a pair is both GPUs'
        assert not unrelated, (code, unrelated)
        assert sample is not None
        assert not _differing(sample, sample_before), code


@pytest.mark.parametrize("garbage", ["max", "nan", "not-utf8", "unterminated"])
@pytest.mark.parametrize("entry", sorted(set(ENTRIES) - HANDLES))
def test_a_senseless_answer_is_a_gap_and_never_a_value(
    bench: Bench, entry: str, garbage: Any
) -> None:
    """However deep in the answer it stands: MIG devices, links, fabric, rows, memory."""
    before = bench.before[bench.sick]
    bench.simulation.fault(Spoil(garbage=garbage), entry, bus_id=bench.sick)
    for now, then in zip(bench.read(bench.sick), before, strict=True):
        known = {} if then is None else leaves(then)
        for path, value in ({} if now is None else leaves(now)).items():
            if path.partition(".")[0] not in VARYING and not _says_unknown(path, value):
                assert value == known.get(path), path


def _says_unknown(path: str, value: Any) -> bool:
    """The end of a link, where it is not told, and the architecture of a later driver."""
    return (path.startswith("links.") and value == LinkPeer.UNKNOWN) or (
        path == "architecture" and value == Architecture.OTHER
    )


def test_the_older_call_for_the_fabric_is_checked_as_well(bench: Bench) -> None:
    missing = Return(code=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    bench.simulation.fault(missing, "nvmlDeviceGetGpuFabricInfoV", bus_id=bench.sick)
    bench.simulation.fault(Spoil(garbage="max"), "nvmlDeviceGetGpuFabricInfo", bus_id=bench.sick)
    gpu, _ = bench.read(bench.sick)
    gap = gpu.gap("fabric")
    assert (build.nvidia(gpu).fabric, gap and gap.reason) == (None, Reason.GARBAGE)


@pytest.mark.parametrize(
    "code",
    [pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND],
)
def test_a_driver_without_the_newest_call_for_the_fabric_has_the_health_of_the_one_before(
    bench: Bench, code: int
) -> None:
    refused = Return(code=code)
    bench.simulation.fault(refused, "nvmlDeviceGetGpuFabricInfoV", bus_id=bench.sick, times=1)

    gpu, _ = bench.read(bench.sick)

    before = build.nvidia(bench.before[bench.sick][0]).fabric
    assert before is not None
    assert before.health_summary is not None
    assert build.nvidia(gpu).fabric == dataclasses.replace(before, health_summary=None)
    assert gpu.gap("fabric.health_summary") is None


def test_no_entry_point_is_missing_here(bench: Bench) -> None:
    bench.simulation.log_calls()
    for bus_id in (bench.sick, bench.well):
        bench.read(bus_id)
    used = {entry for entry, _ in bench.simulation.calls()}
    bench.simulation.log_calls(False)
    assert used - SESSION <= set(ENTRIES)


def test_every_lost_code_means_a_lost_gpu(bench: Bench) -> None:
    for code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
        bench.simulation.fault(Return(code=code), "nvmlDeviceGetEccMode", bus_id=bench.sick)
        gpu, _ = bench.read(bench.sick)
        bench.simulation.clear()
        gap = gpu.gap("state")
        assert (gpu.state, gap and gap.reason) == (GpuState.LOST, Reason.LOST)
        assert gpu.uuid is not None  # read before it was lost


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverAbsent),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, DriverAbsent),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, DriverMismatch),
    ],
)
def test_a_session_that_is_gone_altogether_is_told_as_such(
    bench: Bench, code: int, error: type[Exception]
) -> None:
    bench.simulation.fault(Return(code=code))
    with pytest.raises(error):
        bench.read(bench.well)
