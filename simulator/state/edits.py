# SPDX-License-Identifier: Apache-2.0
"""Events of a simulated machine, as pure changes of its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pynvml
from msgspec.structs import replace

from base.errors import BadInput
from discovery.bus_id import normal_bus_id
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.description.document import spelling_hint
from simulator.description.machine_schema import Gpu, Model
from simulator.sensor_values import process_joules
from simulator.state import gpu_reset, mig_mode
from simulator.state.machine_state import (
    Action,
    Edit,
    Fault,
    MachineState,
    SimulatedGpuState,
    SimulatedProcess,
    XidEvent,
)


def with_fault(
    action: Action,
    entry: str,
    *,
    bus_id: str | None,
    after: int,
    times: int | None,
    late: bool = False,
) -> Edit:
    """Add a fault at the end of the list.

    Raises BadInput for a pattern that no entry point matches; the edit does for a
    bus id that is not the machine's.
    """
    for pattern in entry.split() or [entry]:
        # the table lacks some that pynvml has, which answer where a GPU has a number for them
        if not any(fnmatchcase(name, pattern) for name in TABLE) and not hasattr(pynvml, pattern):
            hint = spelling_hint(pattern, tuple(TABLE))
            raise BadInput(f"no NVML entry point is named {pattern!r}; {hint}")

    def change(state: MachineState) -> MachineState:
        fault = Fault(
            id=1 + max((fault.id for fault in state.faults), default=0),
            action=action,
            entry=entry,
            bus_id=None if bus_id is None else known_bus_id(state, bus_id),
            after=after,
            times=times,
            late=late,
        )
        return replace(state, faults=(*state.faults, fault))

    return change


def without_faults(fault_id: int | None) -> Edit:
    """Take one fault away, or with None all."""

    def change(state: MachineState) -> MachineState:
        kept = (f for f in state.faults if fault_id is not None and f.id != fault_id)
        return replace(state, faults=tuple(kept))

    return change


def with_missing(entries: Sequence[str]) -> Edit:
    """Take these entry points, and no others, out of the library.

    Raises BadInput for a name that no entry point has.
    """
    for name in entries:
        if name not in TABLE:
            raise BadInput(
                f"no NVML entry point is named {name!r}; {spelling_hint(name, tuple(TABLE))}"
            )
    return lambda state: replace(state, missing=tuple(entries))


def with_event(event: XidEvent) -> Edit:
    """Add one event that waits for delivery."""

    def change(state: MachineState) -> MachineState:
        known_event = replace(event, bus_id=known_bus_id(state, event.bus_id))
        return replace(state, events=(*state.events, known_event))

    return change


def with_gpu_changed(bus_id: str, **changes: Any) -> Edit:
    """Give fields of :class:`SimulatedGpuState` other values."""

    def change(state: MachineState) -> MachineState:
        known_id = known_bus_id(state, bus_id)
        return replace(
            state, gpus=state.gpus | {known_id: replace(_gpu(state, known_id), **changes)}
        )

    return change


def with_reset(bus_id: str, *, rebooting: bool = False) -> Edit:
    """Reset a GPU at once, whatever the machine's settings say of resets.

    See :func:`gpu_reset.reset_state`. Raises BadInput while a process uses the GPU, as nvidia-smi
    refuses it, and unless it is by ``rebooting`` for one that is being reset or is passed through
    to a machine.
    """

    def change(state: MachineState) -> MachineState:
        known_id = known_bus_id(state, bus_id)
        if any(process.bus_id == known_id for process in state.processes):
            raise BadInput(f"the GPU at {known_id} is in use: end its processes first")
        if not rebooting and _gpu(state, known_id).reset is not None:
            raise BadInput(f"the GPU at {known_id} is being reset: wait, or reboot the machine")
        if not rebooting and _spec(state, known_id).virtualization == mig_mode.PASSTHROUGH:
            raise BadInput(
                f"the GPU at {known_id} is passed through to a virtual machine: reboot it"
            )
        return gpu_reset.reset_state(state, known_id)

    return change


def with_driver_loaded(now: float, *, rebooting: bool = False) -> Edit:
    """Load the driver anew: every GPU is reset, and has the MIG mode that its board keeps.

    ``now`` is in monotonic seconds. Raises BadInput while a process uses a GPU, and unless it is
    by ``rebooting`` while one is being reset.
    """

    def change(state: MachineState) -> MachineState:
        for bus_id in () if rebooting else state.gpus:
            if gpu_reset.is_resetting(state, bus_id):
                raise BadInput(f"the GPU at {bus_id} is being reset: wait, or reboot the machine")
        for bus_id in state.gpus:
            pending = state.gpus[bus_id].mig_pending
            state = with_reset(bus_id, rebooting=True)(state)
            gpu = replace(state.gpus[bus_id], mig_pending=pending)
            loaded = mig_mode.after_driver_load(_model(state, bus_id), gpu)
            state = replace(state, gpus=state.gpus | {bus_id: loaded})
        return replace(state, events=(), started=now)

    return change


def with_readings(bus_id: str, **readings: Any) -> Edit:
    """Fix readings, or free them with None. Raises BadInput for an unknown reading."""

    def change(state: MachineState) -> MachineState:
        current = _gpu(state, known_bus_id(state, bus_id)).readings
        for name in readings:
            if name not in current.__struct_fields__:
                hint = spelling_hint(name, current.__struct_fields__)
                raise BadInput(f"no reading is named {name!r}; {hint}")
        return with_gpu_changed(bus_id, readings=replace(current, **readings))(state)

    return change


def with_process(process: SimulatedProcess) -> Edit:
    """Add a process on a GPU."""

    def change(state: MachineState) -> MachineState:
        known_process = replace(process, bus_id=known_bus_id(state, process.bus_id))
        return replace(state, processes=(*state.processes, known_process))

    return change


def with_process_ending(pid: int, end_seconds: float) -> Edit:
    """Let a process end by itself, at a time in monotonic seconds."""

    def change(state: MachineState) -> MachineState:
        every = (replace(p, ends=end_seconds) if p.pid == pid else p for p in state.processes)
        return replace(state, processes=tuple(every))

    return change


def without_processes(matches: Callable[[SimulatedProcess], bool], now: float) -> Edit:
    """Remove the processes that match; the energy they cost stays counted."""

    def change(state: MachineState) -> MachineState:
        for process in (candidate for candidate in state.processes if matches(candidate)):
            spent = _gpu(state, process.bus_id).spent_joules
            spent += process_joules(_model(state, process.bus_id), process, now)
            state = with_gpu_changed(process.bus_id, spent_joules=spent)(state)
        return replace(state, processes=tuple(p for p in state.processes if not matches(p)))

    return change


def known_bus_id(state: MachineState, text: str) -> str:
    """Bus id as the machine writes it. Raises BadInput for one that is not the machine's."""
    try:
        bus_id = normal_bus_id(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is not a PCI bus id: write it like '0000:3b:00.0'") from error
    if state.machine is not None and bus_id not in state.gpus:
        raise BadInput(
            f"{state.name} has no GPU at {bus_id}; {spelling_hint(bus_id, tuple(state.gpus))}"
        )
    return bus_id


def _gpu(state: MachineState, bus_id: str) -> SimulatedGpuState:
    if state.machine is None:
        raise BadInput(f"{state.name} is a recording: its GPUs cannot be changed")
    return state.gpus[bus_id]


def _model(state: MachineState, bus_id: str) -> Model:
    return state.models[_spec(state, bus_id).model]


def _spec(state: MachineState, bus_id: str) -> Gpu:
    gpus = state.machine.gpus if state.machine else ()
    return next(gpu for gpu in gpus if gpu.bus_id == bus_id)
