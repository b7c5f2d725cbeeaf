# SPDX-License-Identifier: Apache-2.0
"""Event sets of one process: XIDs wait in the state file until they are delivered."""

from __future__ import annotations

import itertools
import time

import pynvml
from msgspec.structs import replace

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.driver.calling_process import CallingProcess
from simulator.driver.handles import EventSet
from simulator.state.machine_state import MachineState, XidEvent
from simulator.state.state_file import StateFile

NO_INSTANCE = 0xFFFFFFFF
"""GPU and compute instance id of an event that concerns a whole GPU."""

POLL_SECONDS = 0.02
"""Seconds between two checks of a wait for an event."""


class EventSets:
    """Event sets of this process, each with the GPUs that it listens to."""

    def __init__(self, file: StateFile, caller: CallingProcess) -> None:
        self._file = file
        self._caller = caller
        self._listening: dict[EventSet, frozenset[str]] = {}
        self._numbers = itertools.count()

    def create(self) -> EventSet:
        """A set that listens to nothing yet."""
        created = EventSet(number=next(self._numbers))
        self._listening[created] = frozenset()
        return created

    def register(self, event_set: EventSet, bus_id: str, types: int) -> None:
        """Listen to a GPU's XIDs; other types of events never come."""
        if types & pynvml.nvmlEventTypeXidCriticalError:
            self._listening[event_set] = self._bus_ids(event_set) | {bus_id}

    def free(self, event_set: EventSet) -> None:
        """Listen no more."""
        self._bus_ids(event_set)
        del self._listening[event_set]

    def wait(self, event_set: EventSet, milliseconds: int) -> XidEvent:
        """The oldest event, which no other wait will get. Raises Nvml: TIMEOUT."""
        deadline = time.monotonic() + milliseconds / 1000
        while (event := self._take(self._bus_ids(event_set))) is None:
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0 or self._caller.has_gone():
                raise Nvml(pynvml.NVML_ERROR_TIMEOUT)
            time.sleep(min(remaining_seconds, POLL_SECONDS))
        return event

    def _bus_ids(self, event_set: EventSet) -> frozenset[str]:
        if event_set not in self._listening:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._listening[event_set]

    def _take(self, bus_ids: frozenset[str]) -> XidEvent | None:
        """Take the oldest event on these GPUs out of the state, if there is one."""
        if not any(event.bus_id in bus_ids for event in self._file.read().events):
            return None
        taken: XidEvent | None = None

        def without(state: MachineState) -> MachineState:
            nonlocal taken
            taken = next((event for event in state.events if event.bus_id in bus_ids), None)
            return replace(state, events=tuple(e for e in state.events if e is not taken))

        self._file.edit(without)
        return taken
