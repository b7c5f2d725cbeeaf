# SPDX-License-Identifier: Apache-2.0
"""What nvidia-mig-parted gets wrong on simulated GPUs, and ours does not.

Each case runs three times: by ours, by a naive implementation, and by the program itself.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from actuator.change import apply
from actuator.journal import Journal
from actuator.nvml_world import NvmlWorld
from base.errors import BadInput
from discovery.reader.protocol import Start
from mig.configs.config_choice import config_layouts
from mig.configs.mig_config_file import parse_mig_configs
from mig.gpu_layout import has_layout
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription, MigInstanceSpec
from simulator.simulation import Simulation
from simulator.state.edits import with_gpu_changed
from simulator.state.machine_state import GpuInstance
from tests.foreign.naive_mig_parted import counted_devices, naive_apply, naive_assert
from tests.foreign.parted_node import MODELS, parted_node

SEVEN = tuple(MigInstanceSpec(profile="1g.5gb", start=at, id=7 + at) for at in range(7))
TWO = (MigInstanceSpec(profile="3g.40gb", start=4, id=2),)

Apply = Callable[[Simulation, str], bool]
"""Apply the only configuration of a file; whether it says that this succeeded."""


def machine(name: str, *gpus: Sequence[MigInstanceSpec] | None) -> MachineDescription:
    """A machine with GPUs that have these instances; None: MIG is off."""
    whole = load_machine(name)
    made = [
        replace(gpu, mig=its is not None, instances=tuple(its or ()))
        for gpu, its in zip(whole.gpus, gpus, strict=False)
    ]
    return replace(whole, gpus=tuple(made), direct=())


A100, H100 = "dgx-a100", "hgx-h100"


def config(*specs: str) -> str:
    """A file with one configuration."""
    lines = "".join(f"  - {{{spec}}}\n" for spec in specs)
    return f"version: v1\nmig-configs:\n  wanted:\n{lines}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A node and a configuration, and what is right afterwards."""

    gpus: MachineDescription
    text: str
    untouched: frozenset[int] = frozenset()
    """GPUs whose instances must be the same ones as before."""
    wanted: Counter[str] | None = None
    """Of GPU 0, where success is right; None: the configuration must be refused."""
    hollow: GpuInstance | None = None
    """What GPU 0 has in place of its instances."""


