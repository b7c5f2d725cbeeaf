# SPDX-License-Identifier: Apache-2.0
"""Capability files of MIG instances, which the driver adds and removes with the instances.

The device nodes to them are not the driver's: nvidia-smi and nvidia-modprobe make those, and
nobody removes them. ``mig-minors`` has the number of every node that there can be.
Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities".
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from simulator.description.machine_schema import MachineDescription
from simulator.state.machine_state import GpuInstance, MachineState, minors

FILES: Final = "proc/driver/nvidia/capabilities"
NODES: Final = "dev/nvidia-caps/nvidia-cap"
MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
DEVICES: Final = "proc/devices"
DEVICE_LINES: Final = (
    "Character devices:",
    "  1 mem",
    "195 nvidia",
    "237 nvidia-caps",
    "",
    "Block devices:",
    "  8 sd",
)
"""Major numbers; that of the capabilities is another after each boot on a real machine."""
CONFIG: Final = 1
MONITOR: Final = 2
FIRST_ACCESS: Final = 3
"""Minor number of the first GPU instance; its compute instances follow, then the next one."""

GPU_INSTANCES: Final = 15
COMPUTE_INSTANCES: Final = 8
"""Most instances of a GPU, and of a GPU instance, that have numbers of their own."""


def minor_of(gpu: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """Minor number of an instance's device node; ``gpu`` is the minor number of its GPU."""
    first = FIRST_ACCESS + (gpu * GPU_INSTANCES + gpu_instance) * (1 + COMPUTE_INSTANCES)
    return first if compute_instance is None else first + 1 + compute_instance


def file_lines(minor: int) -> tuple[str, ...]:
    """Lines of a capability file."""
    return (f"DeviceFileMinor: {minor}", "DeviceFileMode: 256", "DeviceFileModify: 1")


def minor_lines(gpus: Iterable[int]) -> Iterator[str]:
    """Lines of ``mig-minors`` for GPUs of these minor numbers: all that can be on them."""
    yield f"config {CONFIG}"
    yield f"monitor {MONITOR}"
    for gpu in gpus:
        for instance in range(GPU_INSTANCES):
            yield f"gpu{gpu}/gi{instance}/access {minor_of(gpu, instance)}"
            for compute in range(COMPUTE_INSTANCES):
                minor = minor_of(gpu, instance, compute)
                yield f"gpu{gpu}/gi{instance}/ci{compute}/access {minor}"


def access_files(gpu: int, instances: Sequence[GpuInstance]) -> Mapping[str, int]:
    """Path below a GPU's ``mig`` folder to minor number, for each of its instances."""
    minors = {}
    for instance in instances:
        minors[f"gi{instance.id}/access"] = minor_of(gpu, instance.id)
        for compute in instance.compute:
            minors[f"gi{instance.id}/ci{compute.id}/access"] = minor_of(
                gpu, instance.id, compute.id
            )
    return minors


def show_instances(root: Path, state: MachineState) -> None:
    """Make the host tree's capability files those of the instances that there are.

    Where the tree has none, as without a driver, nothing is made.
    """
    for gpu, instances in _by_minor(state):
        folder = root / FILES / f"gpu{gpu}/mig"
        if not (root / FILES).is_dir():
            return
        minors = access_files(gpu, instances)
        for shown_folder in [*folder.glob("gi*"), *folder.glob("gi*/ci*")]:
            if f"{shown_folder.relative_to(folder)}/access" not in minors:
                shutil.rmtree(shown_folder, ignore_errors=True)
        for path, minor in minors.items():
            file = folder / path
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(f"{line}\n" for line in file_lines(minor)))


def show_minors(root: Path, state: MachineState) -> None:
    """Have files of the GPUs' present minor numbers, where a reset has ever changed one."""
    if not any(gpu.renumbered for gpu in state.gpus.values()):
        return
    numbers = minors(state)
    for stale in _shown(root) - {*numbers.values()}:
        (root / f"dev/nvidia{stale}").unlink()
        shutil.rmtree(root / FILES / f"gpu{stale}", ignore_errors=True)
    for minor in numbers.values():
        (root / f"dev/nvidia{minor}").touch()
    if (root / MINORS).is_file():
        (root / MINORS).write_text("".join(f"{line}\n" for line in minor_lines(numbers.values())))


def _shown(root: Path) -> set[int]:
    """Minor numbers of the GPUs' device nodes."""
    names = (node.name.removeprefix("nvidia") for node in (root / "dev").glob("nvidia[0-9]*"))
    return {int(name) for name in names if name.isdigit()}


def make_device_nodes(root: Path, state: MachineState) -> None:
    """Make a device node, here an empty file, for each instance, as nvidia-modprobe does."""
    for gpu, instances in _by_minor(state):
        for minor in access_files(gpu, instances).values():
            node = root / f"{NODES}{minor}"
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()


def _by_minor(state: MachineState) -> Iterator[tuple[int, Sequence[GpuInstance]]]:
    machine: MachineDescription | None = state.machine
    numbers = minors(state)
    for gpu in machine.gpus if machine else ():
        if state.models[gpu.model].mig:
            yield numbers[gpu.bus_id], state.gpus[gpu.bus_id].instances
