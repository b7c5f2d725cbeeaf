# SPDX-License-Identifier: Apache-2.0
"""A machine made from data answers for its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.c_values import Value
from discovery.nvml_abi.entry_point import EntryPoint
from simulator.answers import ANSWERS
from simulator.answers.change_answers import CHANGES
from simulator.driver.gpm_samples import FilledSample
from simulator.driver.handles import (
    ComputeInstanceHandle,
    DeviceHandle,
    GpuInstanceHandle,
    HandleTable,
)
from simulator.driver.simulated_driver import Values
from simulator.machine_view import MachineView
from simulator.state.machine_state import MachineState, NvmlClient


class ComputedMachine:
    """Answers of a machine that is computed from its state; ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.book = HandleTable()
        self._clock = clock
        self._newest: MachineView | None = None

    def has(self, entry: EntryPoint) -> bool:
        """True: the newest driver has every entry point."""
        del entry
        return True

    def answer(self, state: MachineState, entry: EntryPoint, inputs: Values) -> Values:
        """Results of a call, in order. Raises Nvml: NOT_SUPPORTED where nothing answers."""
        view = self._view(state)
        if inputs and isinstance(inputs[0], DeviceHandle):
            numbers = state.gpus[inputs[0].bus_id].readings.numbers
            arguments = ",".join(map(str, inputs[1:])) if numbers else ""
            number = numbers.get(f"{entry.name}({arguments})", numbers.get(entry.name))
            if number is not None:
                view.gpu(inputs[0])  # refuses where it is gone
                return (number,)
        function = ANSWERS.get(entry.name)
        if function is None:
            raise Nvml(pynvml.NVML_ERROR_NOT_SUPPORTED)
        answer = function(view, *inputs)
        if len(entry.outputs) == 1:
            return (answer,)
        return answer or ()

    def changes(self, entry: EntryPoint) -> bool:
        """Whether the call changes MIG mode or instances, or begins to use them."""
        return entry.name in CHANGES

    def change(
        self, state: MachineState, entry: EntryPoint, inputs: Values, caller: NvmlClient
    ) -> tuple[MachineState, Values]:
        """The next state, and the results. Raises Nvml: then nothing has changed."""
        changed, answer = CHANGES[entry.name](self._view(state), caller, *inputs)
        return changed, (answer,) if entry.outputs else ()

    def check(self, state: MachineState, entry: EntryPoint, inputs: Values) -> None:
        """Init fails without a driver; a call on a GPU that is gone fails."""
        without_driver = state.machine is None or state.machine.driver is None
        if without_driver and entry.name.startswith("nvmlInit"):
            raise Nvml(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        for device in inputs:
            if isinstance(device, DeviceHandle):
                self._view(state).gpu(device)

    def counters(self, state: MachineState, entry: EntryPoint, inputs: Values) -> object:
        """GPM counters of a GPU or of one of its GPU instances. Raises Nvml."""
        return ANSWERS[entry.name](self._view(state), *inputs[:-1])

    def metrics(
        self, state: MachineState, older: FilledSample, newer: FilledSample, ids: Sequence[int]
    ) -> Value:
        """Return code and value of each GPM metric between two samples."""
        return ANSWERS["nvmlGpmMetricsGet"](self._view(state), older.counters, newer.counters, ids)

    def bus_id(self, value: object) -> str | None:
        """The GPU a handle is about."""
        if isinstance(value, DeviceHandle | GpuInstanceHandle | ComputeInstanceHandle):
            return value.bus_id
        return None

    def device(self, bus_id: str) -> Hashable:
        """The handle of a GPU."""
        gpu = None if self._newest is None else self._newest.state.gpus[bus_id]
        return DeviceHandle(bus_id, renumbered=0 if gpu is None else gpu.renumbered)

    def now(self) -> float:
        """Monotonic seconds by the machine's clock."""
        return self._clock()

    def _view(self, state: MachineState) -> MachineView:
        view = self._newest
        if view is None or view.state is not state:
            if state.machine is None:
                raise ValueError("this state is a recording's")
            self._newest = view = MachineView(state, state.machine, self._clock)
        return view
