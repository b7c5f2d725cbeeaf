# SPDX-License-Identifier: Apache-2.0
"""The values everything else is computed from: one node as it was at one moment.

All values are frozen; new states are made by ``dataclasses.replace``. A reading that a device does
not give is ``None`` with a :class:`Gap` that has the reason; zero means measured zero. GPUs are
keyed by PCI bus id while they are read (a hung GPU reports no UUID) and by UUID afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from api.fabric_kind import FabricKind
from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.nvml_terms import Architecture, LinkPeer, Virtualization

Bytes = int
"""A byte count."""


class Reason(StrEnum):
    """Why a reading is missing; the words appear in labels, metrics and messages."""

    UNSUPPORTED = "unsupported"  # this device or driver does not have it
    FORBIDDEN = "forbidden"  # a right or device node is missing
    LOST = "lost"  # the GPU fell off the bus or needs a reset
    HUNG = "hung"  # a driver call did not return; the GPU is quarantined
    PENDING = "pending"  # the first answer is being waited for
    ABSENT = "absent"  # nothing there: no driver, no file, no such device
    GARBAGE = "garbage"  # an answer outside what is possible
    FAILED = "failed"  # any other error


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A reading that could not be had, with the reason."""

    what: str
    """Field of the value it belongs to, such as ``memory_bytes``."""
    reason: Reason
    source: str
    """What was read: an NVML entry point as pynvml names it, or a path below the root."""
    detail: str = ""
    """The error's own text, for people."""
    kept: bool = False
    """The value is there all the same: a fact that does not change, as it was last read."""


