# SPDX-License-Identifier: Apache-2.0
"""The processes on a GPU or on one MIG device."""

from __future__ import annotations

from typing import Any

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.memory import MIB
from simulator.answers.registry import NOT_FOUND, answers, answers_on_gpu, need
from simulator.driver.event_sets import NO_INSTANCE
from simulator.driver.handles import DeviceHandle
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state.machine_state import SimulatedProcess


@answers("nvmlDeviceGetComputeRunningProcesses_v3")
def compute_processes(view: MachineView, device: DeviceHandle) -> list[dict[str, int]]:
    """Processes with a compute context."""
    return _listed(view, device, "compute")


@answers("nvmlDeviceGetGraphicsRunningProcesses_v3")
def graphics_processes(view: MachineView, device: DeviceHandle) -> list[dict[str, int]]:
    """Processes with a graphics context."""
    return _listed(view, device, "graphics")


@answers("nvmlDeviceGetMPSComputeRunningProcesses_v3")
def mps_processes(view: MachineView, device: DeviceHandle) -> list[dict[str, int]]:
    """Clients of an MPS server."""
    return _listed(view, device, "mps")


@answers_on_gpu("nvmlDeviceGetProcessUtilization")
def utilization(gpu: SimulatedGpu, since: int) -> list[dict[str, Any]]:
    """A sample of each busy process that is newer than ``since`` microseconds.

    NOT_FOUND where there is none. Source: nvml.h on nvmlDeviceGetProcessUtilization.
    """
    need(not gpu.state.mig)
    now = round(1e6 * gpu.view.now)
    busy = [process for process in gpu.processes if process.percent and now > since]
    if not busy:
        raise Nvml(NOT_FOUND)
    return [
        {
            "pid": process.pid,
            "timeStamp": now,
            "smUtil": process.percent,
            "memUtil": process.percent // 2,
        }
        for process in busy
    ]


def _listed(view: MachineView, device: DeviceHandle, kind: str) -> list[dict[str, int]]:
    gpu = view.gpu(device)
    if device.is_mig:
        view.mig_device(device)
    return [_fields(p) for p in gpu.processes if p.kind == kind and _concerns(p, device)]


def _concerns(process: SimulatedProcess, device: DeviceHandle) -> bool:
    ids = (process.gpu_instance_id, process.compute_instance_id)
    return not device.is_mig or ids == (device.gpu_instance_id, device.compute_instance_id)


def _fields(process: SimulatedProcess) -> dict[str, int]:
    ids = (process.gpu_instance_id, process.compute_instance_id)
    gpu_instance, compute_instance = (
        NO_INSTANCE if instance_id is None else instance_id for instance_id in ids
    )
    return {
        "pid": process.pid,
        "usedGpuMemory": process.memory_mib * MIB,
        "gpuInstanceId": gpu_instance,
        "computeInstanceId": compute_instance,
    }
