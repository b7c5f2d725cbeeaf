# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's capability files on a simulated host, and what the host shows without rights.

Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities"; Linux, drivers/pci/pci-sysfs.c:
without CAP_SYS_ADMIN a read of PCI configuration space ends after 64 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from simulator.description.machine_schema import Gpu, MachineDescription, Model
from simulator.host.file_tree import HostTree
from simulator.host.mig_capabilities import (
    CONFIG,
    DEVICE_LINES,
    DEVICES,
    FILES,
    FIRST_ACCESS,
    MINORS,
    MONITOR,
    NODES,
    file_lines,
    minor_lines,
    minor_of,
)
from simulator.state.machine_state import Right

_CONFIG_SPACE = re.compile(r"sys/devices/.*/config")
_HEADER_BYTES = 64


def add_capabilities(
    tree: HostTree, machine: MachineDescription, models: Mapping[str, Model]
) -> None:
    """A file and an (empty) device node for each capability of MIG, where a GPU can have MIG.

    The list of all minor numbers names what can be on these GPUs, whether it is there or not.
    """
    if not any(models[gpu.model].mig for gpu in machine.gpus):
        return
    minors = {"mig/config": CONFIG, "mig/monitor": MONITOR}
    numbers = [index if gpu.minor is None else gpu.minor for index, gpu in enumerate(machine.gpus)]
    for number, gpu in zip(numbers, machine.gpus, strict=True):
        minors |= dict(_access(number, gpu))
    for name, minor in minors.items():
        tree.text(f"{FILES}/{name}", *file_lines(minor))
        tree.files[f"{NODES}{minor}"] = b""
    tree.text(MINORS, *minor_lines(numbers))
    tree.text(DEVICES, *DEVICE_LINES)


def _access(number: int, gpu: Gpu) -> Iterator[tuple[str, int]]:
    """Name and minor number for each GPU instance and compute instance."""
    for instance in gpu.instances:
        folder = f"gpu{number}/mig/gi{instance.id}"
        yield f"{folder}/access", minor_of(number, instance.id)
        for compute in range(len(instance.compute or (1,))):
            yield f"{folder}/ci{compute}/access", minor_of(number, instance.id, compute)


def without(tree: HostTree, rights: Collection[Right]) -> HostTree:
    """The tree as a process sees it that lacks these rights."""
    files = dict(tree.files)
    for path, content in tree.files.items():
        minor = int(path.removeprefix(NODES)) if path.startswith(NODES) else 0
        if minor and _right_to(minor) in rights:
            del files[path]
        elif "pci-config" in rights and _CONFIG_SPACE.fullmatch(path):
            files[path] = content[:_HEADER_BYTES]
    return replace(tree, files=files)


def _right_to(minor: int) -> Right:
    if minor >= FIRST_ACCESS:
        return "mig-access"
    return "mig-monitor" if minor == MONITOR else "mig-config"
