# SPDX-License-Identifier: Apache-2.0
"""Samples of a simulated machine, taken in this process on a clock that the test sets."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from discovery.model import GpuSnapshot, MigDevice, NvidiaFacts
from discovery.nvml.history import History
from discovery.nvml.samples import read_sample
from discovery.nvml.session import close_session, open_gpu, open_session
from discovery.sample import GpuSample, Process, ReadingGroup
from simulator import simulation
from simulator.description.machine_schema import Gpu, Model
from simulator.simulation import Simulation
from tests import machines

EVERY_GROUP = tuple(ReadingGroup)
STARTED_SECONDS = 1000.0


class Sampler:
    """A session on a machine, whose time goes on only when a sample is taken."""

    def __init__(self, simulated: Simulation, clock: SimpleNamespace) -> None:
        self.simulation = simulated
        self.history = History()
        self._clock = clock

    @property
    def now(self) -> float:
        seconds: float = self._clock.seconds
        return seconds

    def wait(self, seconds: float) -> None:
        """Let time go on, for the machine too."""
        self._clock.seconds += seconds

    def sample(
        self, gpu: str, groups: Collection[ReadingGroup] = EVERY_GROUP, *, after: float = 10.0
    ) -> GpuSample:
        """The GPU at this bus id, so many seconds later."""
        self.wait(after)
        handle, gap = open_gpu(gpu)
        assert gap is None
        others = [bus_id for bus_id in self.simulation.state.gpus if bus_id != gpu]
        peers = ((bus_id, open_gpu(bus_id)[0]) for bus_id in others)
        return read_sample(
            gpu, handle, lambda: self._clock.seconds, groups, self.history, peers=peers
        )

    def calls(self, act: Callable[[], object]) -> Counter[str]:
        """C names of what is called while something is done, and how often."""
        self.simulation.log_calls()
        act()
        counted: Counter[str] = Counter()
        for (entry, _), times in self.simulation.calls().items():
            counted[entry] += times
        self.simulation.log_calls(False)
        return counted


@contextmanager
def sampler(make: Callable[[], Simulation]) -> Iterator[Sampler]:
    """A session on the machine that ``make`` makes, ten minutes after its start."""
    clock = SimpleNamespace(seconds=STARTED_SECONDS)
    clock.monotonic = lambda: clock.seconds
    with mock.patch.object(simulation, "time", clock):
        simulated = make()
        clock.seconds += 600
        with simulated:
            open_session()
            taken = Sampler(simulated, clock)
            yield taken
            taken.history.close()
            close_session()


def hopper(**facts: Any) -> Model:
    """A small model that has all there is, GPM and MIG without a reset among it."""
    plain: dict[str, Any] = {
        "architecture": 9,
        "reset_for_mig": False,
        "profiling": True,
        "pcie_counters": True,
        "fan": True,
        "nvlink_version": 7,
    }
    return machines.model(**plain | facts)


@contextmanager
def small(directory: Path, *gpus: Gpu, **facts: Any) -> Iterator[Sampler]:
    """A machine of these GPUs, or of two, of a model as :func:`hopper` gives it."""
    models = {"small": hopper(**facts)}
    with sampler(lambda: machines.simulation(directory, *gpus, models=models)) as taken:
        yield taken


def leaves(value: GpuSample | GpuSnapshot | NvidiaFacts) -> dict[str, Any]:
    """Every reading that there is, by its path; items of a list by what numbers them."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if isinstance(part, NvidiaFacts):  # gaps name its fields alone
            found |= leaves(part)
        elif field.name not in ("bus_id", "at_seconds", "gaps"):
            found |= _below(field.name, part)
    return found


def _below(path: str, value: Any) -> dict[str, Any]:
    if value is None or value == ():
        return {}
    found: dict[str, Any] = {}
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            found |= _below(f"{path}.{field.name}", getattr(value, field.name))
        return found
    if isinstance(value, tuple) and not all(isinstance(item, int) for item in value):
        for item in value:
            number, rest = _numbered(item)
            found |= _below(f"{path}.{number}", rest)
        return found
    return {path: value}


def _numbered(item: Any) -> tuple[object, Any]:
    if isinstance(item, tuple):
        return item
    match item:
        case MigDevice():
            return f"{item.gpu_instance_id}-{item.compute_instance_id}", item
        case Process():
            return f"{item.pid}-{item.kind}", item
        case _:
            return item.link, item
