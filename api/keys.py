# SPDX-License-Identifier: Apache-2.0
"""Every key that gpuscape reads or writes in the cluster, with its one writer, as plain data.

Documentation, access rules and admission policies are generated from :data:`KEYS`,
and no label is published that is not listed. Patterns and value formats are
RE2-compatible (no look-around), so that CEL's ``matches`` can use them; each must
match the whole text.
"""

from __future__ import annotations

import re

from api.key_kinds import Key, KeyLocation, Writer

# Value formats.
TEXT = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
NUMBER = r"[0-9]+"
TRUTH = r"true|false"
REQUEST_ID = r"[0-9a-f]{16}"

# What gpu-feature-discovery writes; its names for its values, described in its documentation.
TIMESTAMP = "nvidia.com/gfd.timestamp"
MACHINE = "nvidia.com/gpu.machine"
VGPU_PRESENT = "nvidia.com/vgpu.present"
VGPU_HOST_VERSION = "nvidia.com/vgpu.host-driver-version"
VGPU_HOST_BRANCH = "nvidia.com/vgpu.host-driver-branch"
MODE = "nvidia.com/gpu.mode"
CLIQUE = "nvidia.com/gpu.clique"
MIG_CAPABLE = "nvidia.com/mig.capable"
MIG_STRATEGY = "nvidia.com/mig.strategy"
MPS_CAPABLE = "nvidia.com/mps.capable"

# The block of labels of one resource: ``nvidia.com/gpu`` or ``nvidia.com/mig-<profile>``.
GPU = "nvidia.com/gpu"
MIG_FAMILY = "nvidia.com/mig-<profile>"
PRODUCT = "product"
GPU_PRODUCT = f"{GPU}.{PRODUCT}"
COUNT = "count"
REPLICAS = "replicas"
SHARING = "sharing-strategy"
MEMORY = "memory"
BASE = (PRODUCT, COUNT, REPLICAS, SHARING, MEMORY)
ARCHITECTURE = ("family", "compute.major", "compute.minor")
ATTRIBUTES = (
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    "engines.copy",
    "engines.decoder",
    "engines.encoder",
    "engines.jpeg",
    "engines.ofa",
)
"""Attributes that only MIG devices have."""

# Our own.
MODEL_COUNT_FAMILY = "gpuscape.io/count.<model>"
MODEL_MEMORY_FAMILY = "gpuscape.io/memory.<model>"
OWN_ARCHITECTURE = "gpuscape.io/gpu.architecture"
MEMORY_TYPE = "gpuscape.io/gpu.memory-type"
NVLINK_CLASS = "gpuscape.io/nvlink.class"
NVLINK_ISLAND = "gpuscape.io/nvlink.island"
EXPECTED = "gpuscape.io/gpu.expected"
FOUND = "gpuscape.io/gpu.found"
HEALTH = "gpuscape.io/gpu.health"
HEALTH_REASON = "gpuscape.io/gpu.health-reason"
TOPOLOGY = "gpuscape.io/topology"
KNOWN_GPUS = "gpuscape.io/known-gpus"
STATE = "gpuscape.io/state"
MIG_LAYOUT = "gpuscape.io/mig-layout"
MIG_REQUEST = "gpuscape.io/mig-request"
MIG_PERMIT = "gpuscape.io/mig-permit"
MIG_CORDON = "gpuscape.io/mig-cordon"
MIG_STATUS = "gpuscape.io/mig-status"
MIG_ROLLBACK_RECORD = "gpuscape.io/mig-rollback-record"
FORMER_MIG_PERMIT = "gpuscape.io/mig-grant"
FORMER_MIG_ROLLBACK_RECORD = "gpuscape.io/mig-undo"
FORMER_MIG_KEYS = frozenset({FORMER_MIG_PERMIT, FORMER_MIG_ROLLBACK_RECORD})
"""Keys before 0.1.0. Nothing reads them; the coordinator removes them where no change is open, and
``gpuscape uninstall`` wherever they are left."""
MIG_POLICY = "gpuscape.io/mig-policy"
MIG_LAYOUT_BEFORE = "gpuscape.io/mig-layout-before"
MIG_MODE_CHANGE = "gpuscape.io/mig-mode-change"
MIG_ROLLOUTS = "gpuscape.io/mig-rollouts"
MIG_PAUSED = "gpuscape.io/mig-paused"
MIG_ADOPT = "gpuscape.io/mig-adopt"
MIG_LAYOUT_PENDING = "gpuscape.io/mig-layout-pending"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_CONFIG_STATE = "nvidia.com/mig.config.state"
RELEASE = "gpuscape.io/release"
CLEAR_XIDS = "gpuscape.io/clear-xids"
DRAIN = "gpuscape.io/drain"
KEEP_CORDONED = "gpuscape.io/keep-cordoned"
LINK = "gpuscape.io/link"
NIC = "gpuscape.io/nic"
DO_NOT_DISRUPT = "gpuscape.io/do-not-disrupt"

