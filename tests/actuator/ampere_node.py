# SPDX-License-Identifier: Apache-2.0
"""A simulated node of A100s whose time is the test's, and the layouts that its GPUs may have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

import actuator.gpu_holders
import actuator.mode_reset
import actuator.nvml_world
import actuator.smi_reset
import actuator.worker
import simulator.driver.reset_wait
import simulator.simulation
from base.text import rfc3339
from discovery.mig_state import MigGpu, UnreadMigGpu
from discovery.nvml.mig_gpu import read_mig_gpu
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Simulation
from simulator.state.machine_state import GpuInstance, MachineState, initial
from tests.actuator.mode_judge import Shape
from tests.actuator.simulated_node import SimulatedNode, node

GPUS: Final = 3
_EPOCH: Final = 1_800_000_000.0
_TREE: Final[Mapping[str, int]] = {
    "1g.5gb": 7,
    "2g.10gb": 3,
    "3g.20gb": 1,
    "4g.20gb": 1,
    "7g.40gb": 0,
}
"""Id of a profile's first GPU instance in the driver's tree."""
_SIZES: Final[Mapping[str, int]] = {
    "1g.5gb": 1,
    "2g.10gb": 2,
    "3g.20gb": 4,
    "4g.20gb": 4,
    "7g.40gb": 8,
}
"""Memory units."""
BEFORE: Final[tuple[tuple[tuple[str, int], ...] | None, ...]] = (
    None,
    None,
    (),
    (("1g.5gb", 0), ("2g.10gb", 2), ("1g.5gb", 6)),
    (("3g.20gb", 0), ("3g.20gb", 4)),
    (("7g.40gb", 0),),
    (("4g.20gb", 0), ("1g.5gb", 5)),
)
"""None: MIG is off."""
DESIRED: Final[tuple[Mapping[str, int] | None, ...]] = (
    None,
    {},
    {"1g.5gb": 7},
    {"3g.20gb": 2},
    {"2g.10gb": 1, "1g.5gb": 1},
    {"1c.4g.20gb": 2, "2c.4g.20gb": 1},
)


@dataclass
class NodeTime:
    """Time of the node, which pauses and waits move."""

    now: float = 1000.0
    on_sleep: Callable[[float, bool], None] = lambda _seconds, _in_call: None

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float, *, in_call: bool = False) -> None:
        """Let time pass; ``in_call``: in a call of the driver, which has not returned."""
        self.now += seconds
        self.on_sleep(seconds, in_call)


@dataclass(frozen=True, slots=True)
class AmpereNode:
    """A node with A100s, and its time."""

    on: SimulatedNode
    time: NodeTime
    uuids: tuple[str, ...]


@contextmanager
def ampere_node(folder: Path) -> Iterator[AmpereNode]:
    """A node with A100s and simulated time."""
    clock = NodeTime()
    waits = SimpleNamespace(sleep=lambda _seconds: clock.sleep(1.0, in_call=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.simulation, "time", clock)
        patch.setattr(simulator.driver.reset_wait, "time", waits)
        patch.setattr(actuator.nvml_world, "time", _Clock(clock))
        patch.setattr(actuator.nvml_world, "openers", lambda *_, **__: {})
        day_time = lambda _world: rfc3339.whole_seconds(_EPOCH + clock.now)  # noqa: E731
        patch.setattr(actuator.nvml_world.NvmlWorld, "now", day_time)
        patch.setattr(actuator.gpu_holders, "openers", lambda *_, **__: {})
        patch.setattr(actuator.smi_reset, "_driver_root", lambda root: root)
        patch.setattr(actuator.worker, "_open_access", lambda *_: ())  # device nodes, not the GPUs
        defaults = {"clock": clock.monotonic, "sleep": clock.sleep}
        patch.setattr(actuator.mode_reset.read_back, "__kwdefaults__", defaults)
        on = node(folder, count=GPUS)
        patch.setattr(actuator.nvml_world, "read_mig_gpu", _Readings(on.simulation))
        yield AmpereNode(on, clock, tuple(gpu.uuid for gpu in on.gpus()))


class _Readings:
    """Readings of GPUs, each made once for a state: they take most of the time else."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._made: dict[bytes, MigGpu | UnreadMigGpu] = {}

    def __call__(self, bus_id: str) -> MigGpu | UnreadMigGpu:
        state = self._simulation.state
        gpu = state.gpus[bus_id]
        if state.faults or gpu.reset is not None:
            return read_mig_gpu(bus_id)
        processes = [process for process in state.processes if process.bus_id == bus_id]
        key = msgspec.json.encode((bus_id, gpu, processes))
        if key not in self._made:
            self._made[key] = read_mig_gpu(bus_id)
        return self._made[key]


class _Clock:
    """The module time, with the node's clock."""

    def __init__(self, node_time: NodeTime) -> None:
        self.monotonic, self.sleep = node_time.monotonic, node_time.sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def slices_of(instance: GpuInstance) -> tuple[int, ...]:
    return tuple(sorted((it.slices for it in instance.compute), reverse=True))


def as_layout(counts: Mapping[str, int] | None) -> GpuLayout:
    return MIG_OFF if counts is None else layout_from_counts(counts)


def mode_and_shape(
    desired: Mapping[int, Mapping[str, int] | None], index: int
) -> tuple[bool, Shape] | None:
    """As plain values, by the names of the profiles alone."""
    if index not in desired:
        return None
    counts = desired[index]
    if counts is None:
        return False, ()
    whole: list[tuple[str, tuple[int, ...]]] = [
        (name, (int(name[0]),)) for name, n in counts.items() if "c." not in name for _ in range(n)
    ]
    parts = [
        (name.partition(".")[2], int(name[0]))
        for name, n in counts.items()
        if "c." in name
        for _ in range(n)
    ]
    for holder in sorted({name for name, _ in parts}):
        sizes = sorted((size for name, size in parts if name == holder), reverse=True)
        whole.append((holder, tuple(sizes)))
    return True, tuple(sorted(whole))


def first_state(
    state: MachineState, layouts: list[tuple[tuple[str, int], ...] | None], now: float
) -> MachineState:
    """The machine as at its first boot, with these layouts."""
    assert state.machine is not None
    gpus = tuple(
        replace(
            gpu,
            mig=layout is not None,
            instances=tuple(
                MigInstanceSpec(
                    profile=profile, start=start, id=_TREE[profile] + start // _SIZES[profile]
                )
                for profile, start in layout or ()
            ),
        )
        for gpu, layout in zip(state.machine.gpus, layouts, strict=True)
    )
    return initial(state.name, replace(state.machine, gpus=gpus), state.models, now=now)


def with_pending(state: MachineState, bus_id: str) -> MachineState:
    gpu = state.gpus[bus_id]
    return replace(state, gpus=state.gpus | {bus_id: replace(gpu, mig_pending=not gpu.mig)})


def with_reset_ended(state: MachineState, bus_id: str) -> MachineState:
    """The reset that did not end is over."""
    return replace(state, gpus=state.gpus | {bus_id: replace(state.gpus[bus_id], reset=None)})
