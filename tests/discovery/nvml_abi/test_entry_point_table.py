# SPDX-License-Identifier: Apache-2.0
"""pynvml's own functions reach every entry point of the table and get its return codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ctypes import byref, c_uint
from functools import partial
from typing import Any

import pynvml as nv
import pytest
from msgspec.structs import replace

from discovery.nvml_abi.entry_point_table import TABLE
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return, Simulation
from tests import machines
from tests.discovery.nvml.error_codes import CODES

UNSEEN_BY_PYNVML = {
    "nvmlInit_v2",  # what nvmlInit is in C; pynvml calls nvmlInitWithFlags
    "nvmlErrorString",  # returns a text, and none of pynvml's errors needs it
}


class Bench:
    """A session on two GPUs, the first with a MIG device, and one handle of each kind."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.other = nv.nvmlDeviceGetHandleByIndex(0)
        self.gpu = nv.nvmlDeviceGetHandleByIndex(1)
        self.mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(self.gpu, 0)
        self.gpu_instance = nv.nvmlDeviceGetGpuInstanceById(self.gpu, 1)
        self.compute_instance = nv.nvmlGpuInstanceGetComputeInstanceById(self.gpu_instance, 0)
        self.events = nv.nvmlEventSetCreate()
        self.uuid = nv.nvmlDeviceGetUUID(self.gpu)
        self.serial = nv.nvmlDeviceGetSerial(self.gpu)
        self.fabric = nv.c_nvmlGpuFabricInfo_t()
        self.fabric_v = nv.c_nvmlGpuFabricInfo_v3_t()
        self.gpu_instances = (nv.c_nvmlGpuInstance_t * 7)()
        self.compute_instances = (nv.c_nvmlComputeInstance_t * 7)()
        self.placement = nv.c_nvmlGpuInstancePlacement_t(4, 1)
        self.compute_placement = nv.c_nvmlComputeInstancePlacement_t(0, 1)
        self.count = c_uint()
        self.samples = [nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()]

    def question(self) -> object:
        """For one GPM metric between two samples that were never filled."""
        question = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=1)
        question.sample1, question.sample2 = self.samples
        return question


def _on_gpu(function: Callable[..., Any], *rest: Any) -> Callable[[Bench], object]:
    return lambda bench: function(bench.gpu, *rest)


def _on_mig(function: Callable[..., Any]) -> Callable[[Bench], object]:
    return lambda bench: function(bench.mig)


def _on_pair(function: Callable[..., Any], *rest: Any) -> Callable[[Bench], object]:
    return lambda bench: function(bench.gpu, bench.other, *rest)


def _on_gpu_instance(function: Callable[..., Any], *rest: Any) -> Callable[[Bench], object]:
    return lambda bench: function(bench.gpu_instance, *rest)


