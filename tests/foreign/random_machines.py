# SPDX-License-Identifier: Apache-2.0
"""Machines of the catalog with random GPUs taken out, random MIG layouts and random sharing."""

from __future__ import annotations

from pathlib import Path
from random import Random

from msgspec.structs import replace

from simulator.description.machine_catalog import (
    load_machine,
    load_models,
    machine_names,
)
from simulator.description.machine_schema import Gpu, MigInstanceSpec, Model
from simulator.simulation import Simulation
from simulator.state.machine_state import GpuInstance
from simulator.state.mig_geometry import free_starts, gpu_instances_left

_MIG_SLICES = 7


def random_machine(random: Random, folder: Path) -> Simulation:
    """One model of GPU, since upstream's labels of several are random themselves."""
    models = load_models()
    names = [name for name in machine_names() if _is_fit(name)]
    machine = load_machine(random.choice(names))
    layouts = [_layout(random, models[machine.gpus[0].model]) for _ in range(random.randint(1, 3))]
    gpus = tuple(_with_layout(gpu, random.choice((None, *layouts))) for gpu in machine.gpus)
    simulation = Simulation.create(replace(machine, gpus=gpus), folder, models=models)
    for gpu in random.sample(gpus, random.randint(0, len(gpus) - 1)):
        if random.random() < 0.3:
            simulation.remove_gpu(gpu.bus_id)
            (simulation.host_root / "sys/bus/pci/devices" / gpu.bus_id).unlink()
    return simulation


def random_sharing(random: Random) -> str:
    """A configuration of NVIDIA's device plugin: GPUs shared in time, or not."""
    if random.random() < 0.4:
        return "version: v1\n"
    renamed = random.choice(("true", "false"))
    return (
        f"version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: {renamed}\n"
        f"    resources:\n    - name: nvidia.com/gpu\n      replicas: {random.randint(2, 9)}\n"
    )


def _is_fit(name: str) -> bool:
    machine = load_machine(name)
    models = {gpu.model for gpu in machine.gpus}
    return machine.driver is not None and machine.host.gpus_in_sysfs and len(models) == 1


def _with_layout(gpu: Gpu, layout: tuple[MigInstanceSpec, ...] | None) -> Gpu:
    """None: MIG off."""
    return replace(gpu, mig=layout is not None, instances=layout or ())


def _layout(random: Random, model: Model) -> tuple[MigInstanceSpec, ...] | None:
    """Instances that fit next to each other; none at all is a layout too."""
    if not model.mig:
        return None
    made: list[MigInstanceSpec] = []
    there: list[GpuInstance] = []
    slices = {profile.name: profile.slices for profile in model.mig}
    for number in range(random.randint(0, _MIG_SLICES)):
        left = _MIG_SLICES - sum(slices[one.profile] for one in there)
        fit = [p for p in model.mig if gpu_instances_left(model, there, p) > 0 and p.slices <= left]
        if not fit:
            break
        profile = random.choice(fit)
        start = random.choice(free_starts(model, there, profile))
        compute = random.choice((None, (1,) * random.randint(1, profile.slices)))
        there.append(GpuInstance(id=number, profile=profile.name, start=start))
        made.append(MigInstanceSpec(profile=profile.name, start=start, id=number, compute=compute))
    return tuple(made)
