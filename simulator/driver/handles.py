# SPDX-License-Identifier: Apache-2.0
"""Objects that the simulator's opaque handles stand for."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass

_FIRST = 0x7E0000
_STEP = 0x10


@dataclass(frozen=True, slots=True)
class DeviceHandle:
    """A GPU, or a MIG device of it where both instance ids are set."""

    bus_id: str
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    birth: int = 0
    """Birth of the compute instance: one that has its id later is another device."""
    renumbered: int = 0
    """``SimulatedGpuState.renumbered`` when it was given out; nothing for a MIG device."""

    @property
    def is_mig(self) -> bool:
        """It is a MIG device."""
        return self.gpu_instance_id is not None


@dataclass(frozen=True, slots=True)
class GpuInstanceHandle:
    """A GPU instance; one that has its id and place later is another."""

    bus_id: str
    id: int
    birth: int = 0


@dataclass(frozen=True, slots=True)
class ComputeInstanceHandle:
    """A compute instance."""

    bus_id: str
    gpu_instance_id: int
    id: int
    birth: int = 0


@dataclass(frozen=True, slots=True)
class EventSet:
    """An event set of this process."""

    number: int


@dataclass(frozen=True, slots=True)
class GpmSample:
    """A GPM sample buffer of this process."""

    number: int


class HandleTable:
    """Numbers that look like pointers for handles, the same ones for as long as it lives."""

    def __init__(self) -> None:
        self._pointers: dict[Hashable, int] = {}
        self._handles: dict[int, Hashable] = {}
        self._lock = threading.Lock()

    def pointer(self, handle: Hashable) -> int:
        """The number of a handle, made on first use."""
        with self._lock:
            if handle not in self._pointers:
                number = _FIRST + _STEP * len(self._pointers)
                self._pointers[handle] = number
                self._handles[number] = handle
            return self._pointers[handle]

    def handle(self, pointer: int) -> Hashable:
        """The handle that has this number. Raises KeyError where none has."""
        return self._handles[pointer]