CALLS: Mapping[str, Callable[[Bench], object]] = {
    "nvmlInitWithFlags": lambda _: nv.nvmlInitWithFlags(0),
    "nvmlShutdown": lambda _: nv.nvmlShutdown(),
    "nvmlSystemGetDriverVersion": lambda _: nv.nvmlSystemGetDriverVersion(),
    "nvmlSystemGetNVMLVersion": lambda _: nv.nvmlSystemGetNVMLVersion(),
    "nvmlSystemGetCudaDriverVersion": lambda _: nv.nvmlSystemGetCudaDriverVersion(),
    "nvmlSystemGetCudaDriverVersion_v2": lambda _: nv.nvmlSystemGetCudaDriverVersion_v2(),
    "nvmlSystemGetConfComputeState": lambda _: nv.nvmlSystemGetConfComputeState(),
    "nvmlSystemGetProcessName": lambda _: nv.nvmlSystemGetProcessName(71),
    "nvmlDeviceGetCount_v2": lambda _: nv.nvmlDeviceGetCount(),
    "nvmlDeviceGetHandleByIndex_v2": lambda _: nv.nvmlDeviceGetHandleByIndex(1),
    "nvmlGetExcludedDeviceCount": lambda _: nv.nvmlGetExcludedDeviceCount(),
    "nvmlGetExcludedDeviceInfoByIndex": lambda _: nv.nvmlGetExcludedDeviceInfoByIndex(0),
    "nvmlDeviceGetHandleByUUID": lambda b: nv.nvmlDeviceGetHandleByUUID(b.uuid),
    "nvmlDeviceGetHandleByPciBusId_v2": lambda _: nv.nvmlDeviceGetHandleByPciBusId("0000:11:00.0"),
    "nvmlDeviceGetHandleBySerial": lambda b: nv.nvmlDeviceGetHandleBySerial(b.serial),
    "nvmlDeviceGetName": _on_gpu(nv.nvmlDeviceGetName),
    "nvmlDeviceGetUUID": _on_gpu(nv.nvmlDeviceGetUUID),
    "nvmlDeviceGetSerial": _on_gpu(nv.nvmlDeviceGetSerial),
    "nvmlDeviceGetIndex": _on_gpu(nv.nvmlDeviceGetIndex),
    "nvmlDeviceGetMinorNumber": _on_gpu(nv.nvmlDeviceGetMinorNumber),
    "nvmlDeviceGetBoardId": _on_gpu(nv.nvmlDeviceGetBoardId),
    "nvmlDeviceGetBoardPartNumber": _on_gpu(nv.nvmlDeviceGetBoardPartNumber),
    "nvmlDeviceGetPciInfo_v3": _on_gpu(nv.nvmlDeviceGetPciInfo),
    "nvmlDeviceGetBrand": _on_gpu(nv.nvmlDeviceGetBrand),
    "nvmlDeviceGetArchitecture": _on_gpu(nv.nvmlDeviceGetArchitecture),
    "nvmlDeviceGetCudaComputeCapability": _on_gpu(nv.nvmlDeviceGetCudaComputeCapability),
    "nvmlDeviceGetVbiosVersion": _on_gpu(nv.nvmlDeviceGetVbiosVersion),
    "nvmlDeviceGetPersistenceMode": _on_gpu(nv.nvmlDeviceGetPersistenceMode),
    "nvmlDeviceGetComputeMode": _on_gpu(nv.nvmlDeviceGetComputeMode),
    "nvmlDeviceGetAutoBoostedClocksEnabled": _on_gpu(nv.nvmlDeviceGetAutoBoostedClocksEnabled),
    "nvmlDeviceGetInforomImageVersion": _on_gpu(nv.nvmlDeviceGetInforomImageVersion),
    "nvmlDeviceGetInforomConfigurationChecksum": _on_gpu(
        nv.nvmlDeviceGetInforomConfigurationChecksum
    ),
    "nvmlDeviceGetPlatformInfo": lambda b: nv.nvmlDeviceGetPlatformInfo(
        b.gpu, byref(nv.c_nvmlPlatformInfo_v2_t())
    ),
    "nvmlDeviceGetInforomVersion": _on_gpu(nv.nvmlDeviceGetInforomVersion, 0),
    "nvmlDeviceGetVirtualizationMode": _on_gpu(nv.nvmlDeviceGetVirtualizationMode),
    "nvmlDeviceGetGridLicensableFeatures_v4": _on_gpu(nv.nvmlDeviceGetGridLicensableFeatures_v4),
    "nvmlDeviceGetMemoryInfo": _on_gpu(nv.nvmlDeviceGetMemoryInfo),
    "nvmlDeviceGetMemoryInfo_v2": _on_gpu(nv.nvmlDeviceGetMemoryInfo, nv.nvmlMemory_v2),
    "nvmlDeviceGetBAR1MemoryInfo": _on_gpu(nv.nvmlDeviceGetBAR1MemoryInfo),
    "nvmlDeviceGetMemoryBusWidth": _on_gpu(nv.nvmlDeviceGetMemoryBusWidth),
    "nvmlDeviceGetEccMode": _on_gpu(nv.nvmlDeviceGetEccMode),
    "nvmlDeviceGetDefaultEccMode": _on_gpu(nv.nvmlDeviceGetDefaultEccMode),
    "nvmlDeviceGetTotalEccErrors": _on_gpu(nv.nvmlDeviceGetTotalEccErrors, 0, 0),
    "nvmlDeviceGetDetailedEccErrors": _on_gpu(nv.nvmlDeviceGetDetailedEccErrors, 0, 0),
    "nvmlDeviceGetMemoryErrorCounter": _on_gpu(nv.nvmlDeviceGetMemoryErrorCounter, 0, 0, 2),
    "nvmlDeviceGetRetiredPages": _on_gpu(nv.nvmlDeviceGetRetiredPages, 0),
    "nvmlDeviceGetRetiredPages_v2": _on_gpu(nv.nvmlDeviceGetRetiredPages_v2, 0),
    "nvmlDeviceGetRetiredPagesPendingStatus": _on_gpu(nv.nvmlDeviceGetRetiredPagesPendingStatus),
    "nvmlDeviceGetRemappedRows": _on_gpu(nv.nvmlDeviceGetRemappedRows),
    "nvmlDeviceGetRowRemapperHistogram": _on_gpu(nv.nvmlDeviceGetRowRemapperHistogram),
    "nvmlDeviceGetSramEccErrorStatus": lambda b: nv.nvmlDeviceGetSramEccErrorStatus(
        b.gpu, byref(nv.c_nvmlEccSramErrorStatus_v1_t())
    ),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": _on_gpu(nv.nvmlDeviceGetUnrepairableMemoryFlag_v1),
    "nvmlDeviceGetMigMode": _on_gpu(nv.nvmlDeviceGetMigMode),
    "nvmlDeviceGetMaxMigDeviceCount": _on_gpu(nv.nvmlDeviceGetMaxMigDeviceCount),
    "nvmlDeviceGetMigDeviceHandleByIndex": _on_gpu(nv.nvmlDeviceGetMigDeviceHandleByIndex, 0),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": _on_mig(
        nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle
    ),
    "nvmlDeviceIsMigDeviceHandle": _on_mig(nv.nvmlDeviceIsMigDeviceHandle),
    "nvmlDeviceGetGpuInstanceId": _on_mig(nv.nvmlDeviceGetGpuInstanceId),
    "nvmlDeviceGetComputeInstanceId": _on_mig(nv.nvmlDeviceGetComputeInstanceId),
    "nvmlDeviceGetAttributes_v2": _on_mig(nv.nvmlDeviceGetAttributes_v2),
    "nvmlDeviceGetGpuInstanceProfileInfo": _on_gpu(nv.nvmlDeviceGetGpuInstanceProfileInfo, 0, 1),
    "nvmlDeviceGetGpuInstanceProfileInfoV": _on_gpu(nv.nvmlDeviceGetGpuInstanceProfileInfo, 0),
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV": _on_gpu(
        nv.nvmlDeviceGetGpuInstanceProfileInfoById, 19
    ),
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": lambda b: (
        nv.nvmlDeviceGetGpuInstancePossiblePlacements(b.gpu, 19, None, byref(b.count))
    ),
    "nvmlDeviceGetGpuInstanceRemainingCapacity": _on_gpu(
        nv.nvmlDeviceGetGpuInstanceRemainingCapacity, 19
    ),
    "nvmlDeviceGetGpuInstances": lambda b: nv.nvmlDeviceGetGpuInstances(
        b.gpu, 9, b.gpu_instances, byref(b.count)
    ),
    "nvmlDeviceGetGpuInstanceById": _on_gpu(nv.nvmlDeviceGetGpuInstanceById, 1),
    "nvmlGpuInstanceGetInfo": _on_gpu_instance(nv.nvmlGpuInstanceGetInfo),
    "nvmlGpuInstanceGetComputeInstanceProfileInfo": _on_gpu_instance(
        nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, 0, 0, 1
    ),
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": _on_gpu_instance(
        nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, 0, 0
    ),
    "nvmlGpuInstanceGetComputeInstancePossiblePlacements": lambda b: (
        nv.nvmlGpuInstanceGetComputeInstancePossiblePlacements(
            b.gpu_instance, 0, None, byref(b.count)
        )
    ),
    "nvmlGpuInstanceGetComputeInstanceRemainingCapacity": _on_gpu_instance(
        nv.nvmlGpuInstanceGetComputeInstanceRemainingCapacity, 0
    ),
    "nvmlGpuInstanceGetComputeInstances": lambda b: nv.nvmlGpuInstanceGetComputeInstances(
        b.gpu_instance, 2, b.compute_instances, byref(b.count)
    ),
    "nvmlGpuInstanceGetComputeInstanceById": _on_gpu_instance(
        nv.nvmlGpuInstanceGetComputeInstanceById, 0
    ),
    "nvmlComputeInstanceGetInfo_v2": lambda b: nv.nvmlComputeInstanceGetInfo(b.compute_instance),
    "nvmlDeviceSetMigMode": _on_gpu(nv.nvmlDeviceSetMigMode, 1),
    "nvmlDeviceCreateGpuInstance": _on_gpu(nv.nvmlDeviceCreateGpuInstance, 19),
    "nvmlDeviceCreateGpuInstanceWithPlacement": lambda b: (
        nv.nvmlDeviceCreateGpuInstanceWithPlacement(b.gpu, 19, byref(b.placement))
    ),
    "nvmlGpuInstanceDestroy": _on_gpu_instance(nv.nvmlGpuInstanceDestroy),
    "nvmlGpuInstanceCreateComputeInstance": _on_gpu_instance(
        nv.nvmlGpuInstanceCreateComputeInstance, 0
    ),
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement": lambda b: (
        nv.nvmlGpuInstanceCreateComputeInstanceWithPlacement(
            b.gpu_instance, 0, byref(b.compute_placement)
        )
    ),
    "nvmlComputeInstanceDestroy": lambda b: nv.nvmlComputeInstanceDestroy(b.compute_instance),
    "nvmlDeviceGetNvLinkState": _on_gpu(nv.nvmlDeviceGetNvLinkState, 0),
    "nvmlDeviceGetNvLinkVersion": _on_gpu(nv.nvmlDeviceGetNvLinkVersion, 0),
    "nvmlDeviceGetNvLinkCapability": _on_gpu(nv.nvmlDeviceGetNvLinkCapability, 0, 0),
    "nvmlDeviceGetNvLinkRemoteDeviceType": _on_gpu(nv.nvmlDeviceGetNvLinkRemoteDeviceType, 0),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": _on_gpu(nv.nvmlDeviceGetNvLinkRemotePciInfo, 0),
    "nvmlDeviceGetNvLinkErrorCounter": _on_gpu(nv.nvmlDeviceGetNvLinkErrorCounter, 0, 0),
    "nvmlDeviceGetGpuFabricInfo": lambda b: nv.nvmlDeviceGetGpuFabricInfo(b.gpu, byref(b.fabric)),
    "nvmlDeviceGetGpuFabricInfoV": lambda b: nv.nvmlDeviceGetGpuFabricInfoV(
        b.gpu, byref(b.fabric_v)
    ),
    "nvmlDeviceGetP2PStatus": _on_pair(nv.nvmlDeviceGetP2PStatus, 2),
    "nvmlDeviceOnSameBoard": _on_pair(nv.nvmlDeviceOnSameBoard),
    "nvmlDeviceGetTopologyCommonAncestor": _on_pair(nv.nvmlDeviceGetTopologyCommonAncestor),
    "nvmlDeviceGetTopologyNearestGpus": _on_gpu(nv.nvmlDeviceGetTopologyNearestGpus, 30),
    "nvmlDeviceGetCpuAffinity": _on_gpu(nv.nvmlDeviceGetCpuAffinity, 2),
    "nvmlDeviceGetCpuAffinityWithinScope": _on_gpu(nv.nvmlDeviceGetCpuAffinityWithinScope, 2, 0),
    "nvmlDeviceGetMemoryAffinity": _on_gpu(nv.nvmlDeviceGetMemoryAffinity, 1, 0),
    "nvmlDeviceGetNumaNodeId": _on_gpu(nv.nvmlDeviceGetNumaNodeId),
    "nvmlDeviceGetClockInfo": _on_gpu(nv.nvmlDeviceGetClockInfo, 1),
    "nvmlDeviceGetMaxClockInfo": _on_gpu(nv.nvmlDeviceGetMaxClockInfo, 1),
    "nvmlDeviceGetApplicationsClock": _on_gpu(nv.nvmlDeviceGetApplicationsClock, 0),
    "nvmlDeviceGetTemperature": _on_gpu(nv.nvmlDeviceGetTemperature, 0),
    "nvmlDeviceGetTemperatureV": _on_gpu(nv.nvmlDeviceGetTemperatureV, 0),
    "nvmlDeviceGetTemperatureThreshold": _on_gpu(nv.nvmlDeviceGetTemperatureThreshold, 0),
    "nvmlDeviceGetPowerUsage": _on_gpu(nv.nvmlDeviceGetPowerUsage),
    "nvmlDeviceGetEnforcedPowerLimit": _on_gpu(nv.nvmlDeviceGetEnforcedPowerLimit),
    "nvmlDeviceGetPowerManagementMode": _on_gpu(nv.nvmlDeviceGetPowerManagementMode),
    "nvmlDeviceGetPowerManagementLimit": _on_gpu(nv.nvmlDeviceGetPowerManagementLimit),
    "nvmlDeviceGetPowerManagementDefaultLimit": _on_gpu(
        nv.nvmlDeviceGetPowerManagementDefaultLimit
    ),
    "nvmlDeviceGetPowerManagementLimitConstraints": _on_gpu(
        nv.nvmlDeviceGetPowerManagementLimitConstraints
    ),
    "nvmlDeviceGetTotalEnergyConsumption": _on_gpu(nv.nvmlDeviceGetTotalEnergyConsumption),
    "nvmlDeviceGetUtilizationRates": _on_gpu(nv.nvmlDeviceGetUtilizationRates),
    "nvmlDeviceGetEncoderUtilization": _on_gpu(nv.nvmlDeviceGetEncoderUtilization),
    "nvmlDeviceGetDecoderUtilization": _on_gpu(nv.nvmlDeviceGetDecoderUtilization),
    "nvmlDeviceGetJpgUtilization": _on_gpu(nv.nvmlDeviceGetJpgUtilization),
    "nvmlDeviceGetOfaUtilization": _on_gpu(nv.nvmlDeviceGetOfaUtilization),
    "nvmlDeviceGetPcieReplayCounter": _on_gpu(nv.nvmlDeviceGetPcieReplayCounter),
    "nvmlDeviceGetPcieThroughput": _on_gpu(nv.nvmlDeviceGetPcieThroughput, 0),
    "nvmlDeviceGetCurrPcieLinkGeneration": _on_gpu(nv.nvmlDeviceGetCurrPcieLinkGeneration),
    "nvmlDeviceGetMaxPcieLinkGeneration": _on_gpu(nv.nvmlDeviceGetMaxPcieLinkGeneration),
    "nvmlDeviceGetCurrPcieLinkWidth": _on_gpu(nv.nvmlDeviceGetCurrPcieLinkWidth),
    "nvmlDeviceGetMaxPcieLinkWidth": _on_gpu(nv.nvmlDeviceGetMaxPcieLinkWidth),
    "nvmlDeviceGetPerformanceState": _on_gpu(nv.nvmlDeviceGetPerformanceState),
    "nvmlDeviceGetPowerState": _on_gpu(nv.nvmlDeviceGetPowerState),
    "nvmlDeviceGetCurrentClocksEventReasons": _on_gpu(nv.nvmlDeviceGetCurrentClocksEventReasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _on_gpu(
        nv.nvmlDeviceGetCurrentClocksThrottleReasons
    ),
    "nvmlDeviceGetSupportedClocksEventReasons": _on_gpu(
        nv.nvmlDeviceGetSupportedClocksEventReasons
    ),
    "nvmlDeviceGetViolationStatus": _on_gpu(nv.nvmlDeviceGetViolationStatus, 0),
    "nvmlDeviceGetFieldValues": _on_gpu(nv.nvmlDeviceGetFieldValues, [91, (138, 0)]),
    "nvmlDeviceGetComputeRunningProcesses_v3": _on_gpu(nv.nvmlDeviceGetComputeRunningProcesses_v3),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _on_gpu(
        nv.nvmlDeviceGetGraphicsRunningProcesses_v3
    ),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _on_gpu(
        nv.nvmlDeviceGetMPSComputeRunningProcesses_v3
    ),
    "nvmlDeviceGetProcessUtilization": lambda b: nv.nvmlDeviceGetProcessUtilization(b.other, 0),
    "nvmlDeviceGetMarginTemperature": _on_gpu(nv.nvmlDeviceGetMarginTemperature),
    "nvmlDeviceGetFanSpeed": _on_gpu(nv.nvmlDeviceGetFanSpeed),
    "nvmlGpmQueryDeviceSupport": _on_gpu(nv.nvmlGpmQueryDeviceSupport),
    "nvmlGpmSampleAlloc": lambda _: nv.nvmlGpmSampleAlloc(),
    "nvmlGpmSampleFree": lambda b: nv.nvmlGpmSampleFree(b.samples[0]),
    "nvmlGpmSampleGet": lambda b: nv.nvmlGpmSampleGet(b.gpu, b.samples[0]),
    "nvmlGpmMigSampleGet": lambda b: nv.nvmlGpmMigSampleGet(b.gpu, 1, b.samples[0]),
    "nvmlGpmMetricsGet": lambda b: nv.nvmlGpmMetricsGet(b.question()),
    "nvmlDeviceGetSupportedEventTypes": _on_gpu(nv.nvmlDeviceGetSupportedEventTypes),
    "nvmlEventSetCreate": lambda _: nv.nvmlEventSetCreate(),
    "nvmlDeviceRegisterEvents": lambda b: nv.nvmlDeviceRegisterEvents(b.gpu, 8, b.events),
    "nvmlEventSetWait_v2": lambda b: nv.nvmlEventSetWait_v2(b.events, 0),
    "nvmlEventSetFree": lambda b: nv.nvmlEventSetFree(b.events),
    "gpuscapeContextCreate": lambda b: nv._nvmlCheckReturn(
        nv._nvmlGetFunctionPointer("gpuscapeContextCreate")(b.mig)
    ),
}
"""C name to a call of pynvml's function for it."""

