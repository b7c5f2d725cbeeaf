# SPDX-License-Identifier: Apache-2.0
"""Reads what stays the same for minutes: the driver's facts and each GPU's."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

import pynvml

from discovery.driver_errors import GpuLost
from discovery.gpu_fields import gpu_field, with_gpu_fields
from discovery.model import (
    Driver,
    Fabric,
    Gap,
    GpuSnapshot,
    GpuState,
    MigDevice,
    Mode,
    NvidiaFacts,
    NvLink,
    Reason,
    RemappedRows,
)
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import (
    BYTES,
    MODEL,
    Garbage,
    boolean,
    gpu_uuid,
    mode,
    pci_id,
    printable_text,
    virtualization,
    whole,
)
from discovery.nvml.links import read_links
from discovery.nvml.mig import read_mig_devices
from discovery.nvml.reading_plan import (
    OpenGpu,
    ReadingPlan,
    SharedCall,
    always_part,
    by_call,
    by_field,
    computed,
)
from discovery.nvml_terms import Architecture
from discovery.unread import unread_gpu

Read = TypeVar("Read")

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


def _architecture(value: Any) -> Architecture:
    return _ARCHITECTURES.get(whole(0xFFFF)(value), Architecture.OTHER)


def _capability(value: Any) -> tuple[int, int]:
    major, minor = value
    return whole(99)(major), whole(99)(minor)


def remapped_rows(value: Any) -> RemappedRows:
    """nvmlDeviceGetRemappedRows' four numbers as a value."""
    correctable, uncorrectable, pending, failed = value
    rows = whole(1 << 24)
    return RemappedRows(
        correctable=rows(correctable),
        uncorrectable=rows(uncorrectable),
        pending=boolean(pending),
        failed=boolean(failed),
    )


def _total_bytes(value: Any) -> int:
    total = BYTES(value.total)
    if total == 0:
        raise Garbage("0 bytes in total")
    return total


_DRIVER_VERSION = printable_text(pynvml.NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE)
_NVML_VERSION = printable_text(pynvml.NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE)


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


class _Fact(StrEnum):
    """When a fact is read; those without a word, at every discovery."""

    LASTING = "lasting"  # it stays as long as the GPU's UUID


@dataclass(slots=True, kw_only=True, eq=False)
class _DiscoveredGpu(OpenGpu):
    peers: Mapping[str, Handle]
    known: NvidiaFacts | None
    known_links: tuple[NvLink, ...]
    """Empty where a link was not read in full before."""
    memory_bytes: int | None = None
    """Once it is read, as the mode is: they say what MIG devices are called."""
    mig: Mode | None = None


def read_gpu(
    bus_id: str, handle: Handle, peers: Mapping[str, Handle], known: GpuSnapshot | None = None
) -> GpuSnapshot:
    """Everything that NVML reports of one GPU; what it does not give is a gap.

    ``peers`` are the handles of GPUs read before it, for the PCIe ancestor levels. ``known`` is
    the GPU as it was read whole in this session: what lasts as long as its UUID is taken from
    there (:class:`discovery.nvml.history.LastingFacts`). A GPU that is lost on the way keeps what
    was read until then. Raises DriverAbsent or DriverMismatch when the whole session is gone.
    """
    calls = Calls()
    facts = None if known is None else known.nvidia
    gpu = _DiscoveredGpu(
        bus_id=bus_id,
        handle=handle,
        calls=calls,
        peers=peers,
        known=facts,
        known_links=() if known is None or facts is None or known.gap("links") else facts.links,
    )
    read, lost = _GPU.read(gpu, () if known else (_Fact.LASTING,))
    if known is not None and read.uuid == known.uuid:
        read = with_gpu_fields(read, {name: gpu_field(known, name) for name in LASTING})
        calls.gaps[:0] = (gap for gap in known.gaps if gap.what in LASTING)
    elif known is not None and lost is None:  # another GPU is there now: nothing known lasts
        return read_gpu(bus_id, handle, peers)
    state = GpuState.PRESENT if lost is None else GpuState.LOST
    return replace(read, bus_id=bus_id, state=state, gaps=tuple(calls.gaps))


