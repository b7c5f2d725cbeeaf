# SPDX-License-Identifier: Apache-2.0
"""The ways to bring a GPU to a layout: ours, nvidia-mig-parted, and wipe-and-permute."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import yaml

from actuator.change import apply
from actuator.journal import Journal
from actuator.nvml_world import NvmlWorld
from api.mig_outcome import Outcome
from discovery.nvml.session import close_session, open_session
from discovery.reader.protocol import Start
from mig.gpu_layout import layout_from_counts
from simulator.simulation import Simulation
from tests.bench.mig_changes.simulated_gpu import SimulatedGpu
from tests.bench.mig_changes.transitions import Transition
from tests.bench.mig_changes.wipe_and_permute import wipe_and_permute
from tests.foreign.parted_node import MODELS, PartedNode, parted_node, with_one

OURS = "gpuscape"
PARTED = "nvidia-mig-parted"
WIPE = "wipe-and-permute"


class Arm(Protocol):
    """One way to change a GPU."""

    def change(self, gpu: SimulatedGpu, wanted: Counter[str]) -> bool:
        """Whether it says that the GPU has the layout now."""

    def in_the_way(self, gpu: SimulatedGpu) -> Sequence[int]:
        """Programs that have to end after it failed, by pid."""


@dataclass
class Ours:
    """The actuator's change, over the driver."""

    _named: tuple[int, ...] = field(default=(), init=False)

    def change(self, gpu: SimulatedGpu, wanted: Counter[str]) -> bool:
        """Plans, journals, applies, reads back."""
        return gpu.within(lambda: self._changed(gpu, wanted))

    def in_the_way(self, gpu: SimulatedGpu) -> Sequence[int]:
        """Those whom the refusal names."""
        del gpu
        return self._named

    def _changed(self, gpu: SimulatedGpu, wanted: Counter[str]) -> bool:
        start = Start(
            host_root=str(gpu.simulation.host_root), simulation=str(gpu.simulation.state_file)
        )
        with (
            tempfile.TemporaryDirectory() as folder,
            Journal(Path(folder)) as journal,
            NvmlWorld(start) as world,
        ):
            uuid = world.observe()[0].uuid
            result = apply(world, journal, {uuid: layout_from_counts(wanted)}, origin="a benchmark")
        obstacles = () if result.refusal is None else result.refusal.obstacles
        self._named = tuple(
            int(one.name.split()[0]) for obstacle in obstacles for one in obstacle.users
        )
        return result.outcome is Outcome.APPLIED


class Wiping:
    """Everything is destroyed, and orders are tried."""

    def change(self, gpu: SimulatedGpu, wanted: Counter[str]) -> bool:
        """By pynvml."""

        def wiped() -> bool:
            open_session()
            try:
                return wipe_and_permute(gpu.bus_id, wanted)
            finally:
                close_session()

        return gpu.within(wiped)

    def in_the_way(self, gpu: SimulatedGpu) -> Sequence[int]:
        """All: whoever runs on the GPU."""
        return gpu.pids


@dataclass
class Parted:
    """The program itself, through the C library."""

    node: PartedNode

    def change(self, gpu: SimulatedGpu, wanted: Counter[str]) -> bool:
        """Its exit code."""
        del gpu
        spec = {"devices": "all", "mig-enabled": True, "mig-devices": dict(wanted)}
        self.node.configure(yaml.safe_dump({"version": "v1", "mig-configs": {"wanted": [spec]}}))
        return self.node.run("apply", "wanted").returncode == 0

    def in_the_way(self, gpu: SimulatedGpu) -> Sequence[int]:
        """All: whoever runs on the GPU."""
        return gpu.pids


Arms = tuple[SimulatedGpu, dict[str, Arm]]


@contextmanager
def arms(model: str, programs: Path | None) -> Iterator[Arms]:
    """A GPU of a model and the arms over it; without ``programs`` nvidia-mig-parted is left out."""
    own: dict[str, Arm] = {OURS: Ours(), WIPE: Wiping()}
    if programs is not None:
        with parted_node(with_one(model), programs, "") as node:
            gpu = SimulatedGpu(node.there.simulation, MODELS[model])
            yield gpu, own | {PARTED: Parted(node)}
        return
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation.create(with_one(model), Path(folder), models=MODELS)
        yield SimulatedGpu(simulation, MODELS[model]), own


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOutcome:
    """What one arm made of one transition."""

    at_once: bool
    """The layout is there, and no program had to end for it."""
    half_done: bool
    """The first try failed, and left something other than what was there."""
    reached: bool
    """The layout is there in the end."""
    disturbed: int
    """Programs that were ended, each on an instance of its own."""
    destroyed: int
    """GPU instances that were there at the start and are gone."""
    calls: int
    """Of NVML, made to change something."""
    all_calls: int
    """Of NVML, readings too."""


def played(arm: Arm, gpu: SimulatedGpu, transition: Transition) -> ArmOutcome:
    """One arm, from the start of a transition.

    Where it fails, the programs end that are in its way, and it tries once more. A layout that no
    GPU can have is tried once.
    """
    gpu.put(transition)
    before = gpu.births()
    at_once = arm.change(gpu, transition.wanted) and gpu.has(transition.wanted)
    half_done = not at_once and gpu.births() != before
    reached, disturbed = at_once, 0
    if not at_once and transition.least is not None:
        disturbed = gpu.end(arm.in_the_way(gpu))
        reached = arm.change(gpu, transition.wanted) and gpu.has(transition.wanted)
    return ArmOutcome(
        at_once=at_once,
        half_done=half_done,
        reached=reached,
        disturbed=disturbed,
        destroyed=len(transition.there) - gpu.kept(),
        calls=gpu.changing_calls(),
        all_calls=gpu.all_calls(),
    )
