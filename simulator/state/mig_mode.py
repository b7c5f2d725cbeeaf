# SPDX-License-Identifier: Apache-2.0
"""The MIG mode of a GPU: requested, pending, and what reset, driver and boot make of it. Pure.

Ampere keeps its mode in the board and changes it by a reset; later GPUs change at once while
nothing runs on them, and forget the mode with the driver. No GPU keeps instances.
Source: nvml.h on nvmlDeviceSetMigMode; NVIDIA MIG user guide, "Enable MIG Mode".
"""

from __future__ import annotations

import pynvml
from msgspec.structs import replace

from simulator.description.machine_schema import Model
from simulator.state.machine_state import SimulatedGpuState

_SUCCESS = 0
_IN_USE = int(pynvml.NVML_ERROR_IN_USE)
_RESET_REQUIRED = int(pynvml.NVML_ERROR_RESET_REQUIRED)


def with_mode(
    model: Model,
    gpu: SimulatedGpuState,
    mode: bool,
    *,
    processes: bool,
    clients: bool,
    driver_resets: bool,
) -> tuple[SimulatedGpuState, int]:
    """The GPU after a request for a mode, and the activation status.

    The mode that holds already cancels one that is pending. Where the other one cannot hold yet it
    is pending, and the status is why: IN_USE while instances or ``processes`` are on the GPU, or,
    where a reset is needed, while others have NVML open (``clients``); RESET_REQUIRED where the
    driver leaves the reset to the caller. After IN_USE a second request may succeed.
    """
    pending_gpu = replace(gpu, mig_pending=mode)
    if mode == gpu.mig:
        return pending_gpu, _SUCCESS
    if processes or gpu.instances or (clients and model.reset_for_mig):
        return pending_gpu, _IN_USE
    if model.reset_for_mig and not driver_resets:
        return pending_gpu, _RESET_REQUIRED
    return replace(pending_gpu, mig=mode), _SUCCESS


def after_reset(gpu: SimulatedGpuState) -> SimulatedGpuState:
    """The pending mode holds; instances are gone."""
    return replace(gpu, mig=gpu.mig_pending, instances=())


def after_driver_load(model: Model, gpu: SimulatedGpuState) -> SimulatedGpuState:
    """The pending mode holds where the board keeps it, else MIG is off; instances are gone."""
    kept = gpu.mig_pending and model.reset_for_mig
    return replace(gpu, mig=kept, mig_pending=kept, instances=())
