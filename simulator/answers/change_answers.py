# SPDX-License-Identifier: Apache-2.0
"""Calls that change MIG mode or instances. Each gives the machine's next state and its answer.

They run while no other process changes the state file, so each sees all that was done before.
Source: nvml.h, the return codes of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pynvml
from msgspec.structs import replace

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.compute_instances import compute_instance_of_handle
from simulator.answers.gpu_instances import gpu_instance_of_handle
from simulator.answers.registry import INVALID_ARGUMENT, NOT_SUPPORTED, need, need_right
from simulator.description.machine_checks import VGPU
from simulator.driver import clients
from simulator.driver.handles import (
    ComputeInstanceHandle,
    DeviceHandle,
    GpuInstanceHandle,
)
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state import gpu_reset, mig_instance_changes, mig_mode
from simulator.state.machine_state import (
    MachineState,
    NvmlClient,
    SimulatedGpuState,
    SimulatedProcess,
)
from simulator.state.reset_peers import missing_peers

Change = Callable[..., tuple[MachineState, Any]]


def _set_mig_mode(
    view: MachineView, caller: NvmlClient, device: DeviceHandle, mode: int
) -> tuple[MachineState, int]:
    """Set the MIG mode; gives the activation status. Requires root. A reset may have begun."""
    gpu = _whole_gpu(view, device)
    if mode not in (pynvml.NVML_DEVICE_MIG_DISABLE, pynvml.NVML_DEVICE_MIG_ENABLE):
        raise Nvml(INVALID_ARGUMENT)
    need(gpu.model.mig and gpu.spec.virtualization != VGPU)
    need_right(view, "root")
    # the session of the caller is in nobody's way: nvidia-smi has one too, and succeeds
    other_clients = clients.live(view.state.clients) - {caller}
    changed, status = mig_mode.with_mode(
        gpu.model,
        gpu.state,
        mode == pynvml.NVML_DEVICE_MIG_ENABLE,
        processes=bool(gpu.processes),
        clients=bool(other_clients or gpu.clients),
        unresettable=_unresettable(gpu),
    )
    state = _with_gpu(view, gpu, changed)
    if status is not None:
        return state, status
    return gpu_reset.begun(state, gpu.spec.bus_id, view.now), gpu_reset.result_code(state)


def _create_gpu_instance(
    view: MachineView,
    caller: NvmlClient,
    device: DeviceHandle,
    profile_id: int,
    placement: Mapping[str, int] | None = None,
) -> tuple[MachineState, GpuInstanceHandle]:
    """Create a GPU instance, with or without a placement."""
    del caller
    gpu = _whole_gpu(view, device)
    need(gpu.state.mig)
    need_right(view, "mig-config")
    changed, instance = mig_instance_changes.with_gpu_instance(
        gpu.model, gpu.state, profile_id, _place(placement)
    )
    return _with_gpu(view, gpu, changed), GpuInstanceHandle(
        device.bus_id, instance.id, instance.birth
    )


def _destroy_gpu_instance(
    view: MachineView, caller: NvmlClient, handle: GpuInstanceHandle
) -> tuple[MachineState, None]:
    """Destroy a GPU instance; its handle stays invalid when another instance gets its id."""
    del caller
    gpu, _, instance = gpu_instance_of_handle(view, handle)
    need_right(view, "mig-config")
    changed = mig_instance_changes.without_gpu_instance(gpu.state, instance, gpu.processes)
    return _with_gpu(view, gpu, changed), None


def _create_compute_instance(
    view: MachineView,
    caller: NvmlClient,
    handle: GpuInstanceHandle,
    profile_id: int,
    placement: Mapping[str, int] | None = None,
) -> tuple[MachineState, ComputeInstanceHandle]:
    """Create a compute instance, with or without a placement."""
    del caller
    gpu, _, instance = gpu_instance_of_handle(view, handle)
    need_right(view, "mig-config")
    changed, compute = mig_instance_changes.with_compute_instance(
        gpu.model, gpu.state, instance, profile_id, _place(placement)
    )
    created = ComputeInstanceHandle(handle.bus_id, instance.id, compute.id, compute.birth)
    return _with_gpu(view, gpu, changed), created


def _destroy_compute_instance(
    view: MachineView, caller: NvmlClient, handle: ComputeInstanceHandle
) -> tuple[MachineState, None]:
    """Destroy a compute instance; its handle and that of its MIG device become invalid."""
    del caller
    gpu, instance, compute = compute_instance_of_handle(view, handle)
    need_right(view, "mig-config")
    changed = mig_instance_changes.without_compute_instance(
        gpu.state, instance, compute, gpu.processes
    )
    return _with_gpu(view, gpu, changed), None


def _create_context(
    view: MachineView, caller: NvmlClient, device: DeviceHandle
) -> tuple[MachineState, None]:
    """The calling process uses the device from now on, until it ends: as a CUDA context does.

    On a GPU with MIG on it takes a MIG device. Not a call of NVML's.
    """
    gpu = view.gpu(device)
    if device.is_mig:
        view.mig_device(device)
    elif gpu.state.mig:
        raise Nvml(NOT_SUPPORTED)
    process = SimulatedProcess(
        pid=caller.pid,
        bus_id=device.bus_id,
        name=clients.running_process_name(caller.pid),
        gpu_instance_id=device.gpu_instance_id,
        compute_instance_id=device.compute_instance_id,
        started=view.now,
        ticks=caller.started,
    )
    return replace(view.state, processes=(*view.state.processes, process)), None


CHANGES: Mapping[str, Change] = {
    "nvmlDeviceSetMigMode": _set_mig_mode,
    "nvmlDeviceCreateGpuInstance": _create_gpu_instance,
    "nvmlDeviceCreateGpuInstanceWithPlacement": _create_gpu_instance,
    "nvmlGpuInstanceDestroy": _destroy_gpu_instance,
    "nvmlGpuInstanceCreateComputeInstance": _create_compute_instance,
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement": _create_compute_instance,
    "nvmlComputeInstanceDestroy": _destroy_compute_instance,
    "gpuscapeContextCreate": _create_context,
}
"""C name to the function that is called with machine view, caller and inputs."""


def _unresettable(gpu: SimulatedGpu) -> int | None:
    """Activation status where the driver does not reset this GPU alone; None where it does."""
    state = gpu.view.state
    if missing_peers(state, frozenset({gpu.spec.bus_id})):
        return int(pynvml.NVML_ERROR_RESET_REQUIRED)
    return mig_mode.activation_without_reset(gpu.spec, state.reset)


def _whole_gpu(view: MachineView, device: DeviceHandle) -> SimulatedGpu:
    gpu = view.gpu(device)
    if device.is_mig:
        raise Nvml(NOT_SUPPORTED)
    return gpu


def _place(placement: Mapping[str, int] | None) -> mig_instance_changes.Place | None:
    return None if placement is None else (placement["start"], placement["size"])


def _with_gpu(view: MachineView, gpu: SimulatedGpu, changed: SimulatedGpuState) -> MachineState:
    return replace(view.state, gpus=view.state.gpus | {gpu.spec.bus_id: changed})
