"""What stays the same for minutes: the driver's facts and each GPU's."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pynvml

from discovery.driver_errors import GpuLost
from discovery.model import Driver, Fabric, Gap, GpuSnapshot, GpuState, Mode, Reason, RemappedRows
from discovery.nvml.calls import CallReading, Calls, Field, Garbage, Handle, flag, text, whole
from discovery.nvml.links import read_links
from discovery.nvml.mig import read_mig_devices
from discovery.nvml_terms import Architecture, Virtualization

_ARCHITECTURES = {
    2: Architecture.KEPLER,
    3: Architecture.MAXWELL,
    4: Architecture.PASCAL,
    5: Architecture.VOLTA,
    6: Architecture.TURING,
    7: Architecture.AMPERE,
    8: Architecture.ADA_LOVELACE,
    9: Architecture.HOPPER,
    10: Architecture.BLACKWELL,
    13: Architecture.RUBIN,
}
"""NVML_DEVICE_ARCH_* of nvml.h."""

_NVIDIA = 0x10DE
"""PCI vendor id."""

_VIRTUALIZATION = tuple(Virtualization)
"""In the order of NVML_GPU_VIRTUALIZATION_MODE_*."""


def _architecture(value: Any) -> Architecture:
    return _ARCHITECTURES.get(whole(0xFFFF)(value), Architecture.OTHER)


def _capability(value: Any) -> tuple[int, int]:
    major, minor = value
    return whole(99)(major), whole(99)(minor)


def _mode(value: Any) -> Mode:
    current, pending = value
    return Mode(current=flag(current), pending=flag(pending))


def remapped_rows(value: Any) -> RemappedRows:
    """nvmlDeviceGetRemappedRows' four numbers as a value."""
    correctable, uncorrectable, pending, failed = value
    rows = whole(1 << 24)
    return RemappedRows(
        correctable=rows(correctable),
        uncorrectable=rows(uncorrectable),
        pending=flag(pending),
        failed=flag(failed),
    )


def _memory(value: Any) -> int:
    total = whole(1 << 50)(value.total)
    if total == 0:
        raise Garbage("0 bytes in total")
    return total


def _virtualization(value: Any) -> Virtualization:
    return _VIRTUALIZATION[whole(len(_VIRTUALIZATION) - 1)(value)]


def _uuid(value: Any) -> str:
    found = text(pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE)(value)
    if not found.startswith("GPU-"):
        raise Garbage(f"not a GPU's UUID: {found:.80}")
    return found


def _pci_ids(value: Any) -> tuple[int, int]:
    """Device and subsystem id; the vendor in the lower half tells nonsense apart."""
    if int(value.pciDeviceId) & 0xFFFF != _NVIDIA:
        raise Garbage(f"device id {value.pciDeviceId:#x} is not NVIDIA's")
    return int(value.pciDeviceId), int(value.pciSubSystemId)


_NAME = text(pynvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE)
_DRIVER_VERSION = text(pynvml.NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE)
_NVML_VERSION = text(pynvml.NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE)

_IDENTITY = (
    CallReading(what="uuid", call="nvmlDeviceGetUUID", convert=_uuid),
    CallReading(what="model", call="nvmlDeviceGetName", convert=_NAME),
    CallReading(what="minor", call="nvmlDeviceGetMinorNumber", convert=whole(0xFFFFF)),
    CallReading(
        what="serial",
        call="nvmlDeviceGetSerial",
        convert=text(pynvml.NVML_DEVICE_SERIAL_BUFFER_SIZE),
    ),
    CallReading(
        what="vbios_version",
        call="nvmlDeviceGetVbiosVersion",
        convert=text(pynvml.NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE),
    ),
    CallReading(what="architecture", call="nvmlDeviceGetArchitecture", convert=_architecture),
    CallReading(
        what="compute_capability",
        call="nvmlDeviceGetCudaComputeCapability",
        convert=_capability,
    ),
    CallReading(what="memory_bytes", call="nvmlDeviceGetMemoryInfo", convert=_memory),
    CallReading(what="memory_bus_bits", call="nvmlDeviceGetMemoryBusWidth", convert=whole(1 << 16)),
)

_MODES = (
    CallReading(what="ecc", call="nvmlDeviceGetEccMode", convert=_mode),
    CallReading(what="persistence", call="nvmlDeviceGetPersistenceMode", convert=flag),
    CallReading(
        what="virtualization", call="nvmlDeviceGetVirtualizationMode", convert=_virtualization
    ),
    CallReading(what="remapped_rows", call="nvmlDeviceGetRemappedRows", convert=remapped_rows),
    CallReading(
        what="retired_pages_pending",
        call="nvmlDeviceGetRetiredPagesPendingStatus",
        convert=flag,
    ),
    CallReading(what="own_numa_node", call="nvmlDeviceGetNumaNodeId", convert=whole(1 << 16)),
    CallReading(what="mig", call="nvmlDeviceGetMigMode", convert=_mode),
)

_FIELDS = (
    Field(
        what="recovery_action",
        field=pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        convert=whole(255),
    ),
)


