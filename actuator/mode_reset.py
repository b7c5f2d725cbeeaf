# SPDX-License-Identifier: Apache-2.0
"""Resets that the driver makes for a new MIG mode: which step needs one, and the GPU after it.

nvmlDeviceSetMigMode makes them, on a GPU that no other program has open; the caller's own session
is not in its way. Source: nvml.h on nvmlDeviceSetMigMode; MIG user guide, "GPU Reset on NVIDIA
Ampere Architecture GPUs".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from actuator.mig_world import StepFailed
from base.errors import Transient
from discovery.mig_state import MigGpu
from discovery.nvml.mig_gpu import read_mig_gpu
from mig.steps import MigStep, SetMode

BACK_SECONDS: Final = 30.0
"""Time for a GPU to answer again after its reset; the call itself waits for the reset."""
_POLL_SECONDS: Final = 1.0


def is_reset(gpu: MigGpu, step: MigStep) -> bool:
    """Whether the driver resets the GPU for this step."""
    return (
        isinstance(step, SetMode)
        and step.gpu == gpu.uuid
        and not gpu.resetless
        and gpu.mode is not None
        and gpu.mode.current != step.on
    )


def waiting_mode(gpu: MigGpu) -> str:
    """The mode that a GPU has from its next reset on, and the command that takes it back.

    Empty where no mode waits.
    """
    if gpu.mode is None or gpu.mode.current == gpu.mode.pending:
        return ""
    state, former = ("on", 0) if gpu.mode.pending else ("off", 1)
    command = f"nvidia-smi -i {gpu.bus_id} -mig {former}"
    return f"the next reset or boot turns MIG {state}, unless you run {command}"


def read_back(
    before: MigGpu,
    reopen: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> MigGpu:
    """The GPU after its reset, read in a new session: all handles of the old one are void.

    ``reopen`` ends the session and begins another, for the GPU with this bus id. Raises StepFailed
    where the GPU does not come back, or another one is in its place; its device file may have
    another number.
    """
    deadline = clock() + BACK_SECONDS
    while True:
        try:
            reopen(before.bus_id)
            gpu = read_mig_gpu(before.bus_id)
            if isinstance(gpu, MigGpu):
                break
            why = gpu.why
        except (StepFailed, Transient) as error:
            why = str(error)
        if clock() > deadline:
            raise StepFailed(f"GPU {before.bus_id} did not come back from its reset: {why}")
        sleep(_POLL_SECONDS)
    if gpu.uuid != before.uuid:
        raise StepFailed(f"GPU {before.bus_id} is {gpu.uuid} after its reset, not {before.uuid}")
    return gpu
