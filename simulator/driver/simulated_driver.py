# SPDX-License-Identifier: Apache-2.0
"""NVML's own bookkeeping around a machine's answers: sessions, clients, faults, events.

The machine below it is simulated or recorded; both meet the same faults and events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.c_values import Garbage, HandleBook, Value
from discovery.nvml_abi.entry_point import EntryPoint
from simulator.driver import clients, gpm_samples
from simulator.driver.calling_process import CallingProcess, ThisProcess
from simulator.driver.event_sets import NO_INSTANCE, EventSets
from simulator.driver.fault_injection import matching_faults, suffer
from simulator.driver.gpm_samples import FilledSample, GpmSamples
from simulator.driver.handles import EventSet, GpmSample
from simulator.driver.reset_wait import wait_for_resets
from simulator.state import gpu_reset
from simulator.state.machine_state import MachineState, NvmlClient, XidEvent
from simulator.state.state_file import StateFile

Values = Sequence[Value]

OWN_ENTRIES = frozenset(
    {
        "nvmlInit_v2",
        "nvmlInitWithFlags",
        "nvmlShutdown",
        "nvmlErrorString",
        "nvmlEventSetCreate",
        "nvmlDeviceRegisterEvents",
        "nvmlEventSetWait_v2",
        "nvmlEventSetFree",
    }
)
"""Entry points that a driver answers by itself, over whatever machine."""

_WITHOUT_SESSION = frozenset({"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString"})


class Answers(Protocol):
    """A machine that answers for its GPUs."""

    @property
    def book(self) -> HandleBook:
        """Handles that its pointers stand for."""

    def has(self, entry: EntryPoint) -> bool:
        """Its library has this entry point."""

    def answer(self, state: MachineState, entry: EntryPoint, inputs: Values) -> Values:
        """Results of a call, in order. Raises Nvml."""

    def changes(self, entry: EntryPoint) -> bool:
        """The call is answered by :meth:`change`."""

    def change(
        self, state: MachineState, entry: EntryPoint, inputs: Values, caller: NvmlClient
    ) -> tuple[MachineState, Values]:
        """The state after a call, and its results. Raises Nvml."""

    def check(self, state: MachineState, entry: EntryPoint, inputs: Values) -> None:
        """Raise Nvml where the machine refuses a call that the driver answers by itself."""

    def counters(self, state: MachineState, entry: EntryPoint, inputs: Values) -> object:
        """Counters that a call puts into a GPM sample. Raises Nvml."""

    def metrics(
        self, state: MachineState, older: FilledSample, newer: FilledSample, ids: Sequence[int]
    ) -> Value:
        """Return code and value of each GPM metric between two samples. Raises Nvml."""

    def bus_id(self, value: object) -> str | None:
        """The GPU a handle is about; None for anything else."""

    def device(self, bus_id: str) -> Hashable:
        """The handle of a GPU. Raises LookupError."""

    def now(self) -> float:
        """Monotonic seconds by the machine's clock."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """Results of a call, and the garbage to make of them."""

    values: Values
    garbage: Garbage | None = None


