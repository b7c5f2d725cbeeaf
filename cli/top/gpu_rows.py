# SPDX-License-Identifier: Apache-2.0
"""GPUs, their MIG devices and processes with the readings that people look at. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cli.top.machine_watch import MachineReading
from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot, GpuState, MigDevice
from discovery.sample import GpuSample
from discovery.unread import unread_sample
from exporters.dcgm.windows import CLOCK_EVENTS
from exporters.device_user_names import ContainerUser, ContainerUsers
from exporters.gpuscape.process_use import ProcessUse
from health.gpu_health import gpu_verdict
from health.health_verdict import Health

GRAPHICS_ACTIVE: Final = 1
"""GPM's metric of how much of the time the graphics engine worked. Source: nvmlGpmMetricId_t."""
IDLE: Final = frozenset({"gpu_idle", "clocks_setting", "display_clocks"})
"""Reasons for low clocks that slow no work down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopProcess:
    """A process on a GPU, or the sum of its processes that are not shown. None: not known."""

    pid: str
    """Process id; ``other`` for the sum."""
    name: str | None
    kinds: tuple[str, ...]
    gpu_instance_id: int | None
    busy_ratio: float | None
    memory_bytes: int | None
    pod: str | None
    """``namespace/pod/container``, as far as it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopMig:
    """A MIG device and its readings. None: not known."""

    uuid: str
    profile: str
    gpu_instance_id: int
    compute_instance_id: int
    busy_ratio: float | None
    """Activity of the GPU instance, Hopper and later."""
    memory_used_bytes: int | None
    """Used memory of the GPU instance."""
    memory_total_bytes: int
    pods: tuple[str, ...]
    """``namespace/pod/container`` of all that hold its GPU instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopGpu:
    """A GPU and its newest readings. None: not known, or this GPU does not have it."""

    index: int | None
    bus_id: str
    uuid: str | None
    model: str | None
    state: str
    """``ok``; how it fails to answer: ``hung``, ``lost``, ``unreadable``; else why it needs
    attention, as the label ``gpuscape.io/gpu.health.reason`` has it."""
    answers: bool
    busy_ratio: float | None
    memory_busy_ratio: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    celsius: int | None
    memory_celsius: int | None
    power_watts: float | None
    power_limit_watts: float | None
    sm_clock_hertz: int | None
    fan_ratio: float | None
    held_down_by: tuple[str, ...]
    """Reasons why clocks are lower than the work on the GPU could use."""
    links_up: int
    links: int
    nvlink_sent_bytes_per_second: float | None
    nvlink_received_bytes_per_second: float | None
    mig: bool
    pods: tuple[str, ...]
    """``namespace/pod/container`` of all that hold the GPU or a share of it."""
    mig_devices: tuple[TopMig, ...]
    processes: tuple[TopProcess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopNode:
    """A node with its GPUs at one moment."""

    node: str
    machine: str | None
    driver: str | None
    gpus: tuple[TopGpu, ...]
    notes: tuple[str, ...]
    """Sources that could not be read, with the reasons."""


def top_node(reading: MachineReading) -> TopNode:
    """The readings of a node, GPU by GPU in PCI bus order."""
    snapshot = reading.snapshot
    samples = {sample.bus_id: sample for sample in reading.samples}
    before = {sample.bus_id: sample for sample in reading.before}
    return TopNode(
        node=snapshot.host.name,
        machine=snapshot.host.machine_type or None,
        driver=snapshot.driver.version,
        gpus=tuple(
            _gpu(gpu, samples.get(gpu.bus_id), before.get(gpu.bus_id), reading)
            for gpu in snapshot.gpus
        ),
        notes=reading.notes,
    )


def _gpu(
    gpu: GpuSnapshot, sample: GpuSample | None, before: GpuSample | None, reading: MachineReading
) -> TopGpu:
    answers = gpu.state is GpuState.PRESENT
    now = sample if answers and sample is not None else unread_sample(gpu.bus_id)
    memory, limits = now.memory, now.power_limits
    links = () if gpu.nvidia is None else gpu.nvidia.links
    return TopGpu(
        index=gpu.index,
        bus_id=gpu.bus_id,
        uuid=gpu.uuid,
        model=gpu.model,
        state=_state(gpu, reading),
        answers=answers,
        busy_ratio=_busy(gpu, now),
        memory_busy_ratio=now.memory_busy_ratio,
        memory_used_bytes=None if memory is None else memory.used_bytes,
        memory_total_bytes=gpu.memory_bytes if answers else None,
        celsius=now.gpu_celsius,
        memory_celsius=now.memory_celsius,
        power_watts=now.power_watts,
        power_limit_watts=None if limits is None else limits.enforced or limits.current,
        sm_clock_hertz=now.sm_clock_hertz,
        fan_ratio=now.fan_ratio,
        held_down_by=slowdown_reasons(now.clock_event_reasons),
        links_up=sum(link.active is True for link in links) if answers else 0,
        links=len(links),
        nvlink_sent_bytes_per_second=_rate(now, before, "nvlink_sent_bytes"),
        nvlink_received_bytes_per_second=_rate(now, before, "nvlink_received_bytes"),
        mig=gpu.mig_enabled,
        pods=_pods(reading.users, GpuPart(gpu.bus_id)),
        mig_devices=tuple(_mig(gpu, device, now, reading) for device in gpu.mig_devices),
        processes=tuple(_processes(gpu, reading)) if answers else (),
    )


def slowdown_reasons(bits: int | None) -> tuple[str, ...]:
    """The reasons among these bits that hold work up, in dcgm-exporter's words."""
    reasons = (reason for bit, reason in CLOCK_EVENTS.items() if (bits or 0) & bit)
    return tuple(reason for reason in reasons if reason not in IDLE)


