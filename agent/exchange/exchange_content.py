# SPDX-License-Identifier: Apache-2.0
"""Snapshot to the content of the file for ``gpuscape devices``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

from api import topology_annotation
from api.device_exchange import (
    MOST_TABLE_GPUS,
    ExchangedGpu,
    ExchangedMigDevice,
    ExchangedVerdict,
    problem_of,
    table_of,
)
from api.topology_annotation import TopologyAnnotation
from discovery.model import GpuSnapshot, MigDevice, NodeSnapshot, NvidiaFacts, nvidia_gpus
from health.gpu_health import gpu_verdicts, xid_verdicts
from health.health_verdict import HealthVerdict
from labelers.annotations import topology_of
from labelers.unsettled import why_unsettled
from placement.exact_choice import ExactChoice
from placement.shape import shape

_NO_NAME = re.compile(r"[^A-Za-z0-9 ._()+-]")

CapabilityMinors = Mapping[str, int]
"""Capability, such as ``gpu0/gi1/access``, to the minor number of its device node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedDevices:
    """What the file says of one snapshot, without numbers and times."""

    gpus: tuple[ExchangedGpu, ...]
    links: TopologyAnnotation | None
    left_out: tuple[str, ...]
    """A sentence for each device that the file has no form for."""


def exchanged_devices(
    snapshot: NodeSnapshot, capabilities: CapabilityMinors
) -> ExchangedDevices | None:
    """The NVIDIA GPUs of a snapshot; None while it says too little: then the file stays as it is.

    That is while a first answer is waited for, and while no driver answers: a driver that is gone
    for an upgrade changes no device.
    """
    if snapshot.is_driverless or why_unsettled(snapshot):
        return None
    gpus, left_out = list[ExchangedGpu](), list[str]()
    for gpu, nvidia in nvidia_gpus(snapshot.gpus):
        if gpu.uuid is None or gpu.index is None:
            left_out.append(f"GPU {gpu.bus_id}: its UUID or its place is not known")
            continue
        exchanged = _gpu(gpu, nvidia, snapshot, capabilities)
        if (problem := problem_of(exchanged)) is not None:
            left_out.append(f"GPU {gpu.bus_id}: {problem}")
        else:
            gpus.append(exchanged)
    ordered = tuple(sorted(gpus, key=lambda gpu: gpu.index))
    return ExchangedDevices(gpus=ordered, links=_links(snapshot), left_out=tuple(left_out))


@lru_cache(maxsize=1)
def best_sets(links: TopologyAnnotation) -> str:
    """The table of a node with up to MOST_TABLE_GPUS GPUs; empty for other nodes."""
    if not 1 <= links.n <= MOST_TABLE_GPUS:
        return ""
    choice, n = ExactChoice(shape(links)), links.n
    return table_of(
        choice.best(available, size) if available.bit_count() >= size else 0
        for size in range(1, n + 1)
        for available in range(1 << n)
    )


def _gpu(
    gpu: GpuSnapshot, nvidia: NvidiaFacts, snapshot: NodeSnapshot, capabilities: CapabilityMinors
) -> ExchangedGpu:
    mig_gap = gpu.gap("mig")
    is_off = nvidia.mig is None and mig_gap is not None and not gpu.misses("mig")
    whole = replace(nvidia, xids=tuple(x for x in nvidia.xids if x.gpu_instance_id is None))
    return ExchangedGpu(
        uuid=gpu.uuid or "",
        index=gpu.index or 0,
        bus_id=gpu.bus_id,
        minor=nvidia.minor,
        numa=gpu.numa_node,
        product=_NO_NAME.sub("", gpu.model or ""),
        memory_bytes=gpu.memory_bytes,
        compute_capability=nvidia.compute_capability,
        mig_enabled=nvidia.mig.current if nvidia.mig is not None else False if is_off else None,
        mig_devices=tuple(
            _mig_device(gpu, nvidia, device, capabilities) for device in nvidia.mig_devices
        ),
        verdicts=_verdicts(gpu_verdicts(replace(gpu, nvidia=whole), snapshot)),
    )


def _mig_device(
    gpu: GpuSnapshot, nvidia: NvidiaFacts, device: MigDevice, capabilities: CapabilityMinors
) -> ExchangedMigDevice:
    of_gpu = f"gpu{nvidia.minor}/gi{device.gpu_instance_id}"
    instance = capabilities.get(f"{of_gpu}/access")
    compute = capabilities.get(f"{of_gpu}/ci{device.compute_instance_id}/access")
    xids = tuple(
        xid
        for xid in nvidia.xids
        if xid.gpu_instance_id == device.gpu_instance_id
        and xid.compute_instance_id in (None, device.compute_instance_id)
    )
    return ExchangedMigDevice(
        uuid=device.uuid,
        profile=device.profile,
        gpu_instance=device.gpu_instance_id,
        compute_instance=device.compute_instance_id,
        memory_bytes=device.memory_bytes,
        capability_minors=None if instance is None or compute is None else (instance, compute),
        verdicts=_verdicts(xid_verdicts(gpu.bus_id, replace(nvidia, xids=xids))),
    )


def _verdicts(verdicts: Iterable[HealthVerdict]) -> tuple[ExchangedVerdict, ...]:
    """Each cause once, in their order."""
    return tuple(
        dict.fromkeys(
            ExchangedVerdict(health=verdict.health.word, reason=verdict.reason)
            for verdict in verdicts
        )
    )


def _links(snapshot: NodeSnapshot) -> TopologyAnnotation | None:
    """The links without names; None where places and rows differ."""
    if any(gpu.index != row for row, gpu in enumerate(snapshot.gpus)):
        return None
    links = topology_of(snapshot)
    if links.n != len(snapshot.gpus) or not links.n:
        return None
    no_names = ("",) * links.n
    nameless = msgspec.structs.replace(links, ids=no_names, bus=no_names, nic=(), more=0)
    return topology_annotation.with_generation(nameless)
