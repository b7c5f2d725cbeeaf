# SPDX-License-Identifier: Apache-2.0
"""The schema of a simulated machine: what stands in ``machines/*.yaml`` and ``models.yaml``.

A machine names its GPUs by model; a model holds what all GPUs of that model share.
Units stand in the names. PCIe places are paths of bus ids from the root port down
to the device, so that sysfs and NVML's ancestor levels come from one fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base: unknown keys in a data file are errors."""


class GpuInstanceProfile(_Data, frozen=True, kw_only=True):
    """A row of a model's MIG table. Source: nvmlDeviceGetGpuInstanceProfileInfo."""

    enum: int
    """NVML_GPU_INSTANCE_PROFILE_*: the index that queries take."""
    id: int
    """The profile id that lists and creates take."""
    name: str
    slices: int
    max: int
    """How many instances of it fit on an empty GPU."""
    memory_mib: int
    multiprocessors: int
    copy: int
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0
    size: int
    """Memory units one instance takes."""
    starts: tuple[int, ...]
    """Memory units where it may start."""

    @property
    def graphics(self) -> bool:
        """Graphics APIs work on it."""
        return self.name.endswith("+gfx")


class Model(_Data, frozen=True, kw_only=True):
    """Facts that all GPUs of one model share."""

    name: str
    """Name as nvmlDeviceGetName gives it."""
    device_id: int
    """Device in the upper 16 bits, vendor 0x10de in the lower."""
    subsystem_id: int
    architecture: int
    """NVML_DEVICE_ARCH_*."""
    compute_capability: tuple[int, int]
    brand: int
    pci_class: int = 0x030200
    vbios: str
    memory_mib: int | None
    """Total as nvmlDeviceGetMemoryInfo gives it; None: NOT_SUPPORTED (unified memory)."""
    reserved_mib: int = 0
    bar1_mib: int | None = None
    """Window to the memory; None: the memory rounded up to a power of two, as most boards have."""
    memory_bus_bits: int | None
    ecc: bool | None
    """On, off, or None where the model has none."""
    row_remapping: bool
    """Ampere and later; before it pages are retired."""
    mig: tuple[GpuInstanceProfile, ...] = ()
    """Empty: not MIG-capable."""
    reset_for_mig: bool = False
    """A change of MIG mode waits for a reset (Ampere)."""
    nvlink_links: int = 0
    nvlink_version: int = 0
    """NVML's version enum."""
    nvlink_mbps: int = 0
    """Line rate of one link in one direction, MB/s."""
    fabric: bool = False
    """Answers GpuFabricInfo (Hopper and later)."""
    sensors: bool = True
    """Gives temperature, power and energy; a vGPU gives none of them."""
    memory_temperature: bool = False
    encoder: bool = True
    fan: bool = False
    """It has a fan of its own; other GPUs are cooled by their chassis."""
    profiling: bool = False
    """Answers GPM (Hopper and later)."""
    pcie_counters: bool = False
    """Counts the bytes that go over PCIe."""
    idle_performance_state: int = 0
    """P-state of a GPU with nothing to do."""
    power_limit_watts: int = 300
    """Highest power that it draws."""
    power_limits: bool = True
    """Says its limits; a GPU that shares its power budget with the CPU does not."""
    idle_watts: float = 50.0
    sm_clock_mhz: int = 210
    """Clock while idle."""
    memory_clock_mhz: int | None = 405
    """Clock while idle; None: the driver gives none, as where the memory is the host's."""
    max_sm_clock_mhz: int = 1980
    max_memory_clock_mhz: int | None = None
    """None: the memory clock never changes, as with HBM."""

    @property
    def window_mib(self) -> int | None:
        """Size of BAR 1; None for unified memory."""
        if self.bar1_mib is not None or self.memory_mib is None:
            return self.bar1_mib
        return 1 << (self.memory_mib - 1).bit_length()


class OwnModel(Model, frozen=True, kw_only=True):
    """A model that a machine file brings along."""

    model: str
    """Name by which the file's GPUs refer to it."""

    @property
    def alone(self) -> Model:
        """The model without that name, as those that come with gpuscape."""
        return Model(**{key: getattr(self, key) for key in Model.__struct_fields__})


class MigInstanceSpec(_Data, frozen=True, kw_only=True):
    """A GPU instance of a laid-out GPU with its compute instances."""

    profile: str
    start: int
    id: int
    """GPU instance id."""
    compute: tuple[int, ...] | None = None
    """Slices of each compute instance; None: one that takes all."""


class FabricSpec(_Data, frozen=True, kw_only=True):
    """The fabric a GPU is registered with."""

    cluster_uuid: str
    clique_id: int
    state: int = 3
    status: int = 0
    health_mask: int = 0
    health_summary: int = 1


