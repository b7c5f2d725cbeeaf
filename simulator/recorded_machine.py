# SPDX-License-Identifier: Apache-2.0
"""A recorded machine answers for its GPUs."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence

import pynvml

from discovery.bus_id import normal_bus_id
from discovery.nvml_abi.argument_kinds import In, Nvml, Out
from discovery.nvml_abi.c_values import HANDLES, Value
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.answers.change_answers import CHANGES
from simulator.driver.gpm_samples import FilledSample
from simulator.driver.handles import HandleTable
from simulator.driver.simulated_driver import OWN_ENTRIES, Values
from simulator.recording_file import RecordedCall, Token, call_key
from simulator.state.machine_state import MachineState, NvmlClient

_FIELDS = "nvmlDeviceGetFieldValues"
_NOT_SUPPORTED = {"nvmlReturn": pynvml.NVML_ERROR_NOT_SUPPORTED, "value": 0}
_TAKING = ("nvmlGpmSampleGet", "nvmlGpmMigSampleGet")


class _TokenBook(HandleTable):
    """Recorded outputs name handles by their bare numbers."""

    def pointer(self, handle: Hashable) -> int:
        """The number of a handle in C; NULL stays NULL."""
        if handle in (0, Token(0)):
            return 0
        return super().pointer(Token(handle) if isinstance(handle, int) else handle)


class RecordedMachine:
    """Answers each call as it was answered when it was recorded, errors included.

    What was never recorded is answered as by a driver with fewer features:

    - an entry point that was never called is not in the library (FUNCTION_NOT_FOUND),
      as with an older driver; readers know to do without. Those that change MIG are there;
    - one that was called, but not with these inputs, is NOT_SUPPORTED, as for a
      device that lacks it; a look-up is NOT_FOUND, as for a device that is not there;
    - of many things that are read in one call, each is answered as in whatever call it
      was read.

    Sessions, clients and events are the driver's own; they work though they were
    not recorded, unless the recorded machine refused them.
    """

    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        self.book = _TokenBook()
        self._calls = {_key(call): call for call in calls}
        self._entries = {call.entry for call in calls}
        self._samples = _SampleOrigins(calls)
        self._fields = _Fields(calls)
        self._bus_ids = _bus_ids(calls)

    def has(self, entry: EntryPoint) -> bool:
        """Whether it was called, is the driver's own, or changes MIG, which no recording tries."""
        return entry.name in self._entries or entry.name in OWN_ENTRIES or entry.name in CHANGES

    def answer(self, state: MachineState, entry: EntryPoint, inputs: Values) -> Values:
        """Results as recorded. Raises Nvml as recorded, or as the class says."""
        del state  # it changes nothing about what was recorded
        call = self._calls.get(call_key(entry, inputs))
        if call is None and entry.name == _FIELDS:
            return (self._fields.values(*inputs),)
        if call is None:
            code = pynvml.NVML_ERROR_NOT_FOUND if entry.looks_up else None
            raise Nvml(code or pynvml.NVML_ERROR_NOT_SUPPORTED)
        if call.code != pynvml.NVML_SUCCESS:
            raise Nvml(call.code)
        return tuple(call.outputs[name] for name in entry.outputs)

    def changes(self, entry: EntryPoint) -> bool:
        """False: no call changes the recorded machine."""
        del entry
        return False

    def change(
        self, state: MachineState, entry: EntryPoint, inputs: Values, caller: NvmlClient
    ) -> tuple[MachineState, Values]:
        """Not called."""
        raise NotImplementedError

    def check(self, state: MachineState, entry: EntryPoint, inputs: Values) -> None:
        """Refuse what the recorded machine refused."""
        if call_key(entry, inputs) in self._calls:
            self.answer(state, entry, inputs)

    def counters(self, state: MachineState, entry: EntryPoint, inputs: Values) -> object:
        """Key of the call that took a GPM sample, by which its recorded metrics are found."""
        self.answer(state, entry, inputs)
        return call_key(entry, inputs)

    def metrics(
        self, state: MachineState, older: FilledSample, newer: FilledSample, ids: Sequence[int]
    ) -> Value:
        """Metrics as recorded for two samples of the same origin, whenever they were taken."""
        del state, older
        return self._samples.metrics(newer.counters, ids)

    def bus_id(self, value: object) -> str | None:
        """The GPU a handle is about, as far as the recorded calls show it."""
        return self._bus_ids.get(value) if isinstance(value, Token) else None

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def device(self, bus_id: str) -> Hashable:
        """The first handle seen of a GPU."""
        for token, recorded_id in self._bus_ids.items():
            if recorded_id == bus_id:
                return token
        raise LookupError(f"the recording has no GPU at {bus_id}")


