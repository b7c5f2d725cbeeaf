# SPDX-License-Identifier: Apache-2.0
"""MIG mode, and the MIG devices as devices."""

from __future__ import annotations

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    answers,
    answers_on_gpu,
    gpu_facts,
    need,
)
from simulator.driver.handles import DeviceHandle
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state import mig_geometry


@answers_on_gpu("nvmlDeviceGetMigDeviceHandleByIndex")
def mig_device_by_index(gpu: SimulatedGpu, index: int) -> DeviceHandle:
    """MIG device by index; NOT_FOUND for a hole: not every index below the limit has a device.

    A device that the process has no access to is a hole as well.
    """
    need(gpu.state.mig)
    if index >= mig_geometry.max_mig_devices(gpu.model):
        raise Nvml(INVALID_ARGUMENT)
    for number, (instance, compute) in enumerate(mig_geometry.mig_devices(gpu.state)):
        if number == index and "mig-access" not in gpu.view.state.lacking:
            return DeviceHandle(gpu.spec.bus_id, instance.id, compute.id, compute.birth)
    raise Nvml(NOT_FOUND)


@answers("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
def gpu_of_mig_device(view: MachineView, device: DeviceHandle) -> DeviceHandle:
    """The GPU of a MIG device."""
    view.mig_device(device)
    return view.gpu(device).handle


@answers("nvmlDeviceIsMigDeviceHandle")
def is_mig_device(view: MachineView, device: DeviceHandle) -> int:
    """1 for a MIG device."""
    view.gpu(device)
    return int(device.is_mig)


@answers("nvmlDeviceGetGpuInstanceId")
def gpu_instance_id(view: MachineView, device: DeviceHandle) -> int:
    """GPU instance id of a MIG device."""
    _, instance, _ = view.mig_device(device)
    return instance.id


@answers("nvmlDeviceGetComputeInstanceId")
def compute_instance_id(view: MachineView, device: DeviceHandle) -> int:
    """Compute instance id of a MIG device."""
    _, _, compute = view.mig_device(device)
    return compute.id


@answers("nvmlDeviceGetAttributes_v2")
def mig_device_attributes(view: MachineView, device: DeviceHandle) -> dict[str, int]:
    """Attributes of a MIG device; engines are its GPU instance's, which compute instances share."""
    profile, _, compute = view.mig_device(device)
    return mig_geometry.shared_engines(profile) | {
        "multiprocessorCount": mig_geometry.multiprocessors(profile, compute.slices),
        "gpuInstanceSliceCount": profile.slices,
        "computeInstanceSliceCount": compute.slices,
        "memorySizeMB": profile.memory_mib,
    }


def _mode(gpu: SimulatedGpu) -> tuple[int, int]:
    need(gpu.model.mig)
    return int(gpu.state.mig), int(gpu.state.mig_pending)


def _max_devices(gpu: SimulatedGpu) -> int:
    """Zero where MIG is not supported or not enabled, as NVIDIA documents it."""
    return mig_geometry.max_mig_devices(gpu.model) if gpu.state.mig else 0


gpu_facts(
    {"nvmlDeviceGetMigMode": _mode, "nvmlDeviceGetMaxMigDeviceCount": _max_devices},
    mig_devices=False,
)
