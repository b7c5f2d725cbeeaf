# SPDX-License-Identifier: Apache-2.0
"""A host's /sys, /proc and /dev as files of a simulated machine, for readers that take a root."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from simulator.description.machine_checks import VGPU, pci_functions
from simulator.description.machine_schema import (
    Gpu,
    MachineDescription,
    Model,
    PciFunction,
    SimulatedNic,
)
from simulator.host.cpu_lists import cpu_list_text, cpu_mask, cpu_numbers
from simulator.host.file_tree import HostTree, write_host_tree
from simulator.host.host_rights import add_capabilities, without
from simulator.host.pci_config import BRIDGE, config_space, resource_lines
from simulator.state.machine_state import Right

_DRIVERS = "sys/bus/pci/drivers"
_INFINIBAND = 0x020700
_PEX_SWITCH = 0xC0101000  # Broadcom PEX 88000: every bridge here; NVIDIA/nccl issue 1505 shows it
_KIB_PER_GIB = 1 << 20
_BOOT_ID = "proc/sys/kernel/random/boot_id"


def write_simulated_host(
    machine: MachineDescription,
    models: Mapping[str, Model],
    root: Path,
    lacking: Collection[Right] = (),
) -> None:
    """Write the machine's host tree into ``root``, as it is seen without the rights ``lacking``.

    Raises what :func:`write_host_tree` raises.
    """
    write_host_tree(without(host_tree(machine, models), lacking), root)


def host_tree(machine: MachineDescription, models: Mapping[str, Model]) -> HostTree:
    """The files and links that a machine of this kind shows, as far as gpuscape reads them.

    Source: Linux's Documentation/ABI on sysfs-bus-pci, sysfs-class-infiniband and
    sysfs-devices-node; proc(5).
    """
    tree = HostTree()
    _add_pci(tree, machine, models)
    _add_cpus_and_memory(tree, machine)
    if machine.host.machine_type is not None:
        tree.text("sys/devices/virtual/dmi/id/product_name", machine.host.machine_type)
        tree.links["sys/class/dmi/id"] = "sys/devices/virtual/dmi/id"
    tree.text(_BOOT_ID, _boot_id(machine))
    if machine.driver is not None:
        _add_driver(tree, machine, machine.driver.version)
        add_capabilities(tree, machine, models)
    return tree


def load_module_again(root: Path) -> None:
    """The kernel module's folder is another one, as sysfs has it after each load; same content."""
    folder = root / "sys/module/nvidia"
    if folder.is_dir():
        new, old = folder.with_name(".nvidia.new"), folder.with_name(".nvidia.old")
        shutil.copytree(folder, new, symlinks=True)
        folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old)


def change_boot_id(root: Path) -> None:
    """The host whose tree this is was booted once more."""
    (root / _BOOT_ID).write_text(f"{uuid.uuid4()}\n")


def hide_functions(root: Path, bus_ids: Collection[str]) -> None:
    """Take these PCI functions, or without any the whole bus, out of this tree."""
    if not bus_ids:
        shutil.rmtree(root / "sys/bus/pci")
    for bus_id in bus_ids:
        (root / "sys/bus/pci/devices" / bus_id).unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    """Facts that a PCI function shows; combined ids hold the vendor in the lower 16 bits."""

    device_id: int
    pci_class: int
    numa_node: int
    cpus: tuple[int, ...]
    subsystem_id: int = 0
    vgpu_host_driver: tuple[str, str] | None = None
    window_mib: int = 0
    """Size of BAR 1, through which the host sees a GPU's memory."""


def _add_pci(tree: HostTree, machine: MachineDescription, models: Mapping[str, Model]) -> None:
    possible = max(_all_cpus(machine)) + 1
    for _, device in pci_functions(machine):
        if isinstance(device, Gpu) and not machine.host.gpus_in_sysfs:
            continue
        function = _function(device, machine, models)
        bridge = _bridge_to(function)
        path = f"sys/devices/pci{device.root}"
        for bus_id in device.path:
            path = f"{path}/{bus_id}"
            if f"{path}/class" not in tree.files:  # devices share their upper bridges
                _add_function(tree, path, bridge, possible)
        path = f"{path}/{device.bus_id}"
        _add_function(tree, path, function, possible)
        if isinstance(device, SimulatedNic):
            _add_rdma(tree, path, device.name)
        elif isinstance(device, Gpu) and (driver := _driver_of(device, machine)) is not None:
            tree.links[f"{path}/driver"] = f"{_DRIVERS}/{driver}"


def _driver_of(gpu: Gpu, machine: MachineDescription) -> str | None:
    """Driver that the GPU is bound to; one that is not installed binds nothing."""
    return None if gpu.driver == "nvidia" and machine.driver is None else gpu.driver


