# SPDX-License-Identifier: Apache-2.0
"""The MIG state of GPUs as the driver reports it, instances without a MIG device included. Values.

A snapshot's MIG devices leave out what cannot be used: a GPU instance without a compute instance
has no device, and still takes its place. Whoever changes a layout needs all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from discovery.model import Gap, Mode
from discovery.nvml_terms import Virtualization
from discovery.sample import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class MigEngines:
    """Engines of a GPU instance. Source: nvmlGpuInstanceProfileInfo_t."""

    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """A compute instance profile within a GPU instance.

    Source: nvmlGpuInstanceGetComputeInstanceProfileInfo(V).
    """

    slices: int
    id: int
    """Profile id, as NVML's calls that list and create instances take it."""
    starts: tuple[int, ...] = ()
    """Slices of the GPU instance where one may start, in ascending order; empty where the driver
    gives none, or makes compute instances only where it chooses.
    Source: nvmlGpuInstanceGetComputeInstancePossiblePlacements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A GPU instance profile of one GPU. Source: nvmlDeviceGetGpuInstanceProfileInfo(V)."""

    number: int
    """NVML_GPU_INSTANCE_PROFILE_*: the index that queries take."""
    id: int
    """Profile id, as NVML's calls that list and create instances take it."""
    name: str
    """``1g.5gb+me``: without compute slices in front."""
    slices: int
    """Compute slices of one instance."""
    size: int
    """Memory units that one instance takes."""
    starts: tuple[int, ...]
    """Units where one may start, in ascending order.
    Source: nvmlDeviceGetGpuInstancePossiblePlacements."""
    max_instances: int
    """How many fit on an empty GPU. A driver may report too many for an A30."""
    memory_bytes: int
    multiprocessors: int
    engines: MigEngines = MigEngines()
    compute: tuple[ComputeProfile, ...] = ()
    """Its compute instance profiles, the smallest first; empty where there is no GPU instance of
    this profile to ask."""
    fitting: int | None = field(default=None, compare=False)
    """How many more fit now, as the driver counts; None with MIG off, and where it does not count.
    Source: nvmlDeviceGetGpuInstanceRemainingCapacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentCompute:
    """A compute instance that exists. Source: nvmlComputeInstanceGetInfo_v2."""

    id: int
    slices: int
    start: int
    """First slice within the GPU instance."""
    uuid: str | None
    """UUID of its MIG device; None where it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentInstance:
    """A GPU instance that exists. Source: nvmlGpuInstanceGetInfo."""

    id: int
    profile: str
    """Name of its profile, ``1g.5gb+me``."""
    start: int
    """First memory unit."""
    size: int
    compute: tuple[CurrentCompute, ...] = ()
    """In the order of their ids; empty for an instance that a stopped change left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigGpu:
    """A GPU with its whole MIG state; a GPU that was read in part is an UnreadMigGpu."""

    index: int
    """Index that the driver gives: the position in PCI bus order among the GPUs that it opens; for
    people and filters. Source: nvmlDeviceGetIndex."""
    uuid: str
    bus_id: str
    """Normalised, ``0000:1b:00.0``."""
    model: str
    device_id: int
    """PCI device and vendor, ``0x20b010de``: device in the upper half."""
    subsystem_id: int
    mode: Mode | None
    """None: the GPU has no MIG."""
    minor: int | None = None
    """Number of its device file ``/dev/nvidiaN``; None where the driver gives none."""
    resetless: bool = False
    """The mode changes without a reset. Source: NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, else the
    architecture: Hopper and later."""
    virtualization: Virtualization | None = None
    """None where it cannot be read. Source: nvmlDeviceGetVirtualizationMode."""
    places: bool = True
    """The driver makes GPU instances at places that the caller chooses.
    Source: nvmlDeviceCreateGpuInstanceWithPlacement is in its library."""
    profiles: tuple[MigProfile, ...] = ()
    """By number; empty where the driver lists profiles only with MIG on."""
    instances: tuple[CurrentInstance, ...] = ()
    """In the order of their ids."""
    processes: tuple[Process, ...] = ()
    """Programs on the GPU that the driver lists, by pid; those on an instance with its ids. A
    program that only has the driver open is not among them."""

    def profile(self, name: str) -> MigProfile | None:
        """The profile of this name."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def pids_on(
        self, instance: CurrentInstance, compute: CurrentCompute | None = None
    ) -> list[int]:
        """Pids of the programs on an instance, or on one of its compute instances; sorted."""
        return sorted(
            {
                process.pid
                for process in self.processes
                if process.gpu_instance_id == instance.id
                and (compute is None or process.compute_instance_id == compute.id)
            }
        )

    def devices(self) -> Iterator[tuple[CurrentInstance, CurrentCompute]]:
        """MIG devices, which programs open: each compute instance with its GPU instance."""
        for instance in self.instances:
            for compute in instance.compute:
                yield instance, compute


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadMigGpu:
    """A GPU whose MIG state could not be read in full: nothing may be planned or concluded.

    It has no list of instances, so that nobody takes those that could not be seen for absent.
    """

    bus_id: str
    """Normalised."""
    gaps: tuple[Gap, ...]
    """What is missing, and why; at least one."""
    index: int | None = None
    uuid: str | None = None
    model: str | None = None
    mode: Mode | None = None
    """None here: not read, or the GPU has no MIG."""

    @property
    def why(self) -> str:
        """The first thing that is missing, and why, in words."""
        return f"{self.gaps[0].source}: {self.gaps[0].detail}"


MigReading = MigGpu | UnreadMigGpu
"""MIG state of a GPU, read in full or not."""


def split_readings(readings: Iterable[MigReading]) -> tuple[list[MigGpu], list[UnreadMigGpu]]:
    """GPUs that were read in full, and the others."""
    read: list[MigGpu] = []
    unread: list[UnreadMigGpu] = []
    for reading in readings:
        if isinstance(reading, MigGpu):
            read.append(reading)
        else:
            unread.append(reading)
    return read, unread


def whole_devices(gpus: Iterable[MigGpu]) -> dict[str, bool]:
    """UUID of each MIG device to whether it is all of its GPU instance; none without a UUID."""
    return {
        compute.uuid: (profile := gpu.profile(instance.profile)) is None
        or compute.slices == profile.slices
        for gpu in gpus
        for instance, compute in gpu.devices()
        if compute.uuid is not None
    }