class _Fields:
    """Field values by device, field and scope, whatever was read together with them."""

    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        self._values: dict[Token, dict[tuple[int, int], Value]] = {}
        for call in calls:
            if call.entry == _FIELDS:
                of_device = self._values.setdefault(Token(call.inputs["device"]), {})
                for value in call.outputs.get("values", ()):
                    of_device[value["fieldId"], value["scopeId"]] = value

    def values(self, device: Token, requests: Sequence[Mapping[str, int]]) -> Value:
        """Recorded field values. Raises Nvml: NOT_SUPPORTED where the device has none."""
        recorded = self._values.get(device)
        if not recorded:
            raise Nvml(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [
            recorded.get((request["fieldId"], request["scopeId"]), _NOT_SUPPORTED)
            for request in requests
        ]


class _SampleOrigins:
    """Metrics computed from recorded GPM samples, by the call that took the samples."""

    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        taken = {call.inputs["sample"]: _key(call) for call in calls if call.entry in _TAKING}
        self._calls: dict[object, list[RecordedCall]] = {}
        for call in calls:
            if call.entry == "nvmlGpmMetricsGet":
                request = call.inputs["metricsGet"]
                # of the buffers that took turns, the newest answer names one alone
                origin = taken.get(request["sample2"], taken.get(request["sample1"]))
                self._calls.setdefault(origin, []).append(call)

    def metrics(self, origin: object, ids: Sequence[int]) -> Value:
        """Recorded metrics; NOT_SUPPORTED where none was read. Raises Nvml as recorded."""
        calls = self._calls.get(origin, [])
        for call in calls:
            if call.code != pynvml.NVML_SUCCESS and call.inputs["metricsGet"]["metrics"] == ids:
                raise Nvml(call.code)
        recorded = {
            answer["metricId"]: answer
            for call in calls
            for answer in call.outputs.get("metricsGet", ())
        }
        return [recorded.get(metric, _NOT_SUPPORTED) for metric in ids]


def _key(call: RecordedCall) -> bytes:
    entry = TABLE[call.entry]
    return call_key(entry, [call.inputs[name] for name in entry.inputs])


def _bus_ids(calls: Sequence[RecordedCall]) -> dict[Token, str]:
    """Handle to its GPU's bus id: read from the GPU, or passed on from handle to handle."""
    known: dict[Token, str] = {}
    for call in calls:
        if call.code == pynvml.NVML_SUCCESS and call.entry == "nvmlDeviceGetPciInfo_v3":
            bus_id = normal_bus_id(call.outputs["pci"]["busId"])
            known[Token(call.inputs["device"])] = bus_id
        if call.code == pynvml.NVML_SUCCESS and call.entry == "nvmlDeviceGetHandleByPciBusId_v2":
            known[Token(call.outputs["device"])] = normal_bus_id(call.inputs["busId"])
    for call in calls:
        for source, target in _passed_on(call):
            if source in known:
                known.setdefault(target, known[source])
    return known


def _passed_on(call: RecordedCall) -> Iterator[tuple[Token, Token]]:
    """Handles that a call takes, each with one that it gives for it."""
    entry = TABLE[call.entry]
    takes = [kind.name for kind in entry.kinds if isinstance(kind, In) and kind.ctype in HANDLES]
    gives = [kind.name for kind in entry.kinds if isinstance(kind, Out) and kind.ctype in HANDLES]
    for source in takes:
        for target in gives:
            if target in call.outputs:
                yield Token(call.inputs[source]), Token(call.outputs[target])
