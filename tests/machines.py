# SPDX-License-Identifier: Apache-2.0
"""Small simulated machines for tests: name only the facts that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
from msgspec.structs import replace

from discovery.nvml.session import gpus_by_index, nvml_gpu_count
from simulator.description.machine_schema import (
    DriverSpec,
    Gpu,
    GpuInstanceProfile,
    HostSpec,
    MachineDescription,
    Model,
)
from simulator.simulation import Simulation

ONE = GpuInstanceProfile(
    enum=0,
    id=19,
    name="1g.5gb",
    slices=1,
    max=7,
    memory_mib=4864,
    multiprocessors=14,
    copy=1,
    size=1,
    starts=(0, 1, 2, 3, 4, 5, 6),
)
THREE = GpuInstanceProfile(
    enum=2,
    id=9,
    name="3g.20gb",
    slices=3,
    max=2,
    memory_mib=19968,
    multiprocessors=42,
    copy=3,
    decoders=2,
    size=4,
    starts=(0, 4),
)
"""Two rows of the A100's table. Source: MIG user guide."""


def model(**facts: Any) -> Model:
    """A MIG-capable GPU with ECC, row remapping and two NVLinks, and all it can tell."""
    plain = Model(
        name="NVIDIA Small",
        device_id=0x20B010DE,
        subsystem_id=0x134F10DE,
        architecture=7,
        compute_capability=(8, 0),
        brand=14,
        vbios="92.00.45.00.03",
        memory_mib=40960,
        reserved_mib=500,
        memory_bus_bits=5120,
        ecc=True,
        row_remapping=True,
        mig=(ONE, THREE),
        reset_for_mig=True,
        nvlink_links=2,
        nvlink_version=4,
        nvlink_mbps=25000,
        memory_temperature=True,
    )
    return replace(plain, **facts)


def bus_ids_by_index() -> tuple[str, ...]:
    """The GPUs of NVML in the session of this process, in PCI bus order."""
    count, _ = nvml_gpu_count()
    return gpus_by_index(count or 0).bus_ids


def gpu(at: int = 0, **facts: Any) -> Gpu:
    """The ``at``-th GPU of model ``small``, below a root port of its own on NUMA node 0."""
    plain = Gpu(
        model="small",
        bus_id=f"0000:{0x10 + at:02x}:00.0",
        path=(f"0000:00:{at + 1:02x}.0",),
        numa_node=0,
    )
    return replace(plain, **facts)


def machine(*gpus: Gpu, **facts: Any) -> MachineDescription:
    """A machine with these GPUs, two NUMA nodes of four CPUs, all links at NVSwitches."""
    plain = MachineDescription(
        summary="small",
        sources=(),
        host=HostSpec(machine_type="Small", memory_gib=64, numa=("0-3", "4-7")),
        driver=DriverSpec(version="550.54.15", nvml="12.550.54.15", cuda=12040),
        gpus=gpus,
        switched=True,
    )
    return replace(plain, **facts)


def simulation(
    directory: Path, *gpus: Gpu, models: Mapping[str, Model] | None = None, **facts: Any
) -> Simulation:
    """A simulated machine of these GPUs, or of two; ``facts`` are the machine's."""
    wanted = machine(*(gpus or (gpu(0), gpu(1))), **facts)
    return Simulation.create(wanted, directory, models=models or {"small": model()})


@contextmanager
def session(simulated: Simulation) -> Iterator[Callable[[int], Any]]:
    """An open NVML session on the machine; gives a GPU's handle for its index."""
    with simulated:
        pynvml.nvmlInit()
        yield pynvml.nvmlDeviceGetHandleByIndex


def code_of(call: Callable[[], object]) -> int:
    """The NVML return code of a pynvml call; 0 when it went well."""
    try:
        call()
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def unplug(simulated: Simulation, bus_id: str) -> None:
    """Take a GPU off the bus: NVML and sysfs have it no more."""
    simulated.remove_gpu(bus_id)
    (simulated.host_root / "sys/bus/pci/devices" / bus_id).unlink()
