# SPDX-License-Identifier: Apache-2.0
"""The ways to bring GPUs to a layout: ours, nvidia-mig-parted, and wipe-and-permute."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from actuator.change import apply
from actuator.journal import Journal
from actuator.nvml_world import NvmlWorld
from api.mig_mode_change import ModeChange
from api.mig_outcome import Outcome
from discovery.nvml.session import close_session, open_session
from discovery.reader.protocol import Start
from mig.gpu_layout import MIG_OFF, layout_from_counts
from mig.mode_permission import ModePermission
from simulator.description.machine_schema import MachineDescription
from simulator.simulation import Simulation
from tests.bench.mig_changes.gpu_start import Desired, GpuStart
from tests.bench.mig_changes.simulated_gpus import SimulatedGpus
from tests.bench.mig_changes.wipe_and_permute import wipe_and_permute
from tests.foreign.parted_node import MODELS, PartedNode, parted_node

OURS = "gpuscape"
PARTED = "nvidia-mig-parted"
WIPE = "wipe-and-permute"
SKIPPING = "its `--skip-reset`"
MOST_TRIES = 3
"""Of an arm, with programs ended in between."""


class Change(Protocol):
    """What GPUs are to become."""

    @property
    def starts(self) -> Sequence[GpuStart]:
        """What is there, GPU by GPU."""

    @property
    def desired(self) -> Desired:
        """What is desired."""

    @property
    def is_possible(self) -> bool:
        """Whether GPUs can have it."""


class Arm(Protocol):
    """One way to change GPUs."""

    def change(self, gpus: SimulatedGpus, desired: Desired) -> bool:
        """Whether it says that the GPUs have their layouts now."""

    def in_the_way(self, gpus: SimulatedGpus, desired: Desired) -> Sequence[int]:
        """Programs that have to end after it failed, by pid."""


@dataclass
class Ours:
    """The actuator's change, over the driver."""

    _named: tuple[int, ...] = field(default=(), init=False)

    def change(self, gpus: SimulatedGpus, desired: Desired) -> bool:
        """Plans, journals, applies, reads back."""
        return gpus.within(lambda: self._changed(gpus, desired))

    def in_the_way(self, gpus: SimulatedGpus, desired: Desired) -> Sequence[int]:
        """Those whom the refusal names."""
        del gpus, desired
        return self._named

    def _changed(self, gpus: SimulatedGpus, desired: Desired) -> bool:
        simulation = gpus.simulation
        start = Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
        with (
            tempfile.TemporaryDirectory() as folder,
            Journal(Path(folder)) as journal,
            NvmlWorld(start) as world,
        ):
            uuids = {gpu.bus_id: gpu.uuid for gpu in world.observe()}
            layouts = {
                uuids[gpus.bus_ids[index]]: MIG_OFF if its is None else layout_from_counts(its)
                for index, its in desired.items()
            }
            result = apply(
                world,
                journal,
                layouts,
                origin="a benchmark",
                modes=ModePermission(by=ModeChange.DRIVER),
            )
        obstacles = () if result.refusal is None else result.refusal.obstacles
        self._named = tuple(
            int(one.name.split()[0]) for obstacle in obstacles for one in obstacle.users
        )
        return result.outcome in (Outcome.APPLIED, Outcome.UNCHANGED)


class Wiping:
    """Everything is destroyed, and orders are tried; on the only GPU."""

    def change(self, gpus: SimulatedGpus, desired: Desired) -> bool:
        """By pynvml."""
        [bus_id], [devices] = gpus.bus_ids, desired.values()
        assert devices is not None

        def wiped() -> bool:
            open_session()
            try:
                return wipe_and_permute(bus_id, devices)
            finally:
                close_session()

        return gpus.within(wiped)

    def in_the_way(self, gpus: SimulatedGpus, desired: Desired) -> Sequence[int]:
        """All: whoever runs on the GPU."""
        del desired
        return gpus.pids()


