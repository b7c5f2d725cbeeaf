# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's capability files on a simulated host, and what the host shows without rights.

Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities"; Linux, drivers/pci/pci-sysfs.c:
without CAP_SYS_ADMIN a read of PCI configuration space ends after 64 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from discovery.simulator.description.machine_schema import Gpu, MachineDescription, Model
from discovery.simulator.host.file_tree import HostTree
from discovery.simulator.state.machine_state import Right

_FILES = "proc/driver/nvidia/capabilities"
_MINORS = "proc/driver/nvidia-caps/mig-minors"
_NODES = "dev/nvidia-caps/nvidia-cap"
_CONFIG_SPACE = re.compile(r"sys/devices/.*/config")
_HEADER_BYTES = 64

_CONFIG, _MONITOR, _FIRST_ACCESS = 1, 2, 3
"""Minor numbers of the device nodes."""
_GPU_INSTANCES, _COMPUTE_INSTANCES = 15, 8
"""Of one GPU, for which numbers are set aside, whether they are there or not."""


def add_capabilities(
    tree: HostTree, machine: MachineDescription, models: Mapping[str, Model]
) -> None:
    """A file and an (empty) device node for each capability of MIG, where a GPU can have MIG.

    The list of all minor numbers names what can be on these GPUs, whether it is there or not.
    """
    if not any(models[gpu.model].mig for gpu in machine.gpus):
        return
    minors = {"mig/config": _CONFIG, "mig/monitor": _MONITOR}
    known = {"config": _CONFIG, "monitor": _MONITOR}
    for place, gpu in enumerate(machine.gpus):
        number = place if gpu.minor is None else gpu.minor
        minors |= dict(_access(number, gpu))
        known |= dict(_set_aside(number))
    tree.text(_MINORS, *(f"{name} {minor}" for name, minor in known.items()))
    for name, minor in minors.items():
        lines = (f"DeviceFileMinor: {minor}", "DeviceFileMode: 256", "DeviceFileModify: 1")
        tree.text(f"{_FILES}/{name}", *lines)
        tree.files[f"{_NODES}{minor}"] = b""


def _access(number: int, gpu: Gpu) -> Iterator[tuple[str, int]]:
    """Name and minor number for each GPU instance and compute instance."""
    for instance in gpu.instances:
        minor = _minor(number, instance.id)
        folder = f"gpu{number}/mig/gi{instance.id}"
        yield f"{folder}/access", minor
        for compute in range(len(instance.compute or (1,))):
            yield f"{folder}/ci{compute}/access", minor + 1 + compute


def _set_aside(number: int) -> Iterator[tuple[str, int]]:
    """The same of all that the GPU could have, in the form of the list."""
    for instance in range(_GPU_INSTANCES):
        minor = _minor(number, instance)
        yield f"gpu{number}/gi{instance}/access", minor
        for compute in range(_COMPUTE_INSTANCES):
            yield f"gpu{number}/gi{instance}/ci{compute}/access", minor + 1 + compute


def _minor(number: int, instance: int) -> int:
    """Of a GPU instance; those of its compute instances follow."""
    return _FIRST_ACCESS + (number * _GPU_INSTANCES + instance) * (1 + _COMPUTE_INSTANCES)


def without(tree: HostTree, rights: Collection[Right]) -> HostTree:
    """The tree as a process sees it that lacks these rights."""
    files = dict(tree.files)
    for path, content in tree.files.items():
        minor = int(path.removeprefix(_NODES)) if path.startswith(_NODES) else 0
        hidden = ("mig-monitor" in rights and minor == _MONITOR) or (
            "mig-access" in rights and minor >= _FIRST_ACCESS
        )
        if hidden:
            del files[path]
        elif "pci-config" in rights and _CONFIG_SPACE.fullmatch(path):
            files[path] = content[:_HEADER_BYTES]
    return replace(tree, files=files)
