# SPDX-License-Identifier: Apache-2.0
"""The machine around the GPUs, read from sysfs and procfs below a root folder."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import psutil

from discovery.bus_id import bus_order
from discovery.host.pci import DEVICES, is_function, nvidia_functions, pci_facts, physical_function
from discovery.host.sysfs import SysfsFiles, cpu_count, cpu_list
from discovery.host.vgpu import CONFIG_BYTES, vgpu
from discovery.model import Host, Nic, NumaNode, Reason, Vgpu

MACHINE_TYPE_FILE = "/sys/class/dmi/id/product_name"

_NUMA_NODE = re.compile(r"node([0-9]+)")
_CONFIG_FIX = (
    "the whole PCI configuration space needs CAP_SYS_ADMIN:"
    " run the agent privileged, or go without the vGPU's host driver"
)


def read_host(root: Path, name: str, machine_type_file: str = MACHINE_TYPE_FILE) -> Host:
    """The facts of the machine mounted at ``root``; never fails: what is missing leaves a gap.

    ``name`` is the node's name; ``machine_type_file`` is a path below ``root``.
    """
    files = SysfsFiles(root)
    host = Host(
        name=name,
        machine_type=files.read("machine_type", machine_type_file.lstrip("/"), str),
        cpus=files.read("cpus", "sys/devices/system/cpu/online", cpu_count),
        memory_bytes=files.ask("memory_bytes", "proc/meminfo", _memory_bytes),
        numa_nodes=_numa_nodes(files),
        nics=_nics(files),
        vgpu=_vgpu(files),
    )
    return replace(host, gaps=tuple(files.gaps))


def _memory_bytes(meminfo: Path) -> int:
    before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(meminfo.parent)
    try:
        return int(psutil.virtual_memory().total)
    except KeyError as error:
        raise ValueError(f"no line {error}") from error
    finally:
        psutil.PROCFS_PATH = before


def _numa_nodes(files: SysfsFiles) -> tuple[NumaNode, ...]:
    """NUMA nodes by number; some have no CPUs: a coherent GPU's memory, or CXL."""
    folder = "sys/devices/system/node"
    nodes = []
    for node in files.ask("numa_nodes", folder, _numa_numbers) or ():
        cpus = files.read("numa_nodes", f"{folder}/node{node}/cpulist", cpu_list)
        if cpus is not None:
            nodes.append(NumaNode(node=node, cpus=cpus))
    return tuple(nodes)


def _numa_numbers(folder: Path) -> list[int]:
    matches = (_NUMA_NODE.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def _nics(files: SysfsFiles) -> tuple[Nic, ...]:
    """RDMA devices that are PCI functions, in PCI bus order.

    A virtual function is left out while its physical function is here: both are
    the same port in the same place, and one host may have hundreds. A virtual
    machine sees no physical function, so its own are kept. Soft RoCE and scalable
    functions are no PCI functions.
    """
    devices = files.ask("nics", "sys/class/infiniband", _rdma_devices) or {}
    chosen = [bus_id for bus_id, (_, physical) in devices.items() if physical not in devices]
    return tuple(
        _nic(files, devices[bus_id][0], bus_id) for bus_id in sorted(chosen, key=bus_order)
    )


def _nic(files: SysfsFiles, name: str, bus_id: str) -> Nic:
    facts = pci_facts(files.root, bus_id)
    for gap in facts.gaps:
        if gap.what in ("numa_node", "cpu_affinity"):
            files.gaps.append(replace(gap, what=f"nics.{name}.{gap.what}"))
    return Nic(
        name=name,
        bus_id=bus_id,
        numa_node=facts.numa_node,
        cpu_affinity=facts.cpu_affinity,
    )


def _rdma_devices(folder: Path) -> dict[str, tuple[str, str | None]]:
    """Bus id to RDMA device name and physical function.

    No folder means that no RDMA driver is loaded, hence no device: no gap.
    """
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return {}
    functions = {entry.name: (entry / "device").resolve() for entry in entries}
    return {
        function.name: (name, physical_function(function))
        for name, function in functions.items()
        if is_function(function.name)
    }


def _vgpu(files: SysfsFiles) -> Vgpu | None:
    """vGPU facts from all NVIDIA functions; the last vGPU counts, as in gpu-feature-discovery.

    None as soon as one function cannot be read in full: it might be the vGPU.
    """
    functions = files.ask("vgpu", DEVICES, nvidia_functions)
    if functions is None:
        return None
    last_vgpu = Vgpu(present=False)
    for function in functions:
        source = f"{DEVICES}/{function.name}/config"
        config = files.ask("vgpu", source, _config)
        if config is None:
            return None
        candidate = vgpu(config)
        if candidate.present:
            last_vgpu = candidate
        if candidate.present and candidate.host_driver_version is None:
            detail = "the vGPU does not name its host's driver"
            files.miss("vgpu.host_driver_version", Reason.ABSENT, source, detail)
    return last_vgpu


def _config(file: Path) -> bytes:
    """Conventional configuration space. The kernel gives 64 bytes to those without the right."""
    try:
        with file.open("rb", buffering=0) as stream:
            config = stream.read(CONFIG_BYTES)
    except PermissionError as error:
        raise PermissionError(_CONFIG_FIX) from error
    if len(config) < CONFIG_BYTES:
        raise PermissionError(f"{len(config)} of {CONFIG_BYTES} bytes; {_CONFIG_FIX}")
    return config