@dataclass
class Parted:
    """The program itself, through the C library."""

    node: PartedNode
    options: Sequence[str] = ()

    def change(self, gpus: SimulatedGpus, desired: Desired) -> bool:
        """Its exit code."""
        del gpus
        specs = [spec_of(index, devices) for index, devices in desired.items()]
        self.node.configure(yaml.safe_dump({"version": "v1", "mig-configs": {"wanted": specs}}))
        return self.node.run("apply", "wanted", *self.options).returncode == 0

    def in_the_way(self, gpus: SimulatedGpus, desired: Desired) -> Sequence[int]:
        """Whoever runs on the GPUs that are to change; after that, on all of them."""
        return gpus.pids(desired.keys()) or gpus.pids()


def spec_of(index: int, devices: Any) -> dict[str, Any]:
    """One GPU in mig-parted's format."""
    if devices is None:
        return {"devices": [index], "mig-enabled": False}
    return {"devices": [index], "mig-enabled": True, "mig-devices": dict(devices)}


Arms = tuple[SimulatedGpus, dict[str, Arm]]


@contextmanager
def arms(machine: MachineDescription, programs: Path | None) -> Iterator[Arms]:
    """A machine's GPUs and the arms over them; without ``programs`` mig-parted is left out."""
    own: dict[str, Arm] = {OURS: Ours(), WIPE: Wiping()}
    if programs is not None:
        with parted_node(machine, programs, "") as node:
            theirs: dict[str, Arm] = {
                PARTED: Parted(node),
                SKIPPING: Parted(node, ("--skip-reset",)),
            }
            yield SimulatedGpus(node.there.simulation), own | theirs
        return
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation.create(machine, Path(folder), models=MODELS)
        yield SimulatedGpus(simulation), own


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOutcome:
    """What one arm made of one change."""

    at_once: bool
    """The layouts are there, and no program had to end for it."""
    half_done: bool
    """The first try failed, and left something other than what was there."""
    reached: bool
    """The layouts are there in the end."""
    untrue: bool
    """The last try was reported as a success, and the layouts are not there."""
    disturbed: int
    """Programs that were ended, each on an instance or a GPU of its own."""
    destroyed: int
    """GPU instances that were there at the start and are gone."""
    parts_destroyed: int
    """Compute instances that were there at the start and are gone."""
    beside: int
    """Of these, those in a GPU instance where a program stays."""
    elsewhere: int
    """GPU instances that are gone from GPUs of which nothing was desired."""
    was_reset: frozenset[int]
    """GPUs that were reset."""
    waiting: int
    """GPUs with a mode that the next reset or boot brings."""
    calls: int
    """Of NVML, made to change something."""
    all_calls: int
    """Of NVML, readings too."""


def played(arm: Arm, gpus: SimulatedGpus, change: Change) -> ArmOutcome:
    """One arm, from the start of a change.

    Where it fails, the programs end that are in its way, and it tries again; without any there is
    no second try. A layout that no GPU can have is tried once.
    """
    gpus.put(change.starts)
    before = gpus.layout()
    said = arm.change(gpus, change.desired)
    at_once = reached = said and gpus.has(change.desired)
    half_done = not at_once and gpus.layout() != before
    disturbed = 0
    for _ in range(MOST_TRIES - 1):
        if reached or not change.is_possible:
            break
        ended = gpus.end(arm.in_the_way(gpus, change.desired))
        if not ended:
            break
        disturbed += ended
        said = arm.change(gpus, change.desired)
        reached = said and gpus.has(change.desired)
    destroyed, parts_destroyed = gpus.destroyed()
    return ArmOutcome(
        at_once=at_once,
        half_done=half_done,
        reached=reached,
        untrue=said and not reached,
        disturbed=disturbed,
        destroyed=destroyed,
        parts_destroyed=parts_destroyed,
        beside=gpus.beside(),
        elsewhere=gpus.destroyed(others_than=change.desired.keys())[0],
        was_reset=gpus.was_reset(),
        waiting=gpus.waiting(),
        calls=gpus.changing_calls(),
        all_calls=gpus.all_calls(),
    )
