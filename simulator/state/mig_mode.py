# SPDX-License-Identifier: Apache-2.0
"""The MIG mode of a GPU: requested, pending, and what reset, driver and boot make of it. Pure.

Ampere keeps its mode in the board and changes it by a reset; later GPUs change at once while
nothing runs on them, and forget the mode with the driver. No GPU keeps instances.
Source: nvml.h on nvmlDeviceSetMigMode; NVIDIA MIG user guide, "Enable MIG Mode".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pynvml
from msgspec.structs import replace

from simulator.description.machine_schema import Gpu, Model, ResetSpec
from simulator.state.machine_state import SimulatedGpuState

PASSTHROUGH: Final = int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH)
VGPU_HOST: Final = int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU)
_SUCCESS: Final = 0
_IN_USE: Final = int(pynvml.NVML_ERROR_IN_USE)
_RESET_REQUIRED: Final = int(pynvml.NVML_ERROR_RESET_REQUIRED)
_NOT_SUPPORTED: Final = int(pynvml.NVML_ERROR_NOT_SUPPORTED)

_OF_PLATFORM: Final[Mapping[int, int]] = {PASSTHROUGH: _RESET_REQUIRED, VGPU_HOST: _NOT_SUPPORTED}
"""Activation status by virtualization, where the driver cannot reset a GPU by itself. That of a
host of vGPUs is read from published outputs of nvidia-smi on such hosts."""
_OF_MACHINE: Final[Mapping[str, int]] = {
    "reset-required": _RESET_REQUIRED,
    "not-supported": _NOT_SUPPORTED,
}


def activation_without_reset(spec: Gpu, reset: ResetSpec) -> int | None:
    """Activation status of a GPU that the driver does not reset; None where it does."""
    return _OF_MACHINE.get(reset.mode_change, _OF_PLATFORM.get(spec.virtualization))


def with_mode(
    model: Model,
    gpu: SimulatedGpuState,
    mode: bool,
    *,
    processes: bool,
    clients: bool,
    unresettable: int | None,
) -> tuple[SimulatedGpuState, int | None]:
    """The GPU after a request for a mode, and the activation status; None: it is to be reset.

    The mode that holds already cancels one that is pending. Where the other one cannot hold yet it
    is pending, and the status is why: IN_USE while instances or ``processes`` are on the GPU, or,
    where a reset is needed, while others have it open (``clients``); ``unresettable`` where the
    driver does not reset it. After IN_USE a second request may succeed.
    """
    pending_gpu = replace(gpu, mig_pending=mode)
    if mode == gpu.mig:
        return pending_gpu, _SUCCESS
    if processes or gpu.instances or (clients and model.reset_for_mig):
        return pending_gpu, _IN_USE
    if model.reset_for_mig:
        return pending_gpu, unresettable
    return replace(pending_gpu, mig=mode), _SUCCESS


def after_reset(gpu: SimulatedGpuState) -> SimulatedGpuState:
    """The pending mode holds; instances are gone."""
    return replace(gpu, mig=gpu.mig_pending, instances=())


def after_driver_load(model: Model, gpu: SimulatedGpuState) -> SimulatedGpuState:
    """The pending mode holds where the board keeps it, else MIG is off; instances are gone."""
    kept = gpu.mig_pending and model.reset_for_mig
    return replace(gpu, mig=kept, mig_pending=kept, instances=(), minor=None)