class SimulatedDriver:
    """NVML of one process over the machine in a state file; threads may share it.

    ``caller`` is that process; None: this one. ``changed`` gets the state that a call left.
    """

    def __init__(
        self,
        file: StateFile,
        machine: Answers,
        caller: CallingProcess | None = None,
        *,
        changed: Callable[[MachineState], None] = lambda _: None,
    ) -> None:
        self._file = file
        self._machine = machine
        self._changed = changed
        self._lock = threading.Lock()
        self._sessions = 0
        self._caller: CallingProcess = caller or ThisProcess()
        self._events = EventSets(file, self._caller)
        self._samples = GpmSamples()

    @property
    def book(self) -> HandleBook:
        """Handles that pointers stand for."""
        return self._machine.book

    def has(self, entry: EntryPoint) -> bool:
        """The library has this entry point."""
        return self._machine.has(entry) and entry.name not in self._file.read().missing

    def is_made_to_answer(self, name: str) -> bool:
        """Whether a GPU has a number to answer this entry point with."""
        return any(name in gpu.readings.numbers for gpu in self._file.read().gpus.values())

    def call(self, entry: EntryPoint, inputs: Values) -> CallResult:
        """Let a call meet the faults that stand when it comes, then answer it. Raises Nvml."""
        state = self._state()
        watched = state.log_calls or state.faults
        bus_ids = self._about(state, entry, inputs) if watched else ()
        if state.log_calls:
            clients.log_call(clients.call_log(self._file.path), entry.name, bus_ids)
        if not self._sessions and entry.name not in _WITHOUT_SESSION:
            raise Nvml(pynvml.NVML_ERROR_UNINITIALIZED)
        faults = matching_faults(state, entry.name, bus_ids)
        if not faults:
            return CallResult(self._answer(state, entry, inputs))
        garbage = suffer(self._file, faults, self._caller)
        state = self._state()  # much may have changed if a fault took its time
        values = self._answer(state, entry, inputs)
        late = suffer(self._file, faults, self._caller, late=True)
        return CallResult(values, late or garbage)

    def _answer(self, state: MachineState, entry: EntryPoint, inputs: Values) -> Values:
        if self._machine.changes(entry):
            return self._change(entry, inputs)
        if entry.name in gpm_samples.ENTRIES:
            return self._gpm(state, entry, inputs)
        if entry.name not in OWN_ENTRIES:
            return self._machine.answer(state, entry, inputs)
        self._machine.check(state, entry, inputs)
        return self._own(entry.name, inputs)

    def _state(self) -> MachineState:
        """The state now: resets whose time is over have ended."""
        return gpu_reset.settled(self._file.read(), self._machine.now())

    def _change(self, entry: EntryPoint, inputs: Values) -> Values:
        """A call that began a reset returns when it has ended."""
        values: Values = ()

        def change(state: MachineState) -> MachineState:
            nonlocal values
            settled = gpu_reset.settled(state, self._machine.now())
            state, values = self._machine.change(settled, entry, inputs, self._caller.client)
            return state

        state = self._file.edit(change, then=self._changed)
        bus_ids = {gpu for gpu in map(self._bus_id, inputs) if gpu in state.gpus}
        if any(gpu_reset.is_resetting(state, gpu) for gpu in bus_ids):
            wait_for_resets(bus_ids, self._state, self._caller.has_gone)
            self._file.edit(lambda newest: gpu_reset.settled(newest, self._machine.now()))
        return values

    def close(self) -> None:
        """End all sessions, as the end of the process would."""
        with self._lock:
            if self._sessions:
                self._sessions = 0
                self._file.edit(clients.without_client(self._caller.client))

    def _about(self, state: MachineState, entry: EntryPoint, inputs: Values) -> tuple[str, ...]:
        """Bus ids of the GPUs a call is about: by its handles, or by what it looks up."""
        values = inputs
        if entry.looks_up:
            try:
                values = self._machine.answer(state, entry, inputs)
            except Nvml:
                return ()
        named = (value.values() if isinstance(value, dict) else [value] for value in values)
        bus_ids = (self._bus_id(value) for group in named for value in group)
        return tuple(bus_id for bus_id in bus_ids if bus_id is not None)

    def _bus_id(self, value: object) -> str | None:
        if isinstance(value, GpmSample):
            return self._samples.bus_id(value)
        return self._machine.bus_id(value)

    def _gpm(self, state: MachineState, entry: EntryPoint, inputs: Values) -> Values:
        """Buffers are the driver's own, what is put into them is the machine's."""
        match entry.name:
            case "nvmlGpmSampleAlloc":
                self._machine.check(state, entry, inputs)
                return (self._samples.alloc(),)
            case "nvmlGpmSampleFree":
                self._samples.free(*inputs)
                return ()
            case "nvmlGpmMetricsGet":
                (request,) = inputs
                older, newer = self._samples.pair(request["sample1"], request["sample2"])
                return (self._machine.metrics(state, older, newer, request["metrics"]),)
        device, *instance, sample = inputs
        self._samples.need(sample)
        taken = FilledSample(
            bus_id=self._machine.bus_id(device),
            gpu_instance_id=instance[0] if instance else None,
            counters=self._machine.counters(state, entry, inputs),
        )
        self._samples.fill(sample, taken)
        return ()

    def _own(self, name: str, inputs: Values) -> Values:
        match name:
            case "nvmlInit_v2" | "nvmlInitWithFlags":  # no flag changes an answer here
                return self._init()
            case "nvmlShutdown":
                return self._shut_down()
            case "nvmlErrorString":
                return (ERROR_TEXTS.get(inputs[0], ERROR_TEXTS[999]),)
            case "nvmlEventSetCreate":
                return (self._events.create(),)
            case "nvmlDeviceRegisterEvents":
                return self._register(*inputs)
            case "nvmlEventSetWait_v2":
                return (self._event_fields(self._events.wait(*inputs)),)
            case "nvmlEventSetFree":
                self._events.free(*inputs)
                return ()
            case _:
                raise NotImplementedError(name)

    def _init(self) -> Values:
        condition = self._file.read().driver
        if condition == "mismatch":
            raise Nvml(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        if condition != "ok":
            raise Nvml(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        with self._lock:
            self._sessions += 1
            if self._sessions == 1:
                self._file.edit(clients.with_client(self._caller.client))
        return ()

    def _shut_down(self) -> Values:
        with self._lock:
            self._sessions -= 1
            if not self._sessions:
                self._file.edit(clients.without_client(self._caller.client))
        return ()

    def _register(self, device: Hashable, types: int, event_set: EventSet) -> Values:
        bus_id = self._machine.bus_id(device)
        if bus_id is None:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self._events.register(event_set, bus_id, types)
        return ()

    def _event_fields(self, event: XidEvent) -> Value:
        """c_nvmlEventData_t of an event."""
        ids = (event.gpu_instance_id, event.compute_instance_id)
        gpu_instance, compute_instance = (
            NO_INSTANCE if instance_id is None else instance_id for instance_id in ids
        )
        return {
            "device": self._machine.device(event.bus_id),
            "eventType": pynvml.nvmlEventTypeXidCriticalError,
            "eventData": event.code,
            "gpuInstanceId": gpu_instance,
            "computeInstanceId": compute_instance,
        }


def _error_texts() -> dict[int, str]:
    prefix = "NVML_ERROR_"
    names = (name for name in vars(pynvml) if name.startswith(prefix))
    texts = {getattr(pynvml, n): n.removeprefix(prefix).replace("_", " ").title() for n in names}
    return {pynvml.NVML_SUCCESS: "Success", **texts}


ERROR_TEXTS = _error_texts()
"""Return code to a text, made from the names pynvml has for the codes."""