def unreadable(bus_id: str, state: GpuState, reason: Reason, source: str, why: str) -> GpuSnapshot:
    """A GPU of which nothing but its place is known, and the gap that says why."""
    return unread_gpu(bus_id, state, Gap(what="state", reason=reason, source=source, detail=why))


def _memory_bytes(gpu: _DiscoveredGpu, name: str) -> int | None:
    call = "nvmlDeviceGetMemoryInfo"
    gpu.memory_bytes = gpu.calls.ask(name, call, gpu.handle, convert=_total_bytes)
    return gpu.memory_bytes


def _mig_mode(gpu: _DiscoveredGpu, name: str) -> Mode | None:
    gpu.mig = gpu.calls.ask(name, "nvmlDeviceGetMigMode", gpu.handle, convert=mode)
    return gpu.mig


def _most_mig_devices(gpu: _DiscoveredGpu, name: str) -> int | None:
    if gpu.mig is None:
        return None
    # the number depends on the mode alone. Source: nvml.h, nvmlDeviceGetMaxMigDeviceCount
    if gpu.known is not None and gpu.known.max_mig_devices and gpu.known.mig == gpu.mig:
        return gpu.known.max_mig_devices
    return gpu.calls.ask(name, "nvmlDeviceGetMaxMigDeviceCount", gpu.handle, convert=whole(255))


def _mig_devices(gpu: _DiscoveredGpu, _what: str) -> tuple[MigDevice, ...]:
    if gpu.mig is None or not gpu.mig.current:
        return ()
    return read_mig_devices(gpu.calls, gpu.handle, gpu.memory_bytes)


def _links(gpu: _DiscoveredGpu, _what: str) -> tuple[NvLink, ...]:
    return read_links(gpu.calls, gpu.handle, gpu.known_links)


def _ancestors(gpu: _DiscoveredGpu, name: str) -> tuple[tuple[str, int], ...]:
    """(bus id, level 0 to 5) for each peer; NVML counts levels in tens.

    A pair with a lost GPU does not show which of the two is lost, so that is a gap.
    """
    call = "nvmlDeviceGetTopologyCommonAncestor"
    known = dict(gpu.known.ancestors) if gpu.known else {}
    levels = []
    for peer, other in gpu.peers.items():
        try:
            level = known.get(peer)
            if level is None:
                level = gpu.calls.ask(name, call, gpu.handle, other, convert=_level)
        except GpuLost as error:
            gpu.calls.miss(name, Reason.LOST, call, str(error))
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


def _fabric(gpu: _DiscoveredGpu, reading: str) -> Fabric | None:
    """Fabric registration: the newest version of the call that the driver knows has most health."""
    calls, handle = gpu.calls, gpu.handle
    for version, make in _FABRIC_VERSIONS:
        info, tried, call = make(), Calls(), "nvmlDeviceGetGpuFabricInfoV"
        info.version = version
        if tried.ask(reading, call, handle, ctypes.byref(info)) is not None:
            mask = calls.part(f"{reading}.health_mask", call, _HEALTH_MASK, info.healthMask)
            summary = getattr(info, "healthSummary", None)
            if summary is not None:
                name = f"{reading}.health_summary"
                summary = calls.part(name, call, _HEALTH_SUMMARY, summary)
            return calls.part(reading, call, _fabric_value, info, mask, summary)
        if tried.gaps[0].reason is not Reason.UNSUPPORTED:
            calls.gaps += tried.gaps
            return None
    first, call = pynvml.c_nvmlGpuFabricInfo_t(), "nvmlDeviceGetGpuFabricInfo"
    if calls.ask(reading, call, handle, ctypes.byref(first)) is None:
        return None
    return calls.part(reading, call, _fabric_value, first, None, None)


_FABRIC_VERSIONS = (
    (pynvml.nvmlGpuFabricInfo_v3, pynvml.c_nvmlGpuFabricInfo_v3_t),
    (pynvml.nvmlGpuFabricInfo_v2, pynvml.c_nvmlGpuFabricInfo_v2_t),
)