REFUSED = {
    "nvmlGetExcludedDeviceInfoByIndex": nv.NVML_ERROR_INVALID_ARGUMENT,  # there is none
    "nvmlDeviceGetBoardPartNumber": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetAutoBoostedClocksEnabled": nv.NVML_ERROR_NOT_SUPPORTED,  # since Pascal
    "nvmlDeviceGetPlatformInfo": nv.NVML_ERROR_NOT_SUPPORTED,  # before Blackwell
    "nvmlSystemGetConfComputeState": nv.NVML_ERROR_NOT_SUPPORTED,  # before Hopper
    "nvmlDeviceGetRetiredPages": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetRetiredPages_v2": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetRetiredPagesPendingStatus": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetGpuFabricInfo": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetGpuFabricInfoV": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetNumaNodeId": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetUtilizationRates": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetEncoderUtilization": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetDecoderUtilization": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetJpgUtilization": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetOfaUtilization": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetPcieThroughput": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlGpuInstanceDestroy": nv.NVML_ERROR_IN_USE,  # it has a compute instance
    "nvmlGpuInstanceCreateComputeInstance": nv.NVML_ERROR_INSUFFICIENT_RESOURCES,
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement": nv.NVML_ERROR_INSUFFICIENT_RESOURCES,
    "nvmlEventSetWait_v2": nv.NVML_ERROR_TIMEOUT,
    "nvmlDeviceGetMarginTemperature": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetFanSpeed": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetNvLinkRemoteDeviceType": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlGpmSampleGet": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlGpmMigSampleGet": nv.NVML_ERROR_NOT_SUPPORTED,
    "nvmlGpmMetricsGet": nv.NVML_ERROR_INVALID_ARGUMENT,
}
"""What this machine does not have or do, with the code that says so."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    three = MigInstanceSpec(profile="3g.20gb", start=0, id=1)
    split = machines.gpu(1, mig=True, instances=(three,))
    simulation = machines.simulation(tmp_path_factory.mktemp("machine"), machines.gpu(0), split)
    simulation.add_process(machines.gpu(0).bus_id, 71, percent=50)
    with machines.session(simulation):
        yield Bench(simulation)


@pytest.mark.parametrize("entry", sorted(CALLS))
def test_pynvml_reaches_the_entry_point_and_gets_its_code(bench: Bench, entry: str) -> None:
    """One call of pynvml's function is a call of this entry point, and never a crash in it."""
    before = bench.simulation.state
    bench.simulation.log_calls()

    code = machines.code_of(lambda: CALLS[entry](bench))

    assert {name for name, _ in bench.simulation.calls()} == {entry}
    assert code == REFUSED.get(entry, nv.NVML_SUCCESS)
    bench.simulation.edit(
        lambda state: replace(state, gpus=before.gpus, processes=before.processes)
    )
    if entry in ("nvmlShutdown", "nvmlEventSetFree"):
        nv.nvmlInit()
        bench.events = nv.nvmlEventSetCreate()
    if entry == "nvmlGpmSampleFree":
        bench.samples[0] = nv.nvmlGpmSampleAlloc()


def test_every_row_of_the_table_is_called_here() -> None:
    """A new row is tried too, or is listed as one that pynvml has no function for."""
    assert set(CALLS) | UNSEEN_BY_PYNVML == set(TABLE)


@pytest.mark.parametrize("code", CODES)
def test_every_code_can_be_injected_on_every_entry_point(bench: Bench, code: int) -> None:
    """Whatever the code, pynvml raises the error of that code from every function."""
    bench.simulation.fault(Return(code=code))

    codes = {entry: machines.code_of(partial(call, bench)) for entry, call in CALLS.items()}

    bench.simulation.clear()
    assert codes == dict.fromkeys(CALLS, code)
