# SPDX-License-Identifier: Apache-2.0
"""What the GPUs of a simulated machine measure at each moment, and which scrapes contradict it."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from discovery.bus_id import normal_bus_id
from simulator.simulation import Simulation
from simulator.state.machine_state import MachineState

PLACES: Final = 32
"""More GPUs than a machine has: no two GPUs ever measure the same."""
_SERIES: Final = re.compile(
    r"^(?P<family>DCGM_FI_DEV_POWER_USAGE|DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION)"
    r'\{[^}]*pci_bus_id="(?P<bus_id>[^"]+)"[^}]*\} (?P<value>\S+)$',
    re.MULTILINE,
)
_MILLI: Final = {"DCGM_FI_DEV_POWER_USAGE": 1000, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1}
"""From a family's unit to that of NVML: watts and millijoules to thousandths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One reading in a scrape."""

    bus_id: str
    number: int
    """In NVML's unit, milliwatts or millijoules."""


def shown(text: str) -> Iterator[Shown]:
    """The readings of an exposition that can be judged."""
    for found in _SERIES.finditer(text):
        yield Shown(
            bus_id=normal_bus_id(found["bus_id"]),
            number=round(float(found["value"]) * _MILLI[found["family"]]),
        )


class Truth:
    """Changes power and energy of every GPU all the time, and remembers when each number held.

    As a context manager it does so within, in a thread.
    """

    def __init__(self, simulation: Simulation, every_seconds: float) -> None:
        self.simulation = simulation
        self._every_seconds = every_seconds
        self._places = {bus_id: at for at, bus_id in enumerate(simulation.state.gpus, start=1)}
        self._until: list[float] = []
        """When each step's numbers were replaced, by step: they may have been read until then."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.step()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def step(self) -> None:
        """Replace the numbers of all GPUs at once."""
        step = len(self._until)
        self.simulation.edit(lambda state: self._at(state, step))
        if self._until:
            self._until[-1] = time.monotonic()
        self._until.append(math.inf)

    def last_true(self, reading: Shown) -> float | None:
        """Until when the GPU measured this number, infinite if it does now; None: never."""
        step, place = divmod(reading.number, PLACES)
        if place != self._places.get(reading.bus_id) or not 0 <= step < len(self._until):
            return None
        return self._until[step]

    def untrue(self, text: str, oldest: float) -> list[str]:
        """The readings of an exposition that no GPU measured since ``oldest``."""
        found = []
        for each in shown(text):
            last = self.last_true(each)
            if last is None:
                found.append(f"{each.bus_id} never measured {each.number}")
            elif last < oldest:
                late = oldest - last
                found.append(f"{each.bus_id} measured {each.number} {late:.1f} s too long ago")
        return found

    def fresh(self, text: str, since: float) -> frozenset[str]:
        """The GPUs, by bus id, all of whose readings are there and were true after ``since``."""
        last: dict[str, list[float]] = {}
        for each in shown(text):
            last.setdefault(each.bus_id, []).append(self.last_true(each) or 0.0)
        return frozenset(
            gpu for gpu, of in last.items() if len(of) == len(_MILLI) and min(of) > since
        )

    def _at(self, state: MachineState, step: int) -> MachineState:
        gpus = {
            bus_id: replace(
                gpu,
                readings=replace(
                    gpu.readings,
                    power_milliwatts=step * PLACES + self._places[bus_id],
                    energy_millijoules=step * PLACES + self._places[bus_id],
                ),
            )
            for bus_id, gpu in state.gpus.items()
        }
        return replace(state, gpus=gpus)

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            self.step()