def user_name(user: ContainerUser) -> str:
    """``namespace/pod/container``."""
    return f"{user.namespace}/{user.pod}/{user.container}"


def _state(gpu: GpuSnapshot, reading: MachineReading) -> str:
    if gpu.state is not GpuState.PRESENT:
        return gpu.state.value
    verdict = gpu_verdict(gpu, reading.snapshot)
    return "ok" if verdict.health is Health.HEALTHY else verdict.reason


def _busy(gpu: GpuSnapshot, now: GpuSample) -> float | None:
    """Utilisation of a GPU; under MIG its graphics activity, which Hopper and later report."""
    if now.gpu_busy_ratio is not None and not gpu.mig_enabled:
        return now.gpu_busy_ratio
    return dict(now.profiling).get(GRAPHICS_ACTIVE)


def _rate(now: GpuSample, before: GpuSample | None, counter: str) -> float | None:
    """Growth of a counter each second; None where it started anew, or was not read twice."""
    if before is None:
        return None
    end, begin = getattr(now, counter), getattr(before, counter)
    seconds = now.at_seconds - before.at_seconds
    if end is None or begin is None or seconds <= 0 or end < begin:
        return None
    return float(end - begin) / seconds


def _mig(gpu: GpuSnapshot, device: MigDevice, now: GpuSample, reading: MachineReading) -> TopMig:
    instance = device.gpu_instance_id
    used = dict(now.mig_memory).get(instance)
    profiling = dict(now.mig_profiling)
    return TopMig(
        uuid=device.uuid,
        profile=device.profile,
        gpu_instance_id=instance,
        compute_instance_id=device.compute_instance_id,
        busy_ratio=dict(profiling.get(instance, ())).get(GRAPHICS_ACTIVE),
        memory_used_bytes=None if used is None else used.used_bytes,
        memory_total_bytes=device.memory_bytes,
        pods=_pods(reading.users, GpuPart(gpu.bus_id, instance)),
    )


def _pods(users: ContainerUsers, entity: GpuPart) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(user_name, users.get(entity, ()))))


def _processes(gpu: GpuSnapshot, reading: MachineReading) -> Iterator[TopProcess]:
    for use in reading.processes:
        if use.bus_id == gpu.bus_id:
            yield TopProcess(
                pid=use.pid,
                name=use.name,
                kinds=tuple(kind.value for kind in use.kinds),
                gpu_instance_id=use.gpu_instance_id,
                busy_ratio=use.busy_ratio,
                memory_bytes=use.memory_bytes,
                pod=_pod_of(use, reading),
            )


def _pod_of(use: ProcessUse, reading: MachineReading) -> str | None:
    """The pod of a process: by its name where that is known, else by who alone holds the GPU.

    The kubelet names pods and cgroups have their UIDs: without the API server the two meet only
    where one container holds what the process uses.
    """
    pod = use.pod
    if pod is None and reading.knows_pods:
        return None
    pods = _pods(reading.users, GpuPart(use.bus_id, use.gpu_instance_id))
    if pod is not None and pod.name is not None:
        named = [name for name in pods if name.startswith(f"{pod.namespace}/{pod.name}/")]
        return named[0] if len(named) == 1 else f"{pod.namespace}/{pod.name}"
    if len(pods) == 1:
        return pods[0]
    return None if pod is None else f"uid {pod.uid}"