def _function(
    device: Gpu | SimulatedNic | PciFunction,
    machine: MachineDescription,
    models: Mapping[str, Model],
) -> _Function:
    """A device without a NUMA node is local to every CPU, as the kernel has it."""
    node = device.numa_node
    cpus = cpu_numbers(machine.host.numa[node]) if node >= 0 else _all_cpus(machine)
    if isinstance(device, SimulatedNic):
        return _Function(
            device_id=device.device_id, pci_class=_INFINIBAND, numa_node=node, cpus=cpus
        )
    if isinstance(device, PciFunction):
        return _Function(
            device_id=device.device_id, pci_class=device.pci_class, numa_node=node, cpus=cpus
        )
    model = models[device.model]
    return _Function(
        device_id=model.device_id,
        pci_class=model.pci_class,
        numa_node=node,
        cpus=cpus if device.cpus is None else cpu_numbers(device.cpus),
        subsystem_id=model.subsystem_id,
        vgpu_host_driver=machine.host.vgpu_host_driver if device.virtualization == VGPU else None,
        window_mib=model.window_mib or 0,
    )


def _bridge_to(function: _Function) -> _Function:
    """A switch port or root port above a device, on its NUMA node."""
    return _Function(
        device_id=_PEX_SWITCH,
        pci_class=BRIDGE,
        numa_node=function.numa_node,
        cpus=function.cpus,
    )


def _add_function(tree: HostTree, path: str, function: _Function, possible: int) -> None:
    for name, value in (
        ("class", f"{function.pci_class:#08x}"),
        ("device", f"{function.device_id >> 16:#06x}"),
        ("vendor", f"{function.device_id & 0xFFFF:#06x}"),
        ("subsystem_device", f"{function.subsystem_id >> 16:#06x}"),
        ("subsystem_vendor", f"{function.subsystem_id & 0xFFFF:#06x}"),
        ("numa_node", function.numa_node),
        ("local_cpulist", cpu_list_text(function.cpus)),
        ("local_cpus", cpu_mask(function.cpus, possible=possible)),
    ):
        tree.text(f"{path}/{name}", value)
    tree.files[f"{path}/config"] = config_space(
        device_id=function.device_id,
        subsystem_id=function.subsystem_id,
        pci_class=function.pci_class,
        vgpu_host_driver=function.vgpu_host_driver,
    )
    tree.text(f"{path}/resource", *resource_lines(function.pci_class, path, function.window_mib))
    tree.links[f"sys/bus/pci/devices/{PurePosixPath(path).name}"] = path


def _add_rdma(tree: HostTree, function: str, name: str) -> None:
    """The RDMA device of a NIC and the class link that leads to it."""
    device = f"{function}/infiniband/{name}"
    tree.text(f"{device}/node_type", "1: CA")
    tree.links[f"{device}/device"] = function
    tree.links[f"sys/class/infiniband/{name}"] = device


def _all_cpus(machine: MachineDescription) -> tuple[int, ...]:
    return tuple(cpu for text in machine.host.numa for cpu in cpu_numbers(text))


def _add_cpus_and_memory(tree: HostTree, machine: MachineDescription) -> None:
    """CPUs, NUMA nodes and memory; coherent GPUs add NUMA nodes that have no CPU."""
    nodes = dict(enumerate(machine.host.numa))
    nodes |= {gpu.numa_id: "" for gpu in machine.gpus if gpu.numa_id is not None}
    for node, text in nodes.items():
        tree.text(f"sys/devices/system/node/node{node}/cpulist", text)
    tree.text("sys/devices/system/node/online", cpu_list_text(nodes))
    cpus = _all_cpus(machine)
    for name in ("online", "possible", "present"):
        tree.text(f"sys/devices/system/cpu/{name}", cpu_list_text(cpus))
    idle = "0 0 0 1000 0 0 0 0 0 0"
    lines = [f"cpu{cpu} {idle}" for cpu in sorted(cpus)]
    tree.text("proc/stat", f"cpu  {idle}", *lines, "ctxt 1", "btime 1700000000", "processes 1")
    total = machine.host.memory_gib * _KIB_PER_GIB
    shown = {"MemTotal": total, "MemFree": total // 2, "MemAvailable": total // 2}
    unused = dict.fromkeys(("Buffers", "Cached", "Active", "Inactive", "Shmem", "Slab"), 0)
    rows = (f"{key + ':':<16}{kib:>8} kB" for key, kib in (shown | unused).items())
    tree.text("proc/meminfo", *rows)


def _add_driver(tree: HostTree, machine: MachineDescription, version: str) -> None:
    """The loaded kernel module and its device nodes; plain empty files stand for the nodes.

    Where sysfs shows no GPU, the driver is the hypervisor's, behind one node.
    """
    if not machine.host.gpus_in_sysfs:
        tree.files["dev/dxg"] = b""
        return
    module = f"NVRM version: NVIDIA UNIX Kernel Module  {version}  Release Build  (simulated)"
    tree.text("proc/driver/nvidia/version", module)
    tree.text("sys/module/nvidia/version", version)
    tree.text("proc/modules", *(f"{name} 1 0 - Live 0x0" for name in ("nvidia_uvm", "nvidia")))
    tree.links[f"{_DRIVERS}/nvidia/module"] = "sys/module/nvidia"
    minors = [
        index if gpu.minor is None else gpu.minor
        for index, gpu in enumerate(machine.gpus)
        if gpu.driver == "nvidia"
    ]
    for name in ("ctl", "-uvm", *map(str, minors)):
        tree.files[f"dev/nvidia{name}"] = b""


def _boot_id(machine: MachineDescription) -> uuid.UUID:
    """Boot id of a machine: always the same, but unlike that of another machine."""
    return uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(msgspec.json.encode(machine)).hexdigest())
