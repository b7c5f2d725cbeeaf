# SPDX-License-Identifier: Apache-2.0
"""Values of a GPU's sensors: a pure function of the GPU, the time and its processes.

An idle GPU varies a little and smoothly, each reading in its own rhythm; processes
make it busy. Counters only grow. Readings set in the state go before all this.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from simulator.description.machine_schema import Model
from simulator.machine_view import SimulatedGpu
from simulator.state.machine_state import SimulatedProcess

_IDLE_CELSIUS = 30
_BUSY_CELSIUS = 38
"""How much warmer a GPU is at its power limit."""
_MEMORY_WARMER_CELSIUS = 5
_CLOCK_STEP_MHZ = 15
_IDLE_POWER_SWING = 0.02
"""Idle power varies by this share of itself."""
_IDLE_LINK_KIB_PER_SECOND = 2.0
"""Traffic of each active link that nobody uses."""
_BUSY_LINK_SHARE = 0.2
"""Share of the line rate that the first link sends when the GPU is fully busy; each further one
carries a little more, so that no two are alike."""
_MORE_WITH_EACH_LINK = 0.01
_RECEIVED_SHARE = 0.75
"""Data that a link receives, as a share of the data that it sends."""
_IDLE_PCIE_BYTES_PER_SECOND = 4096
_BUSY_PCIE_BYTES_PER_SECOND = {"sent": 1_500_000_000, "received": 2_500_000_000}
_HELD_DOWN_BY_POWER = 0.02
"""Share of a GPU's fully busy time for which power holds its clocks down."""
_KIB = 1024
_MEGA = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """Computed sensor values of one simulated GPU at one moment."""

    gpu: SimulatedGpu
    now: float
    """Monotonic seconds."""

    @property
    def uptime(self) -> float:
        """Seconds since the driver was loaded."""
        return self.now - self.gpu.view.state.started

    @property
    def busy(self) -> float:
        """How busy processes keep the GPU, 0 to 1."""
        return min(100, sum(process.percent for process in self.gpu.processes)) / 100

    def sm_clock_mhz(self) -> int:
        """Between idle and highest clock, in steps."""
        model = self.gpu.model
        rise = (model.max_sm_clock_mhz - model.sm_clock_mhz) * self.busy
        clock = model.sm_clock_mhz + round(rise / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ
        return _first(self.gpu.state.readings.sm_clock_mhz, clock)

    def memory_clock_mhz(self) -> int | None:
        """Idle or, with any process, the highest; None where the driver gives none."""
        model = self.gpu.model
        highest = model.max_memory_clock_mhz or model.memory_clock_mhz
        clock = highest if self.busy else model.memory_clock_mhz
        configured = self.gpu.state.readings.memory_clock_mhz
        return clock if configured is None else configured

    def gpu_celsius(self) -> int:
        """Warmer when busy; each GPU a little different."""
        own = _seed(self.gpu, "celsius") % 5
        warm = _IDLE_CELSIUS + own + _BUSY_CELSIUS * self.busy + self._wave("celsius", 90.0)
        return _first(self.gpu.state.readings.gpu_celsius, round(warm))

    def memory_celsius(self) -> int:
        """A little above the GPU."""
        warm = self.gpu_celsius() + _MEMORY_WARMER_CELSIUS
        return _first(self.gpu.state.readings.memory_celsius, warm)

    def power_milliwatts(self) -> int:
        """Power draw, from idle to the limit."""
        idle = self.gpu.model.idle_watts * (1 + _IDLE_POWER_SWING * self._wave("power", 20.0))
        watts = idle + self._busy_watts(self.busy)
        return _first(self.gpu.state.readings.power_milliwatts, round(1000 * watts))

    def energy_millijoules(self) -> int:
        """Energy since the driver was loaded: idle, running and ended processes.

        It leaves out the swing of the idle power, which cancels out over time.
        """
        joules = self.gpu.model.idle_watts * self.uptime + self.gpu.state.spent_joules
        joules += sum(
            process_joules(self.gpu.model, process, self.now) for process in self.gpu.processes
        )
        return _first(self.gpu.state.readings.energy_millijoules, round(1000 * joules))

    def gpu_percent(self) -> int:
        """Share of time with a kernel running."""
        return _first(self.gpu.state.readings.gpu_percent, round(100 * self.busy))

    def memory_percent(self) -> int:
        """Share of time with memory read or written: half as much as kernels run."""
        return _first(self.gpu.state.readings.memory_percent, round(50 * self.busy))

    def link_kib(self, links: Collection[int], *, received: bool) -> int:
        """Data carried over these links, in one direction; with MIG on, processes use none."""
        idle = len(links) * _IDLE_LINK_KIB_PER_SECOND * self.uptime
        rate = self.gpu.model.nvlink_mbps * _MEGA / _KIB * _BUSY_LINK_SHARE
        rate *= _RECEIVED_SHARE if received else 1
        weight = sum(1 + _MORE_WITH_EACH_LINK * link for link in links)
        worked = 0.0 if self.gpu.state.mig else self.worked_seconds()
        return int(idle + weight * rate * worked)

    def pcie_bytes(self, way: Literal["sent", "received"]) -> int:
        """Bytes over PCIe since the driver was loaded."""
        busy = _BUSY_PCIE_BYTES_PER_SECOND[way] * self.worked_seconds()
        return int(_IDLE_PCIE_BYTES_PER_SECOND * self.uptime + busy)

    def held_down_by_power_nanoseconds(self) -> int:
        """Time for which power held clocks down, since the driver was loaded."""
        return int(1e9 * _HELD_DOWN_BY_POWER * self.worked_seconds())

    def worked_seconds(self) -> float:
        """Seconds for which all that ran on the GPU would have kept it fully busy; only grows."""
        model = self.gpu.model
        joules = sum(process_joules(model, process, self.now) for process in self.gpu.processes)
        joules += self.gpu.state.spent_joules
        return joules / (model.power_limit_watts - model.idle_watts)

    def performance_state(self) -> int:
        """The fastest as soon as there is anything to do."""
        idle = 0 if self.busy else self.gpu.model.idle_performance_state
        return _first(self.gpu.state.readings.performance_state, idle)

    def _busy_watts(self, share: float) -> float:
        return (self.gpu.model.power_limit_watts - self.gpu.model.idle_watts) * share

    def _wave(self, reading: str, period: float) -> float:
        """From -1 to 1 and back in a period, every GPU and reading at its own moment."""
        phase = _seed(self.gpu, reading) / 2**32
        return math.sin(2 * math.pi * (self.uptime / period + phase))


def process_joules(model: Model, process: SimulatedProcess, now: float) -> float:
    """Energy one process has cost so far, beyond what a GPU of this model draws idle."""
    watts = (model.power_limit_watts - model.idle_watts) * process.percent / 100
    return watts * max(0.0, now - process.started)


def _seed(gpu: SimulatedGpu, reading: str) -> int:
    return zlib.crc32(f"{gpu.spec.bus_id}/{reading}".encode())


def _first(configured: int | None, computed: int) -> int:
    return computed if configured is None else configured
