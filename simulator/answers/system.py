# SPDX-License-Identifier: Apache-2.0
"""The driver's versions, and the ways from a name to a GPU's handle."""

from __future__ import annotations

from typing import Any, TypeVar

import pynvml

from discovery.bus_id import normal_bus_id
from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.identity import pci_info
from simulator.answers.registry import INVALID_ARGUMENT, NOT_FOUND, answers, need
from simulator.description.machine_schema import DriverSpec
from simulator.driver.handles import DeviceHandle
from simulator.machine_view import MachineView
from simulator.state import mig_geometry

_T = TypeVar("_T")


@answers("nvmlSystemGetDriverVersion")
def driver_version(view: MachineView) -> str:
    """``550.54.15``."""
    return _driver(view).version


@answers("nvmlSystemGetNVMLVersion")
def nvml_version(view: MachineView) -> str:
    """``12.550.54.15``."""
    return _driver(view).nvml


@answers("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
def cuda_version(view: MachineView) -> int:
    """``12040`` for 12.4."""
    return _driver(view).cuda


@answers("nvmlSystemGetConfComputeState")
def confidential_computing(view: MachineView) -> dict[str, int]:
    """Confidential computing is off, where a GPU could have it."""
    need(any(gpu.model.architecture >= pynvml.NVML_DEVICE_ARCH_HOPPER for gpu in view.gpus))
    return {"ccFeature": 0}


@answers("nvmlSystemGetProcessName")
def gpu_process_name(view: MachineView, pid: int) -> str:
    """Name of a process that uses a GPU."""
    names = (process.name for process in view.state.processes if process.pid == pid)
    return _existing(next(names, None))


@answers("nvmlDeviceGetCount_v2")
def gpus_on_bus(view: MachineView) -> int:
    """GPUs on the bus, lost ones included."""
    return len(view.gpus)


@answers("nvmlGetExcludedDeviceCount")
def excluded_gpu_count(view: MachineView) -> int:
    """Number of GPUs that the driver is configured to leave alone."""
    return len(view.excluded)


@answers("nvmlGetExcludedDeviceInfoByIndex")
def excluded_gpu_info(view: MachineView, index: int) -> dict[str, Any]:
    """PCI address and UUID of an excluded GPU; there is no handle of it."""
    if index >= len(view.excluded):
        raise Nvml(INVALID_ARGUMENT)
    gpu = view.excluded[index]
    return {"pci": pci_info(gpu), "uuid": gpu.uuid}


@answers("nvmlDeviceGetHandleByIndex_v2")
def gpu_by_index(view: MachineView, index: int) -> DeviceHandle:
    """GPU by its index, which follows the PCI bus."""
    if index >= len(view.gpus):
        raise Nvml(INVALID_ARGUMENT)
    return _opened(view, view.gpus[index].handle)


@answers("nvmlDeviceGetHandleByPciBusId_v2")
def gpu_by_bus_id(view: MachineView, bus_id: str) -> DeviceHandle:
    """GPU at a bus id, in any spelling."""
    try:
        normalised = normal_bus_id(bus_id)
    except ValueError as error:
        raise Nvml(INVALID_ARGUMENT) from error
    handles = {gpu.spec.bus_id: gpu.handle for gpu in view.gpus}
    return _opened(view, handles.get(normalised))


@answers("nvmlDeviceGetHandleBySerial")
def gpu_by_serial(view: MachineView, serial: str) -> DeviceHandle:
    """GPU by its board's serial number."""
    handles = {gpu.serial: gpu.handle for gpu in view.gpus}
    return _opened(view, handles.get(serial))


@answers("nvmlDeviceGetHandleByUUID")
def device_by_uuid(view: MachineView, uuid: str) -> DeviceHandle:
    """GPU or MIG device by its UUID."""
    handles = {gpu.uuid: gpu.handle for gpu in view.gpus}
    for gpu in view.gpus:
        for instance, compute in mig_geometry.mig_devices(gpu.state):
            mig_uuid = mig_geometry.mig_device_uuid(gpu.uuid, instance.id, compute.id)
            handles[mig_uuid] = DeviceHandle(
                gpu.spec.bus_id, instance.id, compute.id, compute.birth
            )
    return _opened(view, handles.get(uuid))


def _opened(view: MachineView, handle: DeviceHandle | None) -> DeviceHandle:
    """The handle, for a GPU that can be opened now. Raises Nvml: NOT_FOUND, GPU_IS_LOST."""
    view.gpu(_existing(handle))
    return _existing(handle)


def _existing(value: _T | None) -> _T:
    if value is None:
        raise Nvml(NOT_FOUND)
    return value


def _driver(view: MachineView) -> DriverSpec:
    driver = view.machine.driver
    if driver is None:
        raise ValueError("a machine without a driver was asked")  # its init is refused
    return driver
