# SPDX-License-Identifier: Apache-2.0
"""Checks of a machine beyond its schema: names exist, places fit, links add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from base.yaml_places import Place
from discovery.bus_id import normal_bus_id
from simulator.description.document import spelling_hint
from simulator.description.machine_problem import Problem
from simulator.description.machine_schema import (
    Gpu,
    MachineDescription,
    MigInstanceSpec,
    Model,
    PciFunction,
    SimulatedNic,
)
from simulator.description.model_checks import own_model_problems
from simulator.host.cpu_lists import cpu_numbers

_T = TypeVar("_T", bound=Hashable)

VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: a vGPU in a guest."""

_LANES = (1, 2, 4, 8, 16)
_NEWEST_PCIE = 6
_LONGEST_RESET_SECONDS = 3600
_HOST_DRIVER_BYTES = 10  # of version and of branch in a vGPU's PCI configuration space


def problems(machine: MachineDescription, shipped: Mapping[str, Model]) -> Iterator[Problem]:
    """Everything wrong with a machine, models first and alone: the rest rests on them.

    ``shipped`` are the models that come with gpuscape.
    """
    models = machine.known_models(shipped)
    of_models = (
        *own_model_problems(machine.models, shipped),
        *_unknown_models(machine, models),
    )
    if of_models:
        yield from of_models
        return
    yield from _host(machine)
    yield from _pci(machine)
    yield from _identities(machine)
    yield from _links(machine, models)
    yield from _reset(machine)
    for index, gpu in enumerate(machine.gpus):
        model = models[gpu.model]
        yield from _gpu(("gpus", index), gpu, model, len(machine.host.numa))
        yield from _mig(("gpus", index), gpu, model)


def _unknown_models(machine: MachineDescription, models: Mapping[str, Model]) -> Iterator[Problem]:
    for index, gpu in enumerate(machine.gpus):
        if gpu.model not in models:
            hint = spelling_hint(gpu.model, tuple(models))
            yield Problem(
                place=("gpus", index, "model"), text=f"there is no model {gpu.model!r}; {hint}"
            )


def _host(machine: MachineDescription) -> Iterator[Problem]:
    host = machine.host
    seen: Counter[int] = Counter()
    for node, text in enumerate(host.numa):
        try:
            seen.update(cpu_numbers(text))
        except ValueError as error:
            yield Problem(place=("host", "numa", node), text=f"{error}; write it like '0-15,32-47'")
    if not seen:
        yield Problem(
            place=("host", "numa"), text="a host has CPUs; write it like ['0-15', '16-31']"
        )
    for cpu in _repeated(seen.elements()):
        yield Problem(place=("host", "numa"), text=f"CPU {cpu} is in two NUMA nodes")
    for text in host.vgpu_host_driver or ():
        if len(text.encode()) > _HOST_DRIVER_BYTES:
            place = ("host", "vgpu_host_driver")
            yield Problem(place=place, text=f"{text!r} is longer than {_HOST_DRIVER_BYTES} bytes")
    if host.vgpu_host_driver and all(gpu.virtualization != VGPU for gpu in machine.gpus):
        text = f"no GPU is a vGPU; give one 'virtualization: {VGPU}'"
        yield Problem(place=("host", "vgpu_host_driver"), text=text)


def pci_functions(
    machine: MachineDescription,
) -> Iterator[tuple[Place, Gpu | SimulatedNic | PciFunction]]:
    """Every PCI function of a machine that is no bridge, with its place in the file."""
    yield from ((("gpus", index), gpu) for index, gpu in enumerate(machine.gpus))
    yield from ((("nics", index), nic) for index, nic in enumerate(machine.nics))
    yield from (
        (("functions", index), function) for index, function in enumerate(machine.functions)
    )


def _pci(machine: MachineDescription) -> Iterator[Problem]:
    taken: set[str] = set()
    for place, function in pci_functions(machine):
        if function.bus_id in taken:
            yield Problem(place=(*place, "bus_id"), text=f"two devices are at {function.bus_id!r}")
        taken.add(function.bus_id)
        yield from _numa(place, function.numa_node, len(machine.host.numa))
        yield from _addresses(place, function)
    yield from _bridges(machine, taken)


