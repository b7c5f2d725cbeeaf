# SPDX-License-Identifier: Apache-2.0
"""PCI functions as sysfs shows them: which are GPUs, and where each one sits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from discovery.bus_id import bus_order
from discovery.host.sysfs import SysfsFiles, ValueUnknown, cpu_list, hexadecimal, numa_node
from discovery.model import PciFacts

DEVICES = "sys/bus/pci/devices"

_NVIDIA = 0x10DE
_OWN_DRIVER = "nvidia"
_GPU_CLASSES = (0x0300, 0x0302)  # VGA controller; 3D controller
_SWITCH_CLASS = 0x0680  # bridge of another kind
_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpus:
    """NVIDIA's GPUs on this system's bus by who drives them; bus ids in PCI bus order."""

    ours: tuple[str, ...] = ()
    """Bound to the nvidia driver, so NVML should show them."""
    elsewhere: tuple[str, ...] = ()
    """Bound to another driver, such as vfio-pci or nouveau."""
    shown: bool = True
    """Whether sysfs shows PCI functions at all, of whatever vendor."""


def pci_gpus(root: Path) -> PciGpus:
    """The GPUs that sysfs shows, without those that no driver is bound to.

    Virtual functions, which a vGPU host offers to its guests, are left out.
    Source: Linux's Documentation/ABI, sysfs-bus-pci, ``driver``.
    """
    try:
        functions = nvidia_functions(root / DEVICES)
        shown = any(is_function(path.name) for path in (root / DEVICES).iterdir())
    except OSError:
        return PciGpus(shown=False)
    drivers = {f.name: _driver(f) for f in functions if _is_gpu(f) and not physical_function(f)}
    return PciGpus(
        ours=tuple(bus_id for bus_id, driver in drivers.items() if driver == _OWN_DRIVER),
        elsewhere=tuple(
            bus_id for bus_id, driver in drivers.items() if driver not in (None, _OWN_DRIVER)
        ),
        shown=shown,
    )


def pci_facts(root: Path, bus_id: str) -> PciFacts:
    """Class, affinity and place of one PCI function; what sysfs does not give leaves a gap."""
    files = SysfsFiles(root)
    path = f"{DEVICES}/{bus_id}"
    root_bus, bridges = files.ask("ancestors", path, _place) or (None, ())
    facts = PciFacts(
        bus_id=bus_id,
        pci_class=files.read("pci_class", f"{path}/class", hexadecimal),
        device_id=_combined(root / path, "device", "vendor"),
        subsystem_id=_combined(root / path, "subsystem_device", "subsystem_vendor"),
        numa_node=files.read("numa_node", f"{path}/numa_node", numa_node),
        cpu_affinity=files.read("cpu_affinity", f"{path}/local_cpulist", cpu_list),
        root=root_bus,
        bridges=bridges,
    )
    return replace(facts, gaps=tuple(files.gaps))


def nvidia_functions(devices: Path) -> list[Path]:
    """All PCI functions of NVIDIA in PCI bus order. Raises OSError where sysfs shows no PCI."""
    functions = [path for path in devices.iterdir() if is_function(path.name)]
    functions.sort(key=lambda function: bus_order(function.name))
    return [function for function in functions if _number(function / "vendor") == _NVIDIA]


def nv_switches(root: Path) -> tuple[str, ...]:
    """Bus ids of the NVSwitches that sysfs shows; none where it shows no PCI.

    Source: the PCI ID repository, GA100 and GH100 [NVSwitch], which are bridges of class 0680.
    """
    try:
        functions = nvidia_functions(root / DEVICES)
    except OSError:
        return ()
    return tuple(f.name for f in functions if (_number(f / "class") or 0) >> 8 == _SWITCH_CLASS)


def is_function(name: str) -> bool:
    """The name is a PCI function's bus id as sysfs writes it."""
    return _FUNCTION.fullmatch(name) is not None


def physical_function(function: Path) -> str | None:
    """Bus id of the physical function behind a virtual one; None for all others."""
    link = function / "physfn"
    return link.resolve().name if link.exists() else None


def _is_gpu(function: Path) -> bool:
    pci_class = _number(function / "class")
    return pci_class is not None and pci_class >> 8 in _GPU_CLASSES


def _driver(function: Path) -> str | None:
    """Name of the driver that a function is bound to; its folder need not be below our root."""
    link = function / "driver"
    return link.readlink().name if link.is_symlink() else None


def _number(file: Path) -> int | None:
    try:
        return hexadecimal(file.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _combined(function: Path, device: str, vendor: str) -> int | None:
    """A device's and a vendor's id as NVML has them in one number."""
    upper, lower = _number(function / device), _number(function / vendor)
    return None if upper is None or lower is None else upper << 16 | lower


def _place(device: Path) -> tuple[str, tuple[str, ...]]:
    """Root bus and bridges above a device, from where its sysfs link leads.

    The last root bus counts: a VMD controller puts one of its own below a bridge.
    """
    parts = device.resolve(strict=True).parts
    roots = [index for index, part in enumerate(parts) if _ROOT.fullmatch(part)]
    if not roots:
        raise ValueUnknown("sysfs does not show its place in the PCI tree")
    return parts[roots[-1]], parts[roots[-1] + 1 : -1]