def read_driver() -> Driver:
    """The driver's versions. Raises DriverAbsent or DriverMismatch when the session is gone."""
    calls = Calls()
    return Driver(
        version=calls.ask("version", "nvmlSystemGetDriverVersion", convert=_DRIVER_VERSION),
        nvml_version=calls.ask("nvml_version", "nvmlSystemGetNVMLVersion", convert=_NVML_VERSION),
        cuda_version=calls.ask("cuda_version", "nvmlSystemGetCudaDriverVersion_v2", convert=_cuda),
        gaps=tuple(calls.gaps),
    )


def _cuda(value: Any) -> tuple[int, int]:
    number = whole(999_999)(value)
    return number // 1000, number % 1000 // 10


def read_gpu(bus_id: str, handle: Handle, peers: Mapping[str, Handle]) -> GpuSnapshot:
    """Everything NVML says of one GPU; what it does not give is a gap.

    ``peers`` are the handles of GPUs read before it, for the PCIe ancestor levels.
    A GPU that is lost on the way keeps what was read until then. Raises
    DriverAbsent or DriverMismatch when the whole session is gone.
    """
    calls = Calls()
    facts: dict[str, Any] = {}
    try:
        facts |= calls.read(_IDENTITY, handle)
        facts |= _pci(calls, handle)
        facts |= calls.read(_MODES, handle)
        facts |= calls.fields(_FIELDS, handle)
        facts["fabric"] = _fabric(calls, handle)
        facts["links"] = read_links(calls, handle)
        facts |= read_mig_devices(calls, handle, facts.get("mig"), facts.get("memory_bytes"))
        facts["ancestors"] = _ancestors(calls, handle, peers)
    except GpuLost as error:
        calls.miss("state", Reason.LOST, "nvml", str(error))
        facts["state"] = GpuState.LOST
    return GpuSnapshot(bus_id=bus_id, gaps=tuple(calls.gaps), **facts)


def unreadable(bus_id: str, state: GpuState, reason: Reason, source: str, why: str) -> GpuSnapshot:
    """A GPU of which nothing but its place is known."""
    gap = Gap(what="state", reason=reason, source=source, detail=why)
    return GpuSnapshot(bus_id=bus_id, state=state, gaps=(gap,))


def _pci(calls: Calls, handle: Handle) -> dict[str, int]:
    ids = calls.ask("pci_device_id", "nvmlDeviceGetPciInfo_v3", handle, convert=_pci_ids)
    if ids is None:
        calls.gaps.append(replace(calls.gaps[-1], what="pci_subsystem_id"))
        return {}
    return {"pci_device_id": ids[0], "pci_subsystem_id": ids[1]}


def _ancestors(
    calls: Calls, handle: Handle, peers: Mapping[str, Handle]
) -> tuple[tuple[str, int], ...]:
    """(bus id, level 0 to 5) for each peer; NVML counts levels in tens.

    A pair with a lost GPU does not tell which of the two is lost, so that is a gap.
    """
    call = "nvmlDeviceGetTopologyCommonAncestor"
    levels = []
    for peer, other in peers.items():
        try:
            level = calls.ask("ancestors", call, handle, other, convert=_level)
        except GpuLost as error:
            calls.miss("ancestors", Reason.LOST, call, str(error))
            continue
        if level is not None:
            levels.append((peer, level))
    return tuple(levels)


def _level(value: Any) -> int:
    """NVML_TOPOLOGY_* are tens from 0 to 50."""
    level, rest = divmod(whole(50)(value), 10)
    if rest:
        raise Garbage(f"no level of topology: {value}")
    return level


def _fabric(calls: Calls, handle: Handle) -> Fabric | None:
    """Fabric registration: the versioned call first, since only it has health."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = pynvml.nvmlGpuFabricInfo_v2
    older, call = Calls(), "nvmlDeviceGetGpuFabricInfoV"
    if older.ask("fabric", call, handle, ctypes.byref(info)) is not None:
        mask = calls.part("fabric.health_mask", call, _HEALTH_MASK, info.healthMask)
        return _checked_fabric(calls, call, info, mask)
    if older.gaps[0].reason is not Reason.UNSUPPORTED:
        calls.gaps += older.gaps
        return None
    first, call = pynvml.c_nvmlGpuFabricInfo_t(), "nvmlDeviceGetGpuFabricInfo"
    if calls.ask("fabric", call, handle, ctypes.byref(first)) is None:
        return None
    return _checked_fabric(calls, call, first, None)


_HEALTH_MASK = whole((1 << 16) - 1)
"""NVML_GPU_FABRIC_HEALTH_MASK_*: pairs of bits and one field of four, twelve bits so far."""


def _checked_fabric(calls: Calls, call: str, info: Any, health_mask: int | None) -> Fabric | None:
    found: Fabric | None = calls.part("fabric", call, _fabric_value, info, health_mask)
    return found


def _fabric_value(info: Any, health_mask: int | None) -> Fabric:
    """Raises Garbage: one part that cannot be makes the registration unknown."""
    cluster = bytes(info.clusterUuid)
    if set(cluster) == {0xFF}:
        raise Garbage("a cluster UUID of ones alone")
    return Fabric(
        state=whole(3)(info.state),
        status=whole(pynvml.NVML_ERROR_UNKNOWN)(info.status),
        cluster_uuid=str(uuid.UUID(bytes=cluster[:16].ljust(16, b"\0"))),
        clique_id=whole(0xFFFFFFFE)(info.cliqueId),
        health_mask=health_mask,
    )