_HEALTH_MASK = whole((1 << 16) - 1)
"""NVML_GPU_FABRIC_HEALTH_MASK_*: pairs of bits and one field of four, twelve bits so far."""

_HEALTH_SUMMARY = whole(255)
"""NVML_GPU_FABRIC_HEALTH_SUMMARY_*."""


def _fabric_value(info: Any, health_mask: int | None, health_summary: int | None) -> Fabric:
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
        health_summary=health_summary,
    )


def _by(read: Callable[[_DiscoveredGpu, str], Read]) -> Read:
    return computed(read)


def _lasting(call: str, convert: Callable[[Any], Read]) -> Read | None:
    return by_call(call, convert=convert, groups=(_Fact.LASTING,))


_PCI_INFO = SharedCall("nvmlDeviceGetPciInfo_v3")

# What lasts is read first: so its gaps have their place when it is not read
_UUID = by_call("nvmlDeviceGetUUID", convert=gpu_uuid)
_MODEL = _lasting("nvmlDeviceGetName", MODEL)
_MINOR = _lasting("nvmlDeviceGetMinorNumber", whole(0xFFFFF))
_SERIAL = _lasting("nvmlDeviceGetSerial", printable_text(pynvml.NVML_DEVICE_SERIAL_BUFFER_SIZE))
_VBIOS_VERSION = _lasting(
    "nvmlDeviceGetVbiosVersion", printable_text(pynvml.NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE)
)
_ARCHITECTURE = _lasting("nvmlDeviceGetArchitecture", _architecture)
_COMPUTE_CAPABILITY = _lasting("nvmlDeviceGetCudaComputeCapability", _capability)
_MEMORY_BUS_BITS = _lasting("nvmlDeviceGetMemoryBusWidth", whole(1 << 16))
_PCI_DEVICE_ID = _PCI_INFO.part(pci_id("pciDeviceId"), groups=(_Fact.LASTING,))
_PCI_SUBSYSTEM_ID = _PCI_INFO.part(pci_id("pciSubSystemId"), groups=(_Fact.LASTING,))
_VIRTUALIZATION_MODE = _lasting("nvmlDeviceGetVirtualizationMode", virtualization)
_OWN_NUMA_NODE = _lasting("nvmlDeviceGetNumaNodeId", whole(1 << 16))

_GPU = ReadingPlan(
    GpuSnapshot(
        bus_id="",
        state=GpuState.PRESENT,
        uuid=_UUID,
        model=_MODEL,
        serial=_SERIAL,
        vbios_version=_VBIOS_VERSION,
        architecture=_ARCHITECTURE,
        memory_bus_bits=_MEMORY_BUS_BITS,
        pci_device_id=_PCI_DEVICE_ID,
        pci_subsystem_id=_PCI_SUBSYSTEM_ID,
        own_numa_node=_OWN_NUMA_NODE,
        # at every discovery
        memory_bytes=_by(_memory_bytes),
        ecc=by_call("nvmlDeviceGetEccMode", convert=mode),
        nvidia=always_part(
            NvidiaFacts(
                minor=_MINOR,
                compute_capability=_COMPUTE_CAPABILITY,
                virtualization=_VIRTUALIZATION_MODE,
                # at every discovery
                persistence=by_call("nvmlDeviceGetPersistenceMode", convert=boolean),
                remapped_rows=by_call("nvmlDeviceGetRemappedRows", convert=remapped_rows),
                retired_pages_pending=by_call(
                    "nvmlDeviceGetRetiredPagesPendingStatus", convert=boolean
                ),
                mig=_by(_mig_mode),
                recovery_action=by_field(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, whole(255)),
                fabric=_by(_fabric),
                links=_by(_links),
                max_mig_devices=_by(_most_mig_devices),
                mig_devices=_by(_mig_devices),
                ancestors=_by(_ancestors),
                xids=(),  # not NVML's: the agent keeps them
            )
        ),
        # not NVML's: the agent fills these from sysfs and from what it knows of before
        index=None,
        pci_class=None,
        numa_node=None,
        cpu_affinity=None,
        gaps=(),
    )
)

LASTING = _GPU.names((_Fact.LASTING,))
"""Fields of a GPU that stay as long as its UUID."""
