# SPDX-License-Identifier: Apache-2.0
"""Values for tests: name only the facts that matter, the rest is a plain working node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from api.fabric_kind import FabricKind
from discovery.gpu_fields import with_gpu_fields
from discovery.model import (
    Driver,
    Gap,
    GpuSnapshot,
    GpuState,
    Host,
    MigDevice,
    Mode,
    NodeSnapshot,
    NvidiaFacts,
    Reason,
    Topology,
)
from discovery.nvml_terms import Architecture
from discovery.sample import GpuSample, MemoryUse
from discovery.unread import unread_fields, unread_gpu

Value = TypeVar("Value")

MIB = 1 << 20

WHOLE = Mode(current=False, pending=False)
SPLIT = Mode(current=True, pending=True)


def only(kind: type[Value], **readings: Any) -> Value:
    """A value with these readings and no others."""
    return kind(**(unread_fields(kind) | readings))


def gpu(at: int = 0, **facts: Any) -> GpuSnapshot:
    """A MIG-capable GPU named MOCKMODEL with 300 MiB, the ``at``-th on its bus."""
    plain = only(
        GpuSnapshot,
        bus_id=f"0000:{0x10 + at:02x}:00.0",
        state=GpuState.PRESENT,
        index=at,
        uuid=f"GPU-00000000-0000-0000-0000-{at:012d}",
        model="MOCKMODEL",
        architecture=Architecture.AMPERE,
        pci_class=0x030200,
        memory_bytes=300 * MIB,
        nvidia=only(NvidiaFacts, minor=at, compute_capability=(8, 0), mig=WHOLE),
    )
    return changed(plain, **facts)


def changed(of: GpuSnapshot, **facts: Any) -> GpuSnapshot:
    """The GPU with these facts, its own and those that only NVIDIA GPUs have."""
    return with_gpu_fields(of, facts)


def nvidia(of: GpuSnapshot) -> NvidiaFacts:
    """The facts of a GPU that only NVIDIA GPUs have; it is one."""
    assert of.nvidia is not None
    return of.nvidia


def gpu_facts(of: GpuSnapshot) -> dict[str, Any]:
    """All fields of a GPU and of its NVIDIA facts, by name."""
    facts = {name: getattr(of, name) for name in GpuSnapshot.__slots__ if name != "nvidia"}
    return facts | {name: getattr(nvidia(of), name) for name in NvidiaFacts.__slots__}


def lacking(
    of: GpuSnapshot, what: str, reason: Reason = Reason.UNSUPPORTED, source: str = "nvml"
) -> GpuSnapshot:
    """The GPU without the reading ``what``, and the gap that tells why."""
    gap = Gap(what=what, reason=reason, source=source)
    missing = (unread_fields(GpuSnapshot) | unread_fields(NvidiaFacts))[what]
    return changed(of, **{what: missing}, gaps=(*of.gaps, gap))


def silent(at: int = 0, state: GpuState = GpuState.LOST, **facts: Any) -> GpuSnapshot:
    """A GPU that does not answer: only its place on the bus is known."""
    return changed(unread_gpu(gpu(at).bus_id, state), **facts)


def mig_device(profile: str = "1g.5gb", gi: int = 1, ci: int = 0, **facts: Any) -> MigDevice:
    """A MIG device of 100 MiB with every engine count zero."""
    plain = MigDevice(
        uuid=f"MIG-00000000-0000-0000-{ci:04d}-{gi:012d}",
        gpu_instance_id=gi,
        compute_instance_id=ci,
        profile=profile,
        placement=None,
        memory_bytes=100 * MIB,
        multiprocessors=0,
        gpu_instance_slices=0,
        compute_instance_slices=0,
        copy_engines=0,
        decoders=0,
        encoders=0,
        jpeg_engines=0,
        ofa_engines=0,
    )
    return replace(plain, **facts)


def node(gpus: Sequence[GpuSnapshot] = (), **facts: Any) -> NodeSnapshot:
    """A node with these GPUs, driver 400.300 and CUDA 8.0, and no NVLinks."""
    plain = NodeSnapshot(
        host=Host(name="node-a", machine_type="Some Machine"),
        driver=Driver(version="400.300", nvml_version="12.400.300", cuda_version=(8, 0)),
        gpus=tuple(gpus),
        topology=unlinked([gpu.bus_id for gpu in gpus]),
    )
    return replace(plain, **facts)


def unlinked(bus_ids: Sequence[str]) -> Topology:
    """GPUs that see each other across the system only."""
    n = len(bus_ids)
    return Topology(
        gpus=tuple(bus_ids),
        kind=FabricKind.NONE,
        nvlinks=tuple((0,) * n for _ in bus_ids),
        pcie=tuple(tuple(0 if i == j else 5 for j in range(n)) for i in range(n)),
    )


def sample(of: GpuSnapshot, **readings: Any) -> GpuSample:
    """A sample of an idle GPU with plausible readings."""
    plain = only(
        GpuSample,
        bus_id=of.bus_id,
        at_seconds=100.0,
        sm_clock_hertz=210_000_000,
        memory_clock_hertz=1_215_000_000,
        gpu_celsius=34,
        memory_celsius=41,
        power_watts=55.123,
        energy_joules=1234.567,
        pcie_replays=0,
        gpu_busy_ratio=0.0,
        memory_busy_ratio=0.0,
        encoder_busy_ratio=0.0,
        decoder_busy_ratio=0.0,
        memory=MemoryUse(free_bytes=290 * MIB, used_bytes=4 * MIB, reserved_bytes=6 * MIB),
        nvlink_received_bytes=0,
        nvlink_sent_bytes=0,
        vgpu_licensed=False,
    )
    return replace(plain, **readings)