_PROFILE = r"([0-9]+c\.)?[0-9]+g\.[0-9]+gb([.-][a-z][a-z0-9.]*)?"
_MODEL = r"[A-Za-z0-9._-]*[A-Za-z0-9]"

_DRIVER_VERSION = "nvmlSystemGetDriverVersion"
_CUDA_VERSION = "nvmlSystemGetCudaDriverVersion_v2"
_ATTRIBUTES = "nvmlDeviceGetAttributes_v2"
_CAPABILITY = "nvmlDeviceGetCudaComputeCapability"
_PCI_CONFIG = "/sys/bus/pci/devices/*/config"

_SUFFIXES: dict[str, tuple[str, str, str]] = {
    # suffix: value, what it says, source
    PRODUCT: (TEXT, "model name, with -MIG-<profile> and -SHARED added", "nvmlDeviceGetName"),
    COUNT: (
        NUMBER,
        "GPUs of that model, with those that do not answer, or MIG devices",
        "/sys/bus/pci/devices: driver; nvmlDeviceGetName",
    ),
    REPLICAS: (NUMBER, "shares of each; 0 where MIG excludes sharing", "sharing configuration"),
    SHARING: (r"(none|time-slicing|mps)?", "how the devices are shared", "sharing configuration"),
    MEMORY: (
        NUMBER,
        "MiB of one device",
        f"nvmlDeviceGetMemoryInfo; for MIG devices {_ATTRIBUTES}",
    ),
    "family": (TEXT, "architecture by compute capability", _CAPABILITY),
    "compute.major": (NUMBER, "compute capability, major", _CAPABILITY),
    "compute.minor": (NUMBER, "compute capability, minor", _CAPABILITY),
    "multiprocessors": (NUMBER, "multiprocessors of one MIG device", _ATTRIBUTES),
    "slices.gi": (NUMBER, "slices of the MIG device's GPU instance", _ATTRIBUTES),
    "slices.ci": (NUMBER, "slices of the MIG device's compute instance", _ATTRIBUTES),
    "engines.copy": (NUMBER, "copy engines", _ATTRIBUTES),
    "engines.decoder": (NUMBER, "decoders", _ATTRIBUTES),
    "engines.encoder": (NUMBER, "encoders", _ATTRIBUTES),
    "engines.jpeg": (NUMBER, "JPEG engines", _ATTRIBUTES),
    "engines.ofa": (NUMBER, "optical flow engines", _ATTRIBUTES),
}


def _exact(name: str, value: str, summary: str, source: str) -> Key:
    """A node label of the agent."""
    return Key(name=name, value=value, summary=summary, source=source)


def _gpu(suffix: str) -> Key:
    """A label in the block of ``nvidia.com/gpu``."""
    return _exact(f"{GPU}.{suffix}", *_SUFFIXES[suffix])


def _mig(suffix: str) -> Key:
    """A family of labels, one for each MIG profile, under the strategy ``mixed``."""
    value, summary, source = _SUFFIXES[suffix]
    return Key(
        name=f"{MIG_FAMILY}.{suffix}",
        pattern=rf"nvidia\.com/mig-{_PROFILE}\.{re.escape(suffix)}",
        value=value,
        summary=f"MIG devices of one profile: {summary}",
        source=source,
    )


