# SPDX-License-Identifier: Apache-2.0
"""A device reader on a simulated machine, with real children and a clock that the test sets."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable

import psutil

from discovery.known_node_gpus import KnownGpus
from discovery.reader.child import PROGRAM
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import ReaderLimits, Start
from simulator.simulation import Simulation

DEADLINE_SECONDS = 1.0
SOON = 30.0
"""For something that happens at once, even where the machine is busy."""


class ReaderBench:
    """A reader on a simulated machine, with a clock that the test sets."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        init_seconds: float = DEADLINE_SECONDS,
        leaves_slow_gpus: bool = False,
        age_seconds: float = math.inf,
        limits: ReaderLimits | None = None,
        events: bool = True,
        known_gpus: KnownGpus | None = None,
    ) -> None:
        self.simulation = simulation
        self.now = 1000.0
        self.faults = tuple(fault.id for fault in simulation.state.faults)
        """Numbers of the faults that the machine had at the start."""
        self.on_news: Callable[[], None] = lambda: None
        self.reader = DeviceReader(
            Start(
                host_root=str(simulation.host_root),
                simulation=str(simulation.state_file),
                limits=limits or ReaderLimits(),
                events=events,
            ),
            deadline_seconds=deadline_seconds,
            init_seconds=init_seconds,
            leaves_slow_gpus=leaves_slow_gpus,
            age_seconds=age_seconds,
            known_gpus=known_gpus,
            on_news=lambda: self.on_news(),
            clock=lambda: self.now,
        )
        self.bus_ids = tuple(gpu.bus_id for gpu in self.reader.discover().gpus)

    def probe(self) -> tuple[str, ...]:
        """Try the quarantined GPUs that are due; those that answered."""
        return tuple(self.reader.probe())

    def states(self) -> list[str]:
        return [gpu.state.value for gpu in self.reader.discover().gpus]

    def children(self) -> list[psutil.Process]:
        """Device readers of this process that are still there, stopped ones too."""
        found = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it may end as we look
                if str(PROGRAM) in child.cmdline():
                    found.append(child)
        return found

    def close(self) -> None:
        self.simulation.clear()
        for child in self.children():
            os.kill(child.pid, signal.SIGCONT)
        self.reader.close()


def until(true: Callable[[], bool]) -> None:
    """Wait for something that is bound to come."""
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
