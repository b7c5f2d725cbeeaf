# SPDX-License-Identifier: Apache-2.0
"""Scripted faults: which of them a call meets, and what they do to it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from fnmatch import fnmatchcase

from msgspec.structs import replace

from discovery.simulator.entry_points.argument_kinds import Nvml
from discovery.simulator.entry_points.c_values import Garbage
from discovery.simulator.state.machine_state import (
    Crash,
    Delay,
    Fault,
    Hang,
    MachineState,
    Return,
    Spoil,
)
from discovery.simulator.state.state_file import StateFile

POLL_SECONDS = 0.02
"""Seconds between two checks of a hanging call whether its fault is cleared."""

CRASH_STATUS = 70
"""EX_SOFTWARE: what a process that a fault ends by exit leaves behind."""


def matching(state: MachineState, entry: str, bus_ids: Collection[str]) -> tuple[Fault, ...]:
    """The faults a call matches by name and by the GPUs it is about, oldest first."""
    return tuple(
        fault
        for fault in state.faults
        if fnmatchcase(entry, fault.entry) and (fault.bus_id is None or fault.bus_id in bus_ids)
    )


def suffer(file: StateFile, entry: str, bus_ids: Collection[str]) -> Garbage | None:
    """Let a call meet its faults, oldest first; gives the garbage its answer is to become.

    Raises Nvml where a fault ends the call. Returns late, or not while the fault
    stands, where one hangs.
    """
    garbage: Garbage | None = None
    for fault in matching(file.read(), entry, bus_ids):
        if not _due(file, fault):
            continue
        match fault.action:
            case Return(code=code):
                raise Nvml(code)
            case Hang(uninterruptible=deaf):
                _hang(file, fault.id, deaf=deaf)
            case Delay(seconds=seconds):
                time.sleep(seconds)
            case Spoil(garbage=kind):
                garbage = kind
            case Crash(by=by, prints=prints):
                _print(prints.encode())
                _end(by)
    return garbage


def _due(file: StateFile, fault: Fault) -> bool:
    """Count the call where the fault is limited; whether it is this call's turn."""
    if fault.after == 0 and fault.times is None:
        return True
    turn = -1

    def count(state: MachineState) -> MachineState:
        nonlocal turn
        turn = next((one.seen for one in state.faults if one.id == fault.id), -1)
        counted = (replace(f, seen=turn + 1) if f.id == fault.id else f for f in state.faults)
        return replace(state, faults=tuple(counted))

    file.edit(count)
    return turn >= fault.after and (fault.times is None or turn < fault.after + fault.times)


def _hang(file: StateFile, fault_id: int, *, deaf: bool) -> None:
    with _deaf_to_sigterm() if deaf else nullcontext():
        while any(fault.id == fault_id for fault in file.read().faults):
            time.sleep(POLL_SECONDS)


@contextmanager
def _deaf_to_sigterm() -> Iterator[None]:
    """Ignore SIGTERM in the whole process, from whichever thread.

    By libc, because Python changes signal handlers in the main thread only.
    """
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    before = libc.signal(signal.SIGTERM, int(signal.SIG_IGN))
    try:
        yield
    finally:
        libc.signal(signal.SIGTERM, before)


def _print(data: bytes) -> None:
    """Write as C does to standard error: what does not fit is lost."""
    with suppress(OSError):
        while data:
            data = data[os.write(2, data) :]


def _end(by: str) -> None:
    if by == "exit":
        os._exit(CRASH_STATUS)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal is on its way