CASES = {
    "an unknown profile empties the GPU and is a success (B1)": Case(
        gpus=machine(A100, SEVEN),
        text=config("devices: all, mig-enabled: true, mig-devices: {1g.11gb: 1}"),
        untouched=frozenset({0}),
    ),
    "a mode that changes on one GPU clears all others (B4)": Case(
        gpus=machine(H100, None, TWO),
        text=config(
            "devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}",
            "devices: [1], mig-enabled: true, mig-devices: {3g.40gb: 1}",
        ),
        untouched=frozenset({1}),
        wanted=Counter({"3g.40gb": 2}),
    ),
    "a reset of one GPU is a reset of all (B5)": Case(
        gpus=machine(A100, None, SEVEN),
        text=config("devices: [0], mig-enabled: true, mig-devices: {}"),
        untouched=frozenset({1}),
    ),
    "an instance without a device is in the way for ever (B7)": Case(
        gpus=machine(A100, ()),
        text=config("devices: all, mig-enabled: true, mig-devices: {7g.40gb: 1}"),
        wanted=Counter({"7g.40gb": 1}),
        hollow=GpuInstance(id=2, profile="3g.20gb", start=4),
    ),
    "a slip in a filter does nothing and is a success (B8)": Case(
        gpus=machine(A100, SEVEN),
        text=config(
            'device-filter: "0x20B010DX", devices: all, mig-enabled: true,'
            " mig-devices: {7g.40gb: 1}"
        ),
        untouched=frozenset({0}),
    ),
    "a zero in a layout makes all instances anew": Case(
        gpus=machine(A100, SEVEN),
        text=config("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7, 2g.10gb: 0}"),
        untouched=frozenset({0}),
        wanted=Counter({"1g.5gb": 7}),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What an implementation made of a case."""

    right: bool
    said: bool
    """It reported success."""
    devices: tuple[Counter[str], ...]
    """Of each GPU."""


def ending(case: Case, simulation: Simulation, applies: Apply) -> Ending:
    """Let an implementation apply a case's configuration."""
    gpus = sorted(simulation.state.gpus)
    if case.hollow is not None:
        simulation.edit(with_gpu_changed(gpus[0], instances=(case.hollow,)))
    for bus_id in gpus:
        old = tuple(map(born, simulation.state.gpus[bus_id].instances, count(1)))
        simulation.edit(with_gpu_changed(bus_id, instances=old, births=len(old)))
    before = simulation.state.gpus

    said = applies(simulation, case.text)

    now = simulation.state.gpus
    spared = all(now[gpus[at]].instances == before[gpus[at]].instances for at in case.untouched)
    devices = counted_devices(simulation)
    reached = said and devices[0] == case.wanted
    right = spared and (not said if case.wanted is None else reached)
    return Ending(right=right, said=said, devices=devices)


def born(one: GpuInstance, birth: int) -> GpuInstance:
    """It is known again by this number, which one made anew at its place does not have."""
    return replace(one, birth=birth)


def by_ours(simulation: Simulation, text: str) -> bool:
    """Read the file, choose, plan, apply."""
    start = Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
    with (
        simulation,
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder)) as journal,
        NvmlWorld(start) as world,
    ):
        try:
            [wanted] = parse_mig_configs(text, "configs.yaml").configs
            layouts = config_layouts(wanted, world.observe())
        except BadInput:
            return False
        return apply(world, journal, layouts, origin=wanted.name).refusal is None


@contextmanager
def simulated(gpus: MachineDescription) -> Iterator[Simulation]:
    """The machine, in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        made = Simulation.create(gpus, Path(folder), models=MODELS)
        made.set_resets(mode_change="reset-required")  # else nobody need reset all GPUs
        yield made


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ours_does_right(case: Case) -> None:
    """The layout, or a refusal; and nothing happens to instances that need not go."""
    with simulated(case.gpus) as simulation:
        assert ending(case, simulation, by_ours).right


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_naive_implementation_does_not(case: Case) -> None:
    """Else the case shows nothing."""
    with simulated(case.gpus) as simulation:
        assert not ending(case, simulation, naive_apply).right


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nor_does_mig_parted(case: Case, programs: Path) -> None:
    """The program itself, through the C library, ends as the naive implementation does."""

    def applies(_: Simulation, text: str) -> bool:
        node.configure(text)
        return node.run("apply", "wanted").returncode == 0

    with parted_node(case.gpus, programs, case.text) as node:
        theirs = ending(case, node.there.simulation, applies)
    with simulated(case.gpus) as simulation:
        assert theirs == ending(case, simulation, naive_apply)


PARTIAL = config("devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 7}")
"""It has a word about GPU 0 alone."""


def test_a_configuration_for_a_part_of_the_gpus_is_there_when_they_have_it() -> None:
    """Upstream wants every GPU of the node in it, and applies it again and again: bug B3."""
    with simulated(machine(A100, SEVEN, SEVEN)) as simulation:
        start = Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
        with simulation, NvmlWorld(start) as world:
            gpus = {gpu.uuid: gpu for gpu in world.observe()}
            [wanted] = parse_mig_configs(PARTIAL, "configs.yaml").configs
            layouts = config_layouts(wanted, list(gpus.values()))
            ours = all(has_layout(gpus[uuid], layout) for uuid, layout in layouts.items())

        assert ours
        assert not naive_assert(simulation, PARTIAL)


@pytest.mark.cluster
def test_mig_parted_does_not_find_it_there(programs: Path) -> None:
    """The same on the program itself."""
    with parted_node(machine(A100, SEVEN, SEVEN), programs, PARTIAL) as node:
        assert node.run("assert", "wanted").returncode != 0