class GpuState(StrEnum):
    """Whether the GPU answered in this cycle."""

    PRESENT = "present"
    LOST = "lost"
    HUNG = "hung"
    UNREADABLE = "unreadable"  # listed, but no handle or no identity could be had
    INITIALISING = "initialising"  # its first answer is being waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A mode that may wait for a reset: what holds now, and what will hold after it."""

    current: bool
    pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """An NVLink port of a GPU, as that GPU reports it."""

    link: int
    active: bool | None = None
    """None: not read now. It changes, so an older reading says nothing."""
    version: int | None = None
    """NVML's version enum: 1 is 1.0, 2 is 2.0, 3 is 2.2, 4 is 3.0, 5 is 3.1, 6 is 4.0, 7 is 5.0."""
    peer: LinkPeer | None = None
    """UNKNOWN where the driver hides it; None where it was never read, as of a link always down."""
    peer_bus_id: str | None = None
    """The peer GPU's normalised bus id; None behind a switch and where the driver hides it."""
    bytes_per_second: int | None = None
    """Line rate in one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The NVLink fabric a GPU is registered with. Source: nvmlDeviceGetGpuFabricInfo(V)."""

    state: int
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    status: int
    """NVML return code of the registration; 0 is success."""
    cluster_uuid: str
    """Canonical lower-case UUID; all zero where the fabric has none."""
    clique_id: int
    health_mask: int | None = None
    """None with the first version of the call, which has no health."""
    health_summary: int | None = None
    """0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity; None before version 3."""

    @property
    def registered(self) -> bool:
        """Registration completed with success."""
        return self.state == 3 and self.status == 0

    @property
    def unregistered(self) -> bool:
        """There is a fabric to register with, and the GPU is not, or not yet."""
        return self.state != 0 and not self.registered

    @property
    def attached(self) -> bool:
        """Registered in a cluster that has an id."""
        return self.registered and set(self.cluster_uuid) - {"0", "-"} != set()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemappedRows:
    """Memory rows taken out of service, Ampere and later. Source: nvmlDeviceGetRemappedRows."""

    correctable: int
    uncorrectable: int
    pending: bool
    """A reset is needed for a remapping to take effect."""
    failed: bool
    """A remapping failed: the GPU is to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A MIG device: a compute instance within its GPU instance."""

    uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    profile: str
    """``1g.5gb``, ``1c.3g.20gb``, ``1g.5gb+me``: compute slices only where they differ."""
    placement: tuple[int, int] | None
    """Start and size of the GPU instance, in the GPU's memory units."""
    memory_bytes: Bytes
    multiprocessors: int
    gpu_instance_slices: int
    compute_instance_slices: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """An XID error that the driver reported, folded by code."""

    code: int
    count: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    last_seen_seconds: float = 0.0
    """Wall clock of the newest one, Unix seconds; for display only."""
    over: bool = False
    """The GPU has recovered from it, or a person says so: it only counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFacts:
    """Facts that only an NVIDIA GPU has; those that NVML does not give have gaps in the GPU."""

    minor: int | None
    """N in ``/dev/nvidiaN``. Source: nvmlDeviceGetMinorNumber."""
    compute_capability: tuple[int, int] | None
    """Major and minor. Source: nvmlDeviceGetCudaComputeCapability."""
    mig: Mode | None
    """None: not MIG-capable (gap UNSUPPORTED), or not read. Source: nvmlDeviceGetMigMode."""
    max_mig_devices: int | None
    """Source: nvmlDeviceGetMaxMigDeviceCount."""
    mig_devices: tuple[MigDevice, ...]
    """Source: nvmlDeviceGetMigDeviceHandleByIndex."""
    fabric: Fabric | None
    """Source: nvmlDeviceGetGpuFabricInfo(V)."""
    links: tuple[NvLink, ...]
    """Source: nvmlDeviceGetNvLink{State,Version,RemoteDeviceType,RemotePciInfo_v2}."""
    remapped_rows: RemappedRows | None
    """Source: nvmlDeviceGetRemappedRows."""
    retired_pages_pending: bool | None
    """Source: nvmlDeviceGetRetiredPagesPendingStatus."""
    recovery_action: int | None
    """0 none, 1 GPU reset, 2 node reboot, 3 drain peers, 4 drain and reset, 5 IMEX, 6 bus reset.
    Source: nvmlDeviceGetFieldValues, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""
    virtualization: Virtualization | None
    """Source: nvmlDeviceGetVirtualizationMode."""
    persistence: bool | None
    """Source: nvmlDeviceGetPersistenceMode."""
    ancestors: tuple[tuple[str, int], ...]
    """Bus id and PCIe level, 0 to 5, of others. Source: nvmlDeviceGetTopologyCommonAncestor."""
    xids: tuple[Xid, ...]
    """In the order of their newest events: the last XID is the newest, whatever the clock did.
    Source: nvmlEventSetWait_v2, and the kernel log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSnapshot:
    """Facts of a GPU. Everything but ``bus_id`` and ``state`` may be missing, each with a gap."""

    # no field has a default: whoever reads a GPU says of each where it comes from
    bus_id: str
    """PCI bus id as sysfs writes it: ``0000:1b:00.0``, four-digit domain, lower case."""
    state: GpuState
    index: int | None
    """The GPU's place, kept while the agent lives: at the start the order of the PCI bus, as
    NVML counts; a GPU that comes later has the next free one."""
    uuid: str | None
    serial: str | None
    model: str | None
    architecture: Architecture | None
    pci_device_id: int | None
    """Device id in the upper 16 bits, vendor in the lower: ``0x20B010DE``."""
    pci_subsystem_id: int | None
    pci_class: int | None
    """24-bit class code from sysfs, such as ``0x030200``."""
    vbios_version: str | None
    memory_bytes: Bytes | None
    memory_bus_bits: int | None
    """Width of the memory interface. Source: nvmlDeviceGetMemoryBusWidth."""
    ecc: Mode | None
    numa_node: int | None
    """The host's NUMA node; None where the kernel says -1."""
    own_numa_node: int | None
    """The node that the GPU's own memory is, on coherent systems such as GB200."""
    cpu_affinity: str | None
    """Kernel list format, such as ``0-15,128-143``."""
    nvidia: NvidiaFacts | None
    """None: the GPU is another vendor's. An NVIDIA GPU has them even when NVML gave none."""
    gaps: tuple[Gap, ...]
    """Missing readings, by the names of fields here and in :class:`NvidiaFacts`."""

    @property
    def mig_capable(self) -> bool:
        """The GPU answers for its MIG mode at all."""
        return self.nvidia is not None and self.nvidia.mig is not None

    @property
    def mig_enabled(self) -> bool:
        """MIG is on now, whatever is pending."""
        return self.nvidia is not None and self.nvidia.mig is not None and self.nvidia.mig.current

    @property
    def mig_devices(self) -> tuple[MigDevice, ...]:
        """The MIG devices of the GPU; none where it cannot have any."""
        return () if self.nvidia is None else self.nvidia.mig_devices

    def gap(self, field: str) -> Gap | None:
        """The gap of this field, if there is one."""
        return next((gap for gap in self.gaps if gap.what == field), None)

    def misses(self, field: str) -> bool:
        """Whether the GPU has this field, as far as is known, and it was never read."""
        gap = self.gap(field)
        return gap is not None and gap.reason is not Reason.UNSUPPORTED and not gap.kept