def _addresses(place: Place, function: Gpu | SimulatedNic | PciFunction) -> Iterator[Problem]:
    named = [((*place, "bus_id"), function.bus_id, function.bus_id)]
    named += [((*place, "path", step), bridge, bridge) for step, bridge in enumerate(function.path)]
    named += [((*place, "root"), function.root, f"{function.root}:00.0")]
    for part_place, text, bus_id in named:
        if _normal(bus_id) != bus_id:
            example = "0000:3a" if part_place[-1] == "root" else "0000:3b:00.0"
            yield Problem(place=part_place, text=f"{text!r} is not written like '{example}'")


def _normal(bus_id: str) -> str | None:
    try:
        return normal_bus_id(bus_id)
    except ValueError:
        return None


def _bridges(machine: MachineDescription, devices: set[str]) -> Iterator[Problem]:
    """A bridge hangs in one place, and nothing else is at its bus id."""
    above: dict[str, tuple[str, ...]] = {}
    for place, function in pci_functions(machine):
        for step, bridge in enumerate(function.path):
            ancestors = (function.root, *function.path[:step])
            bridge_place = (*place, "path", step)
            if bridge in devices:
                yield Problem(
                    place=bridge_place, text=f"{bridge!r} is a device, it cannot be a bridge too"
                )
            if above.setdefault(bridge, ancestors) != ancestors:
                yield Problem(
                    place=bridge_place, text=f"the bridge {bridge!r} hangs elsewhere further up"
                )


def _identities(machine: MachineDescription) -> Iterator[Problem]:
    minors = (g.minor if g.minor is not None else index for index, g in enumerate(machine.gpus))
    for label, values in (
        ("minor number", minors),
        ("UUID", (gpu.uuid for gpu in machine.gpus if gpu.uuid)),
        ("serial", (gpu.serial for gpu in machine.gpus if gpu.serial)),
    ):
        for value in _repeated(values):
            yield Problem(place=("gpus",), text=f"two GPUs have the {label} {value!r}")
    for name in _repeated(nic.name for nic in machine.nics):
        yield Problem(place=("nics",), text=f"two NICs have the name {name!r}")


def _links(machine: MachineDescription, models: Mapping[str, Model]) -> Iterator[Problem]:
    if machine.switched and machine.direct:
        yield Problem(place=("direct",), text="with 'switched: true' every link ends at a switch")
    used: Counter[int] = Counter()
    pairs: list[tuple[int, int]] = []
    for index, link in enumerate(machine.direct):
        place = ("direct", index)
        for key, gpu in (("a", link.a), ("b", link.b)):
            if not 0 <= gpu < len(machine.gpus):
                last = len(machine.gpus) - 1
                yield Problem(
                    place=(*place, key), text=f"there is no GPU {gpu}; the last one is {last}"
                )
        if link.a == link.b:
            yield Problem(place=place, text=f"GPU {link.a} cannot be linked to itself")
        if link.links < 1:
            yield Problem(place=(*place, "links"), text="a pair has at least one link")
        pairs.append((min(link.a, link.b), max(link.a, link.b)))
        used.update({link.a: link.links, link.b: link.links})
    for pair in _repeated(pairs):
        yield Problem(place=("direct",), text=f"GPUs {pair[0]} and {pair[1]} are listed twice")
    for gpu, spec in enumerate(machine.gpus):
        has = models[spec.model].nvlink_links
        if used[gpu] > has:
            text = f"GPU {gpu} has {used[gpu]} links here, but {spec.model!r} has {has}"
            yield Problem(place=("direct",), text=text)


def _reset(machine: MachineDescription) -> Iterator[Problem]:
    if not 0 <= machine.reset.seconds <= _LONGEST_RESET_SECONDS:
        text = f"a reset takes 0 to {_LONGEST_RESET_SECONDS} s; for one without end: result: hangs"
        yield Problem(place=("reset", "seconds"), text=text)
    if machine.reset.fabric_manager and not machine.switched:
        text = "Fabric Manager needs NVSwitches: add 'switched: true', or drop the key"
        yield Problem(place=("reset", "fabric_manager"), text=text)


