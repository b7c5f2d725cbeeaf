# SPDX-License-Identifier: Apache-2.0
"""Resets of GPUs that take their time: begun, running and ended. Pure.

A reset ends by the machine's clock, whoever waits for it: the kernel goes on with one whose caller
was killed. Until then no call reaches the GPU.
Source: NVIDIA/open-gpu-kernel-modules refuses calls on a GPU that is being reset and does not block
them; NVML's code for a GPU that is inaccessible for whatever reason is GPU_IS_LOST (nvml.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pynvml
from msgspec.structs import replace

from simulator.state import mig_mode
from simulator.state.machine_state import (
    Fault,
    MachineState,
    Return,
    RunningReset,
    SimulatedGpuState,
    minors,
)

LOST: Final = int(pynvml.NVML_ERROR_GPU_IS_LOST)
_STATUS: Final[Mapping[str, int]] = {
    "done": 0,
    "fails": int(pynvml.NVML_ERROR_UNKNOWN),
    "loses": LOST,
    "hangs": int(pynvml.NVML_ERROR_UNKNOWN),
}


def result_code(state: MachineState) -> int:
    """NVML's code for how resets end on this machine."""
    return _STATUS[state.reset.result]


def begun(state: MachineState, bus_id: str, now: float) -> MachineState:
    """The GPU is being reset from now on, as the machine's settings have it.

    One that takes no time is over at once. Its instances are gone, unless the reset fails.
    """
    settings, gpu = state.reset, state.gpus[bus_id]
    ends = None if settings.result == "hangs" else now + settings.seconds
    if settings.result != "fails":
        gpu = replace(gpu, instances=())
        if settings.renumbers:
            gpu = replace(gpu, minor=_unused_minor(state), renumbered=gpu.renumbered + 1)
    gpu = replace(gpu, reset=RunningReset(ends=ends, result=settings.result))
    return settled(_with_gpu(state, bus_id, gpu), now)


def is_resetting(state: MachineState, bus_id: str) -> bool:
    """It has not ended, in a state that is settled."""
    return state.gpus[bus_id].reset is not None


def settled(state: MachineState, now: float) -> MachineState:
    """The state with all resets ended whose time is over; the same object where none is."""
    for bus_id, gpu in state.gpus.items():
        if gpu.reset is not None and gpu.reset.ends is not None and gpu.reset.ends <= now:
            state = _ended(state, bus_id, gpu.reset)
    return state


def reset_state(state: MachineState, bus_id: str) -> MachineState:
    """The state after a GPU was reset: a pending mode holds, a lost GPU answers.

    Instances, volatile counts of errors, and what waited for a reset are gone.
    Source: nvidia-smi(1) on ECC errors, "Replays Since Reset", remapped rows and retired pages.
    """
    gpus = state.machine.gpus if state.machine else ()
    spec = next(gpu for gpu in gpus if gpu.bus_id == bus_id)
    kept = (f for f in state.faults if f.bus_id != bus_id or not isinstance(f.action, Return))
    gpu = state.gpus[bus_id]
    readings = replace(
        gpu.readings,
        recovery_action=0,
        remap_pending=False,
        retired_pending=False,
        ecc_corrected=0,
        ecc_uncorrected=0,
        pcie_replays=0,
    )
    after = replace(
        mig_mode.after_reset(gpu),
        listed=spec.shown,
        readings=readings,
        reset=None,
        resets=gpu.resets + 1,
    )
    return replace(_with_gpu(state, bus_id, after), faults=tuple(kept))


def _ended(state: MachineState, bus_id: str, reset: RunningReset) -> MachineState:
    match reset.result:
        case "done":
            return reset_state(state, bus_id)
        case "loses":
            number = 1 + max((fault.id for fault in state.faults), default=0)
            lost = Fault(id=number, action=Return(code=LOST), bus_id=bus_id)
            state = replace(state, faults=(*state.faults, lost))
    return _with_gpu(state, bus_id, replace(state.gpus[bus_id], reset=None))


def _unused_minor(state: MachineState) -> int:
    """The lowest minor number above those that there are."""
    return 1 + max(minors(state).values())


def _with_gpu(state: MachineState, bus_id: str, gpu: SimulatedGpuState) -> MachineState:
    return replace(state, gpus=state.gpus | {bus_id: gpu})