def nvidia_gpus(gpus: Iterable[GpuSnapshot]) -> Iterator[tuple[GpuSnapshot, NvidiaFacts]]:
    """The NVIDIA GPUs among these, in their order, with the facts that only they have."""
    return ((gpu, gpu.nvidia) for gpu in gpus if gpu.nvidia is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The NVIDIA driver as NVML reports it."""

    version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    """Newest CUDA version the driver supports, as (major, minor)."""
    gaps: tuple[Gap, ...] = ()

    @property
    def present(self) -> bool:
        """NVML could be initialised and named its driver."""
        return self.version is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgpu:
    """Facts about vGPUs on this system, from PCI configuration space."""

    present: bool
    host_driver_version: str | None = None
    host_driver_branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node of the host."""

    node: int
    cpus: str
    """Kernel list format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """An RDMA-capable network interface. Source: /sys/class/infiniband."""

    name: str
    bus_id: str
    numa_node: int | None = None
    cpu_affinity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the GPUs, from sysfs and psutil below one root."""

    name: str
    machine_type: str | None = None
    """DMI product name as it stands in the file, stripped; empty is possible."""
    cpus: int | None = None
    memory_bytes: Bytes | None = None
    numa_nodes: tuple[NumaNode, ...] = ()
    nics: tuple[Nic, ...] = ()
    """In PCI bus order."""
    vgpu: Vgpu | None = None
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFacts:
    """Ids of a PCI function, and its place in the host. Source: /sys/bus/pci/devices."""

    bus_id: str
    pci_class: int | None = None
    """24-bit class code, such as ``0x030200``."""
    device_id: int | None = None
    """Device id in the upper 16 bits, vendor in the lower, as NVML has it."""
    subsystem_id: int | None = None
    """Ids of the board, device and vendor in the same form."""
    numa_node: int | None = None
    cpu_affinity: str | None = None
    """Kernel list format."""
    root: str | None = None
    """The root bus it hangs under, such as ``pci0000:17``."""
    bridges: tuple[str, ...] = ()
    """Bus ids of the bridges above it, from the root port down; empty on the root bus itself."""
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Links between the devices of one node; every matrix is square.

    ``nvlinks[i][j]`` counts active NVLinks from GPU i to GPU j, direct or through
    NVSwitch, as GPU i sees them, zero diagonal. It may be asymmetric when a link
    failed at one end; :meth:`effective` takes the smaller side. ``pcie[i][j]`` is
    the PCIe ancestor level, 0 same board to 5 across sockets, over the GPUs
    followed by the NICs; symmetric, zero diagonal. None: not known.
    """

    gpus: tuple[str, ...] = ()
    """Bus ids in the order of the snapshot's GPUs: row order of both matrices."""
    nics: tuple[str, ...] = ()
    """NIC names: the rows of ``pcie`` after the GPUs."""
    kind: FabricKind = FabricKind.NONE
    nvlinks: tuple[tuple[int | None, ...], ...] = ()
    pcie: tuple[tuple[int | None, ...], ...] = ()

    def effective(self, i: int, j: int) -> int | None:
        """NVLinks that both ends see between GPUs i and j; None if either is unknown."""
        forward, backward = self.nvlinks[i][j], self.nvlinks[j][i]
        return None if forward is None or backward is None else min(forward, backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """State of a node at one moment, from which labels, annotations and metrics are computed."""

    host: Host
    driver: Driver
    gpus: tuple[GpuSnapshot, ...] = ()
    """By their places, which masks and matrices follow; a GPU that is known but does not answer
    is here, with its state."""
    topology: Topology = Topology()
    counts: GpuCounts = NO_GPUS
    settling: bool = False
    """A GPU was first expected so short a time ago that it may yet give its first answer."""
    awaits_record: bool = False
    """The record of known GPUs has not been read from the Node: there may be more of them."""

    @property
    def answering(self) -> tuple[GpuSnapshot, ...]:
        """The GPUs that answered in this cycle."""
        return tuple(gpu for gpu in self.gpus if gpu.state is GpuState.PRESENT)

    @property
    def is_driverless(self) -> bool:
        """Whether no driver answers; one that hides only its version still answers for its GPUs."""
        return not self.driver.present and not self.answering
