# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine from the driver and the host's files, read once, within deadlines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from agent.settings.agent_settings import AgentSettings
from agent.settings.machine_from_settings import loaded_driver
from agent.single_reading import take_snapshot
from base.errors import Transient
from diagnosis.finding import Unread
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderStuck
from discovery.host import device_files
from discovery.model import NodeSnapshot, nvidia_gpus
from labelers.label_settings import PluginConfig

_MOST_NAME: Final = 15
"""Characters of a process' name that the kernel keeps. Source: proc(5), comm."""
CONTROL: Final = "dev/nvidiactl"


EVERY_HOST: Final = (
    "proc/sys/kernel/random/boot_id",
    "proc/meminfo",
    "sys/devices/system/cpu/online",
    "dev",
)
"""Paths that every host has below its root; a pod may mount only these trees of it.

Sources: proc(5), sysfs(5).
"""


class DriverFault(StrEnum):
    """Reasons why no GPU could be read."""

    ABSENT = "absent"
    MISMATCH = "mismatch"
    STUCK = "stuck"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFailure(Unread):
    """The driver as a whole does not answer."""

    fault: DriverFault


Machine = NodeSnapshot | Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A device node of the driver."""

    path: str
    exists: bool
    allowed: bool
    """This process may read and write it."""


def read_machine_snapshot(
    settings: AgentSettings, plugin: PluginConfig
) -> NodeSnapshot | DriverFailure:
    """A snapshot by the device reader, which never waits longer than its deadlines.

    Raises BadInput where the settings are wrong.
    """
    try:
        return take_snapshot(settings, plugin)
    except Transient as error:
        return DriverFailure(str(error), fault=_fault(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRootFiles:
    """The paths that should be below the host root, and those that are missing."""

    root: Path
    expected: tuple[str, ...]
    missing: tuple[str, ...]


def read_host_tree(settings: AgentSettings) -> HostRootFiles | Unread:
    """Look for the paths of EVERY_HOST below the host root."""
    if settings.simulate is not None:
        return Unread("a simulated machine has a host tree of its own", applies=False)
    root = settings.host_root
    missing = tuple(path for path in EVERY_HOST if not os.path.lexists(root / path))
    return HostRootFiles(root=root, expected=EVERY_HOST, missing=missing)


def read_device_files(settings: AgentSettings, machine: Machine) -> tuple[DeviceFile, ...] | Unread:
    """The driver's device nodes for the GPUs that answer."""
    if settings.simulate is not None:
        return Unread("a simulated machine has no device nodes", applies=False)
    if loaded_driver(settings.host_root) is None:
        return Unread("no driver is loaded, so there are no device nodes", applies=False)
    gpus = machine.gpus if isinstance(machine, NodeSnapshot) else ()
    minors = (nvidia.minor for _, nvidia in nvidia_gpus(gpus) if nvidia.minor is not None)
    names = [CONTROL, *(f"dev/nvidia{minor}" for minor in minors)]
    return tuple(device_file(settings.host_root / name) for name in names)


def device_file(path: Path) -> DeviceFile:
    """A device node at this path; opening it would initialise the GPU, so only rights are read."""
    return DeviceFile(
        path=str(path), exists=path.exists(), allowed=os.access(path, os.R_OK | os.W_OK)
    )


def read_program_names() -> frozenset[str]:
    """Names of all processes in this PID namespace; the kernel cuts some to 15 characters."""
    return frozenset(filter(None, map(device_files.whole_process_name, _pids())))


def kernel_cut_name(program: str) -> str:
    """A program's name as :func:`read_programs` has it where it is cut."""
    return program[:_MOST_NAME]


def _pids() -> Iterator[int]:
    return (int(folder.name) for folder in device_files.PROC.iterdir() if folder.name.isdigit())


def _fault(error: Transient) -> DriverFault:
    if isinstance(error, DriverAbsent):
        return DriverFault.ABSENT
    if isinstance(error, DriverMismatch):
        return DriverFault.MISMATCH
    return DriverFault.STUCK if isinstance(error, ReaderStuck) else DriverFault.GONE