NODE: tuple[Key, ...] = (
    _exact(TIMESTAMP, r"[0-9]{10}", "start of the agent, Unix seconds", "clock, once per start"),
    _exact(MACHINE, TEXT, "machine type, or 'unknown'", "/sys/class/dmi/id/product_name"),
    _exact(
        VGPU_PRESENT,
        TRUTH,
        "a GPU here is a vGPU",
        f"{_PCI_CONFIG}; if that is forbidden, nvmlDeviceGetVirtualizationMode",
    ),
    _exact(VGPU_HOST_VERSION, TEXT, "driver version of the vGPU's host", _PCI_CONFIG),
    _exact(VGPU_HOST_BRANCH, TEXT, "driver branch of the vGPU's host", _PCI_CONFIG),
)
DRIVER: tuple[Key, ...] = tuple(
    _exact(f"nvidia.com/cuda.{part}", value, summary, source)
    for part, value, summary, source in (
        ("driver.major", TEXT, "driver version, first part (old name)", _DRIVER_VERSION),
        ("driver.minor", TEXT, "driver version, second part (old name)", _DRIVER_VERSION),
        ("driver.rev", TEXT, "driver version, third part or empty (old name)", _DRIVER_VERSION),
        ("driver-version.major", TEXT, "driver version, first part", _DRIVER_VERSION),
        ("driver-version.minor", TEXT, "driver version, second part", _DRIVER_VERSION),
        ("driver-version.revision", TEXT, "driver version, third part or empty", _DRIVER_VERSION),
        ("driver-version.full", TEXT, "driver version", _DRIVER_VERSION),
        ("runtime.major", NUMBER, "newest CUDA the driver supports (old name)", _CUDA_VERSION),
        ("runtime.minor", NUMBER, "newest CUDA the driver supports (old name)", _CUDA_VERSION),
        ("runtime-version.major", NUMBER, "newest CUDA the driver supports", _CUDA_VERSION),
        ("runtime-version.minor", NUMBER, "newest CUDA the driver supports", _CUDA_VERSION),
        (
            "runtime-version.full",
            r"[0-9]+\.[0-9]+",
            "newest CUDA the driver supports, major.minor",
            _CUDA_VERSION,
        ),
    )
)
HARDWARE: tuple[Key, ...] = (
    _exact(MODE, r"compute|graphics|unknown", "PCI class of all GPUs", "/sys/bus/pci: class"),
    _exact(OWN_ARCHITECTURE, TEXT, "architecture as NVML names it", "nvmlDeviceGetArchitecture"),
    _exact(
        MEMORY_TYPE,
        r"hbm|gddr|unified|mixed",
        "hbm for a bus of 1024 bits or more, else gddr; unified: no memory of its own",
        "nvmlDeviceGetMemoryBusWidth, nvmlDeviceGetMemoryInfo",
    ),
    Key(
        name=MODEL_COUNT_FAMILY,
        pattern=rf"gpuscape\.io/count\.{_MODEL}",
        value=NUMBER,
        summary="GPUs of each model; a long name is cut and ends in a hash",
        source="nvmlDeviceGetName",
    ),
    Key(
        name=MODEL_MEMORY_FAMILY,
        pattern=rf"gpuscape\.io/memory\.{_MODEL}",
        value=NUMBER,
        summary="MiB of one GPU of each model",
        source="nvmlDeviceGetMemoryInfo",
    ),
)
RESOURCES: tuple[Key, ...] = (
    *(_gpu(suffix) for suffix in (*BASE, *ARCHITECTURE, *ATTRIBUTES)),
    *(_mig(suffix) for suffix in (*BASE, *ATTRIBUTES)),
    _exact(MIG_STRATEGY, r"single|mixed", "the MIG strategy, unless none", "setting"),
)
CAPABILITIES: tuple[Key, ...] = (
    _exact(MIG_CAPABLE, TRUTH, "a GPU here has MIG", "nvmlDeviceGetMigMode"),
    _exact(MPS_CAPABLE, TRUTH, "sharing by MPS is configured", "sharing configuration"),
)
LINKS: tuple[Key, ...] = (
    _exact(
        CLIQUE,
        r"[0-9a-f-]{36}\.[0-9]+",
        "NVLink fabric: cluster UUID and clique id",
        "nvmlDeviceGetGpuFabricInfo",
    ),
    _exact(
        NVLINK_CLASS,
        r"none|bridge|mesh|switch",
        "how NVLink connects the GPUs: isolated pairs, direct links, through NVSwitch",
        "nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkRemoteDeviceType; GPUs with MIG on and"
        " GPUs that are not registered with their fabric count as unlinked",
    ),
    _exact(
        NVLINK_ISLAND,
        NUMBER,
        "GPUs in the largest set connected by NVLink",
        "nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDeviceGetMigMode,"
        " nvmlDeviceGetGpuFabricInfoV",
    ),
)
HEALTHS: tuple[Key, ...] = (
    _exact(
        EXPECTED,
        NUMBER,
        "GPUs that should answer: bound to the nvidia driver, or known from an earlier reading",
        "/sys/bus/pci/devices: driver",
    ),
    _exact(FOUND, NUMBER, "GPUs that answered", "nvmlDeviceGetHandleByPciBusId_v2"),
    _exact(
        HEALTH,
        r"healthy|degraded|unhealthy|unknown",
        "the worst health of all GPUs, by the health table",
        "health table",
    ),
    _exact(HEALTH_REASON, TEXT, "the reason, as in the health table", "health table"),
)


def _note(
    name: str,
    summary: str,
    writer: Writer = Writer.ADMIN,
    where: KeyLocation = KeyLocation.NODE_ANNOTATION,
    **value: str,
) -> Key:
    """An annotation."""
    return Key(name=name, where=where, writer=writer, summary=summary, **value)


_OF_POD = Writer.USER, KeyLocation.POD_ANNOTATION

