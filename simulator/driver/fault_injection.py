# SPDX-License-Identifier: Apache-2.0
"""Scripted faults: which of them a call meets, and what they do to it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase

import pynvml
from msgspec.structs import replace

from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.c_values import Garbage
from simulator.driver.calling_process import CallingProcess
from simulator.state.machine_state import (
    Crash,
    Delay,
    Fault,
    Hang,
    Leak,
    MachineState,
    Return,
    Spoil,
)
from simulator.state.state_file import StateFile

POLL_SECONDS = 0.02
"""Seconds between two checks of a hanging call whether its fault is cleared."""


def matching_faults(state: MachineState, entry: str, bus_ids: Collection[str]) -> tuple[Fault, ...]:
    """The faults a call matches by name and by the GPUs it is about, oldest first."""
    return tuple(
        fault
        for fault in state.faults
        if _is_meant(entry, fault.entry) and (fault.bus_id is None or fault.bus_id in bus_ids)
    )


def suffer(
    file: StateFile, faults: Sequence[Fault], caller: CallingProcess, *, late: bool = False
) -> Garbage | None:
    """Let a call meet its faults in their order; gives the garbage its answer is to become.

    Called before the call's work for faults that are not late, after it with ``late`` for others.
    Raises Nvml where a fault ends the call. Returns late, or not while the fault
    stands, where one hangs.
    """
    garbage: Garbage | None = None
    for fault in faults:
        if fault.late != late or not _due(file, fault):
            continue
        match fault.action:
            case Return(code=code):
                raise Nvml(code)
            case Hang(uninterruptible=deaf):
                _hang(file, fault.id, caller, deaf=deaf)
            case Delay(seconds=seconds):
                time.sleep(seconds)
            case Spoil(garbage=kind):
                garbage = kind
            case Crash(ending=ending, prints=prints):
                caller.crash(ending, prints)
            case Leak(memory_bytes=memory_bytes, descriptors=descriptors):
                caller.leak(memory_bytes, descriptors)
    return garbage


def _is_meant(entry: str, patterns: str) -> bool:
    return any(fnmatchcase(entry, pattern) for pattern in patterns.split())


def _due(file: StateFile, fault: Fault) -> bool:
    """Count the call where the fault is limited; whether it is this call's turn."""
    if fault.after == 0 and fault.times is None:
        return True
    turn = -1

    def count(state: MachineState) -> MachineState:
        nonlocal turn
        turn = next((stored.seen for stored in state.faults if stored.id == fault.id), -1)
        counted = (replace(f, seen=turn + 1) if f.id == fault.id else f for f in state.faults)
        return replace(state, faults=tuple(counted))

    file.edit(count)
    return turn >= fault.after and (fault.times is None or turn < fault.after + fault.times)


def _hang(file: StateFile, fault_id: int, caller: CallingProcess, *, deaf: bool) -> None:
    with caller.deaf_to_sigterm() if deaf else nullcontext():
        while any(fault.id == fault_id for fault in file.read().faults):
            if caller.has_gone():
                raise Nvml(pynvml.NVML_ERROR_UNKNOWN)
            time.sleep(POLL_SECONDS)