def _gpu(place: Place, gpu: Gpu, model: Model, numa_nodes: int) -> Iterator[Problem]:
    if gpu.cpus is not None:
        try:
            cpu_numbers(gpu.cpus)
        except ValueError as error:
            yield Problem(place=(*place, "cpus"), text=f"{error}; write it like '0-15,32-47'")
    if gpu.numa_id is not None and gpu.numa_id < numa_nodes:
        text = f"NUMA node {gpu.numa_id} is one of the CPUs'; a GPU's own comes after them"
        yield Problem(place=(*place, "numa_id"), text=text)
    if gpu.fabric is not None and not model.fabric:
        yield Problem(place=(*place, "fabric"), text=f"{gpu.model!r} has no fabric; drop the key")
    if gpu.pcie_lanes not in _LANES:
        text = f"a slot has {', '.join(map(str, _LANES))} lanes"
        yield Problem(place=(*place, "pcie_lanes"), text=text)
    if gpu.pcie_generation is not None and not 1 <= gpu.pcie_generation <= _NEWEST_PCIE:
        text = f"there are generations 1 to {_NEWEST_PCIE} of PCIe"
        yield Problem(place=(*place, "pcie_generation"), text=text)
    if not 0 <= gpu.virtualization <= 4:
        text = "NVML knows 0 none, 1 passthrough, 2 vGPU, 3 and 4 hosts of vGPU and vSGA"
        yield Problem(place=(*place, "virtualization"), text=text)


def _numa(place: Place, node: int, nodes: int) -> Iterator[Problem]:
    if not -1 <= node < nodes:
        text = f"there is no NUMA node {node}; the host has {nodes}, and -1 is none"
        yield Problem(place=(*place, "numa_node"), text=text)


def _mig(place: Place, gpu: Gpu, model: Model) -> Iterator[Problem]:
    """Every instance is of a profile, at a start it may have, next to the others.

    Source: the MIG user guide on placements; facts of nvmlDeviceGetGpuInstanceProfileInfo.
    """
    if gpu.mig and not model.mig:
        yield Problem(place=(*place, "mig"), text=f"{gpu.model!r} is not MIG-capable")
        return
    if gpu.instances and not gpu.mig:
        yield Problem(place=(*place, "instances"), text="instances need 'mig: true'")
    profiles = {profile.name: profile for profile in model.mig}
    taken: dict[int, int] = {}
    for index, instance in enumerate(gpu.instances):
        instance_place = (*place, "instances", index)
        profile = profiles.get(instance.profile)
        if profile is None:
            text = f"no profile {instance.profile!r}; {gpu.model!r} has {', '.join(profiles)}"
            yield Problem(place=(*instance_place, "profile"), text=text)
            continue
        if instance.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            text = f"a {instance.profile} may start at {starts}, not at {instance.start}"
            yield Problem(place=(*instance_place, "start"), text=text)
        units = range(instance.start, instance.start + profile.size)
        if other := {taken[unit] for unit in units if unit in taken}:
            yield Problem(place=instance_place, text=f"overlaps instance {min(other)} of this GPU")
        taken.update(dict.fromkeys(units, index))
        yield from _compute(instance_place, instance, profile.slices)
    for name, count in Counter(instance.profile for instance in gpu.instances).items():
        if name in profiles and count > profiles[name].max:
            text = f"{count} instances of {name}, at most {profiles[name].max} fit on {gpu.model!r}"
            yield Problem(place=(*place, "instances"), text=text)
    for number in _repeated(instance.id for instance in gpu.instances):
        yield Problem(place=(*place, "instances"), text=f"two instances have the id {number}")


def _compute(place: Place, instance: MigInstanceSpec, slices: int) -> Iterator[Problem]:
    sizes = instance.compute or ()
    if any(size < 1 for size in sizes) or sum(sizes) > slices:
        text = f"compute instances of 1 or more slices, {slices} in all, fit a {instance.profile}"
        yield Problem(place=(*place, "compute"), text=text)


def _repeated(values: Iterable[_T]) -> Iterator[_T]:
    """The values that come more than once."""
    return (value for value, times in Counter(values).items() if times > 1)