class Gpu(_Data, frozen=True, kw_only=True):
    """A GPU of a machine."""

    model: str
    """Key in models.yaml, or one of the machine's own models."""
    bus_id: str
    path: tuple[str, ...] = ()
    """Bus ids of the bridges above it, from the root port down."""
    root: str = "0000:00"
    """The PCI root (host bridge) it hangs under: domain and bus."""
    numa_node: int = -1
    cpus: str | None = None
    """CPU affinity, kernel list format; None: that of its NUMA node."""
    minor: int | None = None
    """None: its place in the list."""
    uuid: str | None = None
    """None: made from machine and bus id, always the same."""
    serial: str | None = None
    pcie_generation: int | None = None
    """Highest that its slot allows; None: that of its model."""
    pcie_lanes: int = 16
    """Lanes of its slot."""
    mig: bool = False
    instances: tuple[MigInstanceSpec, ...] = ()
    fabric: FabricSpec | None = None
    numa_id: int | None = None
    """The GPU's own NUMA node on coherent systems."""
    virtualization: int = 0
    """NVML_GPU_VIRTUALIZATION_MODE_*."""
    vgpu_licensed: bool | None = None
    driver: Literal["nvidia", "nouveau", "vfio-pci"] | None = "nvidia"
    """Driver that it is bound to; None: no driver. NVML shows GPUs of the nvidia driver alone."""
    excluded: bool = False
    """Bound to the nvidia driver, which is configured to leave it alone: NVreg_ExcludedGpus."""

    @property
    def shown(self) -> bool:
        """NVML counts it."""
        return self.driver == "nvidia" and not self.excluded


class SimulatedNic(_Data, frozen=True, kw_only=True):
    """An RDMA NIC of a machine."""

    name: str
    bus_id: str
    path: tuple[str, ...] = ()
    root: str = "0000:00"
    numa_node: int = -1
    device_id: int = 0x102115B3
    """Device in the upper 16 bits, vendor in the lower; ConnectX-7 by default."""


class PciFunction(_Data, frozen=True, kw_only=True):
    """A PCI function that is neither GPU nor NIC: an NVSwitch shares NVIDIA's vendor id."""

    bus_id: str
    device_id: int
    """Device in the upper 16 bits, vendor in the lower."""
    pci_class: int
    path: tuple[str, ...] = ()
    root: str = "0000:00"
    numa_node: int = -1


class DirectLinks(_Data, frozen=True, kw_only=True):
    """NVLinks between two GPUs, by their places in the list."""

    a: int
    b: int
    links: int


class HostSpec(_Data, frozen=True, kw_only=True):
    """The machine around the GPUs."""

    machine_type: str | None = None
    """DMI product name; None: the host has no DMI tables, as WSL2."""
    memory_gib: int
    numa: tuple[str, ...]
    """CPUs of each NUMA node, kernel list format."""
    vgpu_host_driver: tuple[str, str] | None = None
    """Version and branch that a vGPU's PCI config space shows."""
    gpus_in_sysfs: bool = True
    """False: sysfs shows no PCI function of the GPUs, as in WSL2 and some sandboxes."""


class DriverSpec(_Data, frozen=True, kw_only=True):
    """The installed driver."""

    version: str
    nvml: str
    cuda: int
    """CUDA version as nvmlSystemGetCudaDriverVersion gives it: 12040."""


class ResetSpec(_Data, frozen=True, kw_only=True):
    """What a reset of a GPU does on this machine, whoever begins it.

    Source of what may differ: nvml.h on nvmlDeviceSetMigMode; NVIDIA MIG user guide, "Enable MIG
    Mode".
    """

    mode_change: Literal["resets", "reset-required", "not-supported"] = "resets"
    """Answer to a change of the MIG mode of an idle GPU that needs a reset for it: the driver
    resets it, or the call gives this activation status and the mode is pending. ``resets`` gives
    reset-required for a GPU that is passed through to a virtual machine, and not-supported on a
    host of vGPUs: the driver can reset neither."""
    seconds: float = 0.0
    """Time that a reset takes; the GPU is not there meanwhile."""
    result: Literal["done", "fails", "loses", "hangs"] = "done"
    """``fails``: the GPU is as before; ``loses``: it falls off the bus until the machine is booted;
    ``hangs``: the reset never ends, before a boot."""
    renumbers: bool = False
    """The GPU has another minor number afterwards, and handles from before are invalid."""
    fabric_manager: bool | None = None
    """Fabric Manager runs, which resets GPUs on NVSwitches one by one. None: where there are
    NVSwitches."""


class MachineDescription(_Data, frozen=True, kw_only=True):
    """A whole machine."""

    summary: str
    """Description for people, in one line."""
    sources: tuple[str, ...]
    """Publications that its values are from."""
    host: HostSpec
    driver: DriverSpec | None
    """None: no driver installed, the library is not there."""
    models: tuple[OwnModel, ...] = ()
    """GPU models that do not come with gpuscape."""
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[SimulatedNic, ...] = ()
    functions: tuple[PciFunction, ...] = ()
    """Other PCI functions: in sysfs, unknown to NVML's GPU list."""
    switched: bool = False
    """All links of each GPU end at NVSwitches."""
    direct: tuple[DirectLinks, ...] = ()
    reset: ResetSpec = ResetSpec()

    def known_models(self, shipped: Mapping[str, Model]) -> dict[str, Model]:
        """Models that its GPUs may name: those that come with gpuscape, and its own."""
        return {**shipped, **{model.model: model.alone for model in self.models}}
