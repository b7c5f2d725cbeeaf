# SPDX-License-Identifier: Apache-2.0
"""Every NVML entry point that gpuscape knows, with the kinds of its arguments.

From this one table come decoding, results, the call log, fault matching, recordings
and replay. It holds what pynvml calls for discovery, samples, MIG and events; an
entry point that is not here is FUNCTION_NOT_FOUND, as with an older driver.
Source: the ctypes calls in nvidia-ml-py 13.615.71, which follow NVIDIA's nvml.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import pynvml

from discovery.nvml_abi import mig_profile_structs
from discovery.nvml_abi.argument_kinds import (
    SUCCESS,
    ArgumentKind,
    In,
    InOut,
    InOutList,
    InStruct,
    InText,
    Out,
    OutList,
    OutText,
    OutWords,
)
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.gpm_metrics_argument import GpmQuestion
from discovery.nvml_abi.mig_profile_structs import (
    ComputeInstanceProfileInfoV3,
    GpuInstanceProfileInfoV3,
)
from discovery.nvml_abi.platform_info import PlatformInfoV2


def _device(name: str, *kinds: ArgumentKind) -> EntryPoint:
    return EntryPoint("nvmlDevice" + name, (In("device", pynvml.c_nvmlDevice_t), *kinds))


def _gpu_instance(name: str, *kinds: ArgumentKind) -> EntryPoint:
    return EntryPoint(
        "nvmlGpuInstance" + name, (In("gpuInstance", pynvml.c_nvmlGpuInstance_t), *kinds)
    )


def number_of_a_gpu(name: str) -> EntryPoint:
    """An entry point of the commonest form: it takes a device and gives an unsigned int."""
    return EntryPoint(name, (In("device", pynvml.c_nvmlDevice_t), Out("number")))


_INT = ctypes.c_int
_ULONG = ctypes.c_ulonglong
_LINK = In("link")
_OTHER = In("other", pynvml.c_nvmlDevice_t)
_DEVICE_OUT = Out("device", pynvml.c_nvmlDevice_t)
_GPU_INSTANCE_OUT = Out("gpuInstance", pynvml.c_nvmlGpuInstance_t)
_COMPUTE_INSTANCE_OUT = Out("computeInstance", pynvml.c_nvmlComputeInstance_t)
_EVENT_SET = In("eventSet", pynvml.c_nvmlEventSet_t)
_SAMPLE = In("sample", pynvml.c_nvmlGpmSample_t)
_PROCESSES = OutList("processes", (pynvml.c_nvmlProcessInfo_v3_t,))
_ECC_QUESTION = (In("errorType"), In("counterType"))

_GPU_PROFILE = Out("info", pynvml.c_nvmlGpuInstanceProfileInfo_t)
_GPU_PROFILE_V = InOut(
    "info",
    {
        pynvml.nvmlGpuInstanceProfileInfo_v2: pynvml.c_nvmlGpuInstanceProfileInfo_v2_t,
        mig_profile_structs.version(GpuInstanceProfileInfoV3): GpuInstanceProfileInfoV3,
    },
)
_COMPUTE_PROFILE = Out("info", pynvml.c_nvmlComputeInstanceProfileInfo_t)
_COMPUTE_PROFILE_V = InOut(
    "info",
    {
        pynvml.nvmlComputeInstanceProfileInfo_v2: pynvml.c_nvmlComputeInstanceProfileInfo_v2_t,
        mig_profile_structs.version(ComputeInstanceProfileInfoV3): ComputeInstanceProfileInfoV3,
    },
)
_FABRIC_V = InOut(
    "fabric",
    {
        pynvml.nvmlGpuFabricInfo_v2: pynvml.c_nvmlGpuFabricInfo_v2_t,
        pynvml.nvmlGpuFabricInfo_v3: pynvml.c_nvmlGpuFabricInfo_v3_t,
    },
    identity=("clusterUuid",),
)


def _placements(ctype: object) -> OutList:
    return OutList("placements", (ctype,), array_first=True, counted=False, size_code=SUCCESS)


def _instances(ctype: object) -> OutList:
    return OutList("instances", (ctype,), array_first=True, counted=False)


_SYSTEM = (
    EntryPoint("nvmlInit_v2"),
    EntryPoint("nvmlInitWithFlags", (In("flags"),)),
    EntryPoint("nvmlShutdown"),
    EntryPoint("nvmlErrorString", (In("result"),), text=True),
    EntryPoint("nvmlSystemGetDriverVersion", (OutText("version"),)),
    EntryPoint("nvmlSystemGetNVMLVersion", (OutText("version"),)),
    EntryPoint("nvmlSystemGetCudaDriverVersion", (Out("version", _INT),)),
    EntryPoint("nvmlSystemGetCudaDriverVersion_v2", (Out("version", _INT),)),
    EntryPoint(
        "nvmlSystemGetConfComputeState", (Out("state", pynvml.c_nvmlConfComputeSystemState_t),)
    ),
    EntryPoint("nvmlSystemGetProcessName", (In("pid"), OutText("name", identity=True))),
    EntryPoint("nvmlDeviceGetCount_v2", (Out("count"),)),
    EntryPoint("nvmlGetExcludedDeviceCount", (Out("count"),)),
    EntryPoint(
        "nvmlGetExcludedDeviceInfoByIndex",
        (In("index"), Out("info", pynvml.c_nvmlExcludedDeviceInfo_t, identity=("uuid",))),
    ),
    EntryPoint("nvmlDeviceGetHandleByIndex_v2", (In("index"), _DEVICE_OUT)),
    EntryPoint("nvmlDeviceGetHandleByUUID", (InText("uuid", identity=True), _DEVICE_OUT)),
    EntryPoint("nvmlDeviceGetHandleByPciBusId_v2", (InText("busId"), _DEVICE_OUT)),
    EntryPoint("nvmlDeviceGetHandleBySerial", (InText("serial", identity=True), _DEVICE_OUT)),
)

_IDENTITY = (
    _device("GetName", OutText("name")),
    _device("GetUUID", OutText("uuid", identity=True)),
    _device("GetSerial", OutText("serial", identity=True)),
    _device("GetIndex", Out("index")),
    _device("GetMinorNumber", Out("minor")),
    _device("GetBoardId", Out("board", identity=True)),
    _device("GetBoardPartNumber", OutText("partNumber")),
    _device("GetPciInfo_v3", Out("pci", pynvml.nvmlPciInfo_t)),
    _device("GetBrand", Out("brand")),
    _device("GetArchitecture", Out("architecture")),
    _device("GetCudaComputeCapability", Out("major", _INT), Out("minor", _INT)),
    _device("GetVbiosVersion", OutText("version")),
    _device("GetInforomImageVersion", OutText("version")),
    _device("GetInforomVersion", In("object"), OutText("version")),
    _device("GetPersistenceMode", Out("mode")),
    _device("GetInforomConfigurationChecksum", Out("checksum")),
    _device("GetPlatformInfo", InOut("info", {pynvml.nvmlPlatformInfo_v2: PlatformInfoV2})),
    _device("GetComputeMode", Out("mode")),
    _device("GetAutoBoostedClocksEnabled", Out("enabled"), Out("default")),
    _device("GetVirtualizationMode", Out("mode")),
    _device(
        "GetGridLicensableFeatures_v4", Out("features", pynvml.c_nvmlGridLicensableFeatures_v4_t)
    ),
)

_MEMORY = (
    _device("GetMemoryInfo", Out("memory", pynvml.c_nvmlMemory_t)),
    _device("GetMemoryInfo_v2", InOut("memory", {pynvml.nvmlMemory_v2: pynvml.c_nvmlMemory_v2_t})),
    _device("GetBAR1MemoryInfo", Out("memory", pynvml.c_nvmlBAR1Memory_t)),
    _device("GetMemoryBusWidth", Out("bits")),
    _device("GetEccMode", Out("current"), Out("pending")),
    _device("GetDefaultEccMode", Out("mode")),
    _device("GetTotalEccErrors", *_ECC_QUESTION, Out("count", _ULONG)),
    _device("GetDetailedEccErrors", *_ECC_QUESTION, Out("counts", pynvml.c_nvmlEccErrorCounts_t)),
    _device("GetMemoryErrorCounter", *_ECC_QUESTION, In("location"), Out("count", _ULONG)),
    _device("GetRetiredPages", In("cause"), OutList("addresses", (_ULONG,))),
    _device("GetRetiredPages_v2", In("cause"), OutList("pages", (_ULONG, _ULONG))),
    _device("GetRetiredPagesPendingStatus", Out("pending")),
    _device(
        "GetRemappedRows", *(Out(n) for n in ("correctable", "uncorrectable", "pending", "failed"))
    ),
    _device(
        "GetSramEccErrorStatus",
        InOut(
            "status",
            {pynvml.nvmlEccSramErrorStatus_v1: pynvml.c_nvmlEccSramErrorStatus_v1_t},
        ),
    ),
    _device(
        "GetUnrepairableMemoryFlag_v1",
        InOut(
            "status",
            {pynvml.nvmlUnrepairableMemory_v1: pynvml.c_nvmlUnrepairableMemory_v1_t},
        ),
    ),
    _device("GetRowRemapperHistogram", Out("banks", pynvml.c_nvmlRowRemapperHistogramValues)),
)

_MIG_READS = (
    _device("GetMigMode", Out("current"), Out("pending")),
    _device("GetMaxMigDeviceCount", Out("count")),
    _device("GetMigDeviceHandleByIndex", In("index"), _DEVICE_OUT),
    _device("GetDeviceHandleFromMigDeviceHandle", Out("parent", pynvml.c_nvmlDevice_t)),
    _device("IsMigDeviceHandle", Out("isMig")),
    _device("GetGpuInstanceId", Out("id")),
    _device("GetComputeInstanceId", Out("id")),
    _device("GetAttributes_v2", Out("attributes", pynvml.c_nvmlDeviceAttributes)),
    _device("GetGpuInstanceProfileInfo", In("profile"), _GPU_PROFILE),
    _device("GetGpuInstanceProfileInfoV", In("profile"), _GPU_PROFILE_V),
    _device("GetGpuInstanceProfileInfoByIdV", In("profileId"), _GPU_PROFILE_V),
    _device(
        "GetGpuInstancePossiblePlacements_v2",
        In("profileId"),
        _placements(pynvml.c_nvmlGpuInstancePlacement_t),
    ),
    _device("GetGpuInstanceRemainingCapacity", In("profileId"), Out("count")),
    _device("GetGpuInstances", In("profileId"), _instances(pynvml.c_nvmlGpuInstance_t)),
    _device("GetGpuInstanceById", In("id"), _GPU_INSTANCE_OUT),
    _gpu_instance("GetInfo", Out("info", pynvml.c_nvmlGpuInstanceInfo_t)),
    _gpu_instance("GetComputeInstanceProfileInfo", In("profile"), In("engines"), _COMPUTE_PROFILE),
    _gpu_instance(
        "GetComputeInstanceProfileInfoV", In("profile"), In("engines"), _COMPUTE_PROFILE_V
    ),
    _gpu_instance(
        "GetComputeInstancePossiblePlacements",
        In("profileId"),
        _placements(pynvml.c_nvmlComputeInstancePlacement_t),
    ),
    _gpu_instance("GetComputeInstanceRemainingCapacity", In("profileId"), Out("count")),
    _gpu_instance(
        "GetComputeInstances", In("profileId"), _instances(pynvml.c_nvmlComputeInstance_t)
    ),
    _gpu_instance("GetComputeInstanceById", In("id"), _COMPUTE_INSTANCE_OUT),
    EntryPoint(
        "nvmlComputeInstanceGetInfo_v2",
        (
            In("computeInstance", pynvml.c_nvmlComputeInstance_t),
            Out("info", pynvml.c_nvmlComputeInstanceInfo_t),
        ),
    ),
)

_MIG_WRITES = (
    _device("SetMigMode", In("mode"), Out("activation")),
    _device("CreateGpuInstance", In("profileId"), _GPU_INSTANCE_OUT),
    _device(
        "CreateGpuInstanceWithPlacement",
        In("profileId"),
        InStruct("placement", pynvml.c_nvmlGpuInstancePlacement_t),
        _GPU_INSTANCE_OUT,
    ),
    _gpu_instance("Destroy"),
    _gpu_instance("CreateComputeInstance", In("profileId"), _COMPUTE_INSTANCE_OUT),
    _gpu_instance(
        "CreateComputeInstanceWithPlacement",
        In("profileId"),
        InStruct("placement", pynvml.c_nvmlComputeInstancePlacement_t),
        _COMPUTE_INSTANCE_OUT,
    ),
    EntryPoint(
        "nvmlComputeInstanceDestroy", (In("computeInstance", pynvml.c_nvmlComputeInstance_t),)
    ),
)

_OUR_OWN = (EntryPoint("gpuscapeContextCreate", (In("device", pynvml.c_nvmlDevice_t),)),)
"""Entry points that NVML does not have: a program holds a GPU or MIG device, as CUDA would."""

_LINKS = (
    _device("GetNvLinkState", _LINK, Out("active")),
    _device("GetNvLinkVersion", _LINK, Out("version")),
    _device("GetNvLinkCapability", _LINK, In("capability"), Out("has")),
    _device("GetNvLinkRemoteDeviceType", _LINK, Out("type")),
    _device("GetNvLinkRemotePciInfo_v2", _LINK, Out("pci", pynvml.nvmlPciInfo_t)),
    _device("GetNvLinkErrorCounter", _LINK, In("counter"), Out("count", _ULONG)),
    _device(
        "GetGpuFabricInfo", Out("fabric", pynvml.c_nvmlGpuFabricInfo_t, identity=("clusterUuid",))
    ),
    _device("GetGpuFabricInfoV", _FABRIC_V),
    _device("GetP2PStatus", _OTHER, In("index"), Out("status")),
    _device("OnSameBoard", _OTHER, Out("same", _INT)),
    _device("GetTopologyCommonAncestor", _OTHER, Out("level")),
    _device(
        "GetTopologyNearestGpus",
        In("level"),
        OutList("devices", (pynvml.c_nvmlDevice_t,), size_code=SUCCESS),
    ),
    _device("GetCpuAffinity", OutWords("cpus")),
    _device("GetCpuAffinityWithinScope", OutWords("cpus"), In("scope")),
    _device("GetMemoryAffinity", OutWords("nodes"), In("scope")),
    _device("GetNumaNodeId", Out("node", _INT)),
)

_READINGS = (
    _device("GetClockInfo", In("clock"), Out("megahertz")),
    _device("GetMaxClockInfo", In("clock"), Out("megahertz")),
    _device("GetApplicationsClock", In("clock"), Out("megahertz")),
    _device("GetTemperature", In("sensor"), Out("celsius")),
    _device(
        "GetTemperatureV",
        InOut(
            "temperature",
            {pynvml.nvmlTemperature_v1: pynvml.c_nvmlTemperature_v1_t},
            ("sensorType",),
        ),
    ),
    _device("GetTemperatureThreshold", In("threshold"), Out("celsius")),
    _device(
        "GetMarginTemperature",
        InOut("margin", {pynvml.nvmlMarginTemperature_v1: pynvml.c_nvmlMarginTemperature_v1_t}),
    ),
    _device("GetFanSpeed", Out("percent")),
    _device("GetPowerUsage", Out("milliwatts")),
    _device("GetEnforcedPowerLimit", Out("milliwatts")),
    _device("GetPowerManagementMode", Out("mode")),
    _device("GetPowerManagementLimit", Out("milliwatts")),
    _device("GetPowerManagementDefaultLimit", Out("milliwatts")),
    _device("GetPowerManagementLimitConstraints", Out("lowest"), Out("highest")),
    _device("GetTotalEnergyConsumption", Out("millijoules", _ULONG)),
    _device("GetUtilizationRates", Out("rates", pynvml.c_nvmlUtilization_t)),
    _device("GetEncoderUtilization", Out("percent"), Out("period")),
    _device("GetDecoderUtilization", Out("percent"), Out("period")),
    _device("GetJpgUtilization", Out("percent"), Out("period")),
    _device("GetOfaUtilization", Out("percent"), Out("period")),
    _device("GetPcieReplayCounter", Out("count")),
    _device("GetPcieThroughput", In("counter"), Out("kilobytesPerSecond")),
    _device("GetCurrPcieLinkGeneration", Out("generation")),
    _device("GetMaxPcieLinkGeneration", Out("generation")),
    _device("GetCurrPcieLinkWidth", Out("width")),
    _device("GetMaxPcieLinkWidth", Out("width")),
    _device("GetPerformanceState", Out("state")),
    _device("GetPowerState", Out("state")),
    _device("GetCurrentClocksEventReasons", Out("reasons", _ULONG)),
    _device("GetCurrentClocksThrottleReasons", Out("reasons", _ULONG)),
    _device("GetSupportedClocksEventReasons", Out("reasons", _ULONG)),
    _device("GetViolationStatus", In("policy"), Out("time", pynvml.c_nvmlViolationTime_t)),
    _device(
        "GetFieldValues", InOutList("values", pynvml.c_nvmlFieldValue_t, ("fieldId", "scopeId"))
    ),
    _device("GetComputeRunningProcesses_v3", _PROCESSES),
    _device("GetGraphicsRunningProcesses_v3", _PROCESSES),
    _device("GetMPSComputeRunningProcesses_v3", _PROCESSES),
    _device(
        "GetProcessUtilization",
        OutList("samples", (pynvml.c_nvmlProcessUtilizationSample_t,), array_first=True),
        In("since", _ULONG),
    ),
)

_PROFILING = (
    EntryPoint(
        "nvmlGpmQueryDeviceSupport",
        (
            In("device", pynvml.c_nvmlDevice_t),
            InOut("support", {pynvml.NVML_GPM_SUPPORT_VERSION: pynvml.c_nvmlGpmSupport_t}),
        ),
    ),
    EntryPoint("nvmlGpmSampleAlloc", (Out("sample", pynvml.c_nvmlGpmSample_t),)),
    EntryPoint("nvmlGpmSampleFree", (_SAMPLE,)),
    EntryPoint("nvmlGpmSampleGet", (In("device", pynvml.c_nvmlDevice_t), _SAMPLE)),
    EntryPoint(
        "nvmlGpmMigSampleGet",
        (In("device", pynvml.c_nvmlDevice_t), In("gpuInstanceId"), _SAMPLE),
    ),
    EntryPoint("nvmlGpmMetricsGet", (GpmQuestion("metricsGet"),)),
)

_EVENTS = (
    _device("GetSupportedEventTypes", Out("types", _ULONG)),
    EntryPoint("nvmlEventSetCreate", (Out("eventSet", pynvml.c_nvmlEventSet_t),)),
    _device("RegisterEvents", In("types", _ULONG), _EVENT_SET),
    EntryPoint(
        "nvmlEventSetWait_v2",
        (_EVENT_SET, Out("event", pynvml.c_nvmlEventData_t), In("milliseconds")),
        waits=True,
    ),
    EntryPoint("nvmlEventSetFree", (_EVENT_SET,)),
)

TABLE: Mapping[str, EntryPoint] = {
    entry.name: entry
    for section in (
        _SYSTEM,
        _IDENTITY,
        _MEMORY,
        _MIG_READS,
        _MIG_WRITES,
        _OUR_OWN,
        _LINKS,
        _READINGS,
        _PROFILING,
        _EVENTS,
    )
    for entry in section
}
"""C name to entry point."""