OTHERS: tuple[Key, ...] = (
    Key(
        name=TOPOLOGY,
        where=KeyLocation.NODE_ANNOTATION,
        summary="JSON: NVLink and PCIe matrices of the GPUs, schema version 1",
        source="nvmlDeviceGetNvLinkState, /sys/bus/pci/devices",
    ),
    Key(
        name=KNOWN_GPUS,
        where=KeyLocation.NODE_ANNOTATION,
        summary="JSON: how many GPUs the node has in this boot, and which, for its next agent",
        source="/sys/bus/pci/devices, nvmlDeviceGetCount, /proc/sys/kernel/random/boot_id",
    ),
    Key(
        name=STATE,
        where=KeyLocation.LEASE_ANNOTATION,
        summary="JSON: which GPUs are usable and used, on the Lease gpuscape-<node>",
        source="the kubelet's pod-resources socket",
    ),
    Key(
        name=MIG_CONFIG,
        writer=Writer.ADMIN,
        value=TEXT,
        summary="name of the desired MIG layout",
    ),
    Key(
        name=MIG_ADOPT,
        writer=Writer.ADMIN,
        value=r"matching|any|never",
        summary="a nvidia.com/mig.config from before is obeyed: once the GPUs have that layout,"
        " whatever they have, or never",
    ),
    Key(
        name=MIG_LAYOUT_PENDING,
        where=KeyLocation.NODE_TAINT,
        writer=Writer.ADMIN,
        summary="a Node may register with it; the coordinator removes it once the desired layout is"
        " there",
    ),
    _note(MIG_LAYOUT, "desired MIG layout; wins over nvidia.com/mig.config"),
    _note(MIG_LAYOUT_BEFORE, "desired MIG layout before gpuscape mig rollout start"),
    _note(
        MIG_MODE_CHANGE,
        "how MIG may be turned on and off on GPUs that need a reset for it; wins over the agent's"
        " setting of this name",
        value=r"off|driver",
    ),
    _note(
        MIG_REQUEST,
        "JSON: a MIG change that waits for a permit: its id, affected GPUs, pods on them",
        Writer.AGENT,
    ),
    _note(MIG_PERMIT, "JSON: id of the request, and phase cordoned or proceed", Writer.COORDINATOR),
    _note(
        MIG_CORDON,
        "id of the request for which the coordinator cordoned the Node, until it uncordons it",
        Writer.COORDINATOR,
        value=REQUEST_ID,
    ),
    _note(
        MIG_ROLLBACK_RECORD,
        "JSON: rollback record of the node that has the slot, on the Lease mig-slot-<n>",
        Writer.COORDINATOR,
        where=KeyLocation.LEASE_ANNOTATION,
    ),
    _note(
        MIG_ROLLOUTS,
        "JSON: how the changes of each rollout ended, on the Lease coordinator",
        Writer.COORDINATOR,
        where=KeyLocation.LEASE_ANNOTATION,
    ),
    _note(
        MIG_PAUSED,
        "while it is true, no further MIG change begins; on the Lease coordinator",
        where=KeyLocation.LEASE_ANNOTATION,
        value=TRUTH,
    ),
    _note(
        MIG_POLICY,
        "which entry of the fleet policy the layout is of, and a hash of that layout",
        Writer.COORDINATOR,
    ),
    _note(MIG_STATUS, "JSON: phase, reason and blockers of a MIG change", Writer.AGENT),
    Key(
        name=MIG_CONFIG_STATE,
        value=r"pending|rebooting|success|failed",
        summary="state of the MIG change, in mig-manager's words",
    ),
    _note(RELEASE, "while it is set, the agent holds no NVML handle"),
    _note(
        CLEAR_XIDS,
        "all, or PCI bus ids: once when it changes, XID errors of these GPUs up to then no"
        " longer count as ill health",
    ),
    _note(DRAIN, "how pods leave before a MIG change", value=r"wait|cordon|evict|node"),
    _note(KEEP_CORDONED, "the coordinator leaves this node cordoned after a MIG change"),
    _note(LINK, "how close the pod's GPUs should be", *_OF_POD, value=r"any|numa|nvlink"),
    _note(NIC, "the pod's GPUs should be near an RDMA NIC", *_OF_POD, value=r"true"),
    _note(DO_NOT_DISRUPT, "no MIG change may disturb this pod", *_OF_POD),
)

LABELS: tuple[Key, ...] = (*NODE, *DRIVER, *CAPABILITIES, *RESOURCES, *HARDWARE, *LINKS, *HEALTHS)
"""The node labels that the labelers decide, each owned by one of them."""

KEYS: tuple[Key, ...] = (*LABELS, *OTHERS)

_EXACT = {key.name: key for key in LABELS}
_FAMILIES = tuple(key for key in LABELS if key.pattern is not None)


def label(name: str) -> Key | None:
    """The label of this name, or the family that the name belongs to; None for a foreign label."""
    exact = _EXACT.get(name)
    return exact or next((key for key in _FAMILIES if key.matches(name)), None)
