# SPDX-License-Identifier: Apache-2.0
"""Memory, its use, and its errors."""

from __future__ import annotations

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    answers,
    answers_on_gpu,
    gpu_facts,
    need,
    supported,
)
from simulator.driver.handles import DeviceHandle
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state import mig_geometry
from simulator.state.machine_state import Readings

MIB = 1 << 20

_CORRECTED, _UNCORRECTED = 0, 1  # NVML_MEMORY_ERROR_TYPE_*
_COUNTER_TYPES = 2  # NVML_ECC_COUNTER_TYPE_COUNT
_DEVICE_MEMORY = 2  # NVML_MEMORY_LOCATION_DEVICE_MEMORY
_DOUBLE_BIT = 1  # NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
_REMAPPER_BANKS = 640
"""Banks with spare rows on an A100; the other fields of the histogram follow from it."""


@answers("nvmlDeviceGetMemoryInfo_v2")
def memory(view: MachineView, device: DeviceHandle, version: dict[str, int]) -> dict[str, int]:
    """Frame buffer of a GPU, or of a MIG device's GPU instance; used excludes reserved."""
    del version  # there is one
    gpu = view.gpu(device)
    if device.is_mig:
        profile, instance, _ = view.mig_device(device)
        total, reserved = profile.memory_mib * MIB, 0
        mine = [p for p in gpu.processes if p.gpu_instance_id == instance.id]
    else:
        total, reserved = supported(gpu.model.memory_mib) * MIB, gpu.model.reserved_mib * MIB
        mine = list(gpu.processes)
    used = min(sum(process.memory_mib for process in mine) * MIB, total - reserved)
    return {
        "total": total,
        "reserved": reserved,
        "used": used,
        "free": total - reserved - used,
    }


@answers("nvmlDeviceGetMemoryInfo")
def memory_before_510(view: MachineView, device: DeviceHandle) -> dict[str, int]:
    """Frame buffer without a figure for reserved memory, which counts as used."""
    whole = memory(view, device, {})
    reserved = whole.pop("reserved")
    return whole | {"used": whole["used"] + reserved}


@answers_on_gpu("nvmlDeviceGetTotalEccErrors")
def ecc_errors(gpu: SimulatedGpu, error_type: int, counter_type: int) -> int:
    """ECC errors; the volatile and the aggregate counter are the same."""
    errors = ecc_counts(gpu)
    if counter_type >= _COUNTER_TYPES:
        raise Nvml(INVALID_ARGUMENT)
    if error_type == _CORRECTED:
        return errors.ecc_corrected
    if error_type == _UNCORRECTED:
        return errors.ecc_uncorrected
    raise Nvml(INVALID_ARGUMENT)


@answers_on_gpu("nvmlDeviceGetDetailedEccErrors")
def detailed_ecc_errors(gpu: SimulatedGpu, error_type: int, counter_type: int) -> dict[str, int]:
    """ECC errors by place: all are in device memory."""
    return {"deviceMemory": ecc_errors(gpu, error_type, counter_type)}


@answers_on_gpu("nvmlDeviceGetMemoryErrorCounter")
def memory_errors(gpu: SimulatedGpu, error_type: int, counter_type: int, location: int) -> int:
    """ECC errors at one place: all are in device memory."""
    count = ecc_errors(gpu, error_type, counter_type)
    return count if location == _DEVICE_MEMORY else 0


@answers_on_gpu("nvmlDeviceGetSramEccErrorStatus")
def sram_errors(gpu: SimulatedGpu, version: dict[str, int]) -> dict[str, int]:
    """None in the SRAM; drivers report it since Ampere."""
    del version  # there is one
    ecc_counts(gpu)
    need(gpu.model.architecture >= pynvml.NVML_DEVICE_ARCH_AMPERE)
    return {"bThresholdExceeded": 0}


@answers_on_gpu("nvmlDeviceGetUnrepairableMemoryFlag_v1")
def unrepairable_memory(gpu: SimulatedGpu, version: dict[str, int]) -> dict[str, int]:
    """No error is beyond repair; GPUs that remap rows report it."""
    del version  # there is one
    row_remapping(gpu)
    return {"unrepairableMemory": 0}


@answers_on_gpu("nvmlDeviceGetRetiredPages")
def retired_pages(gpu: SimulatedGpu, cause: int) -> list[int]:
    """Addresses of retired pages; all were retired for double bit errors."""
    pages = page_retirement(gpu).retired_pages
    return list(pages) if cause == _DOUBLE_BIT else []


@answers_on_gpu("nvmlDeviceGetRetiredPages_v2")
def retired_pages_and_times(gpu: SimulatedGpu, cause: int) -> list[tuple[int, int]]:
    """Retired pages with time 0, as boards give for pages retired before times were kept."""
    return [(address, 0) for address in retired_pages(gpu, cause)]


def ecc_mode(gpu: SimulatedGpu) -> tuple[int, int]:
    enabled = supported(gpu.model.ecc)
    return int(enabled), int(enabled)


def _default_ecc_mode(gpu: SimulatedGpu) -> int:
    """On, wherever there is ECC: boards are shipped so."""
    ecc_mode(gpu)
    return 1


def ecc_counts(gpu: SimulatedGpu) -> Readings:
    """Raises Nvml: NOT_SUPPORTED where ECC is off or missing."""
    need(gpu.model.ecc)
    return gpu.state.readings


def page_retirement(gpu: SimulatedGpu) -> Readings:
    """Raises Nvml: NOT_SUPPORTED where rows are remapped instead."""
    need(not gpu.model.row_remapping)
    return ecc_counts(gpu)


def row_remapping(gpu: SimulatedGpu) -> Readings:
    need(gpu.model.row_remapping)
    return gpu.state.readings


def remapped_row_counts(gpu: SimulatedGpu) -> tuple[int, int, int, int]:
    rows = row_remapping(gpu)
    return (
        rows.remapped_correctable,
        rows.remapped_uncorrectable,
        int(rows.remap_pending),
        int(rows.remap_failed),
    )


def _remapper_banks(gpu: SimulatedGpu) -> dict[str, int]:
    rows = row_remapping(gpu)
    used = min(rows.remapped_correctable + rows.remapped_uncorrectable, _REMAPPER_BANKS)
    return {"max": _REMAPPER_BANKS - used, "partial": used}


@answers("nvmlDeviceGetBAR1MemoryInfo")
def bar1(view: MachineView, device: DeviceHandle) -> dict[str, int]:
    """The window to a GPU's memory; a MIG device has its share of it, less 1 MiB.

    Source: the MIG user guide's outputs of nvidia-smi, with BAR1 by MIG device.
    """
    gpu = view.gpu(device)
    size, used = supported(gpu.model.window_mib) * MIB, MIB
    if device.is_mig:
        profile, _, _ = view.mig_device(device)
        size, used = size * profile.size // mig_geometry.memory_unit_count(gpu.model) - MIB, 0
    return {"bar1Total": size, "bar1Free": size - used, "bar1Used": used}


gpu_facts(
    {"nvmlDeviceGetMemoryBusWidth": lambda gpu: supported(gpu.model.memory_bus_bits)},
    mig_devices=True,
)
gpu_facts(
    {
        "nvmlDeviceGetEccMode": ecc_mode,
        "nvmlDeviceGetDefaultEccMode": _default_ecc_mode,
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda gpu: int(
            page_retirement(gpu).retired_pending
        ),
        "nvmlDeviceGetRemappedRows": remapped_row_counts,
        "nvmlDeviceGetRowRemapperHistogram": _remapper_banks,
    },
    mig_devices=False,
)
