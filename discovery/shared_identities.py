# SPDX-License-Identifier: Apache-2.0
"""Identities that two devices report, which is an answer that cannot be right. Pure.

A UUID names one GPU or one MIG device, and a minor number one device file. Where two report the
same, it is not known which has it: neither has it then, so that no pod, label or change of MIG goes
to the wrong one. Serial numbers are those of boards, and two GPUs of one board share theirs.
Source: NVML API reference, nvmlDeviceGetUUID, nvmlDeviceGetMinorNumber, nvmlDeviceGetSerial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from discovery.gpu_fields import gpu_field, with_gpu_fields
from discovery.mig_state import MigGpu, MigReading, UnreadMigGpu
from discovery.model import Gap, GpuSnapshot, GpuState, Reason

_SHARED: Final = "several devices report "


def without_shared(gpus: Sequence[GpuSnapshot]) -> tuple[GpuSnapshot, ...]:
    """The GPUs, with a gap for every identity that several report.

    A GPU that does not answer loses what it was known by to one that does: it may have moved.
    """
    here = [gpu for gpu in gpus if gpu.state is GpuState.PRESENT]
    answering = frozenset(gpu.bus_id for gpu in here)
    uuids = Counter(gpu.uuid for gpu in here)
    minors = Counter(gpu_field(gpu, "minor") for gpu in here)
    devices = Counter(device.uuid for gpu in here for device in gpu.mig_devices)

    def mended(gpu: GpuSnapshot) -> GpuSnapshot:
        own_reports = 1 if gpu.bus_id in answering else 0
        if gpu.uuid is not None and uuids[gpu.uuid] > own_reports:
            gpu = _without(gpu, "uuid", None, "nvmlDeviceGetUUID", gpu.uuid)
        minor = gpu_field(gpu, "minor")
        if minor is not None and minors[minor] > own_reports:
            gpu = _without(gpu, "minor", None, "nvmlDeviceGetMinorNumber", f"{minor}")
        shared = [device.uuid for device in gpu.mig_devices if devices[device.uuid] > own_reports]
        if shared:
            gpu = _without(gpu, "mig_devices", (), "nvmlDeviceGetUUID", shared[0])
        return gpu

    return tuple(map(mended, gpus))


def shared_identities(gpus: Iterable[GpuSnapshot]) -> Iterator[tuple[str, Gap]]:
    """Bus id and gap of everything that :func:`without_shared` has left out."""
    for gpu in gpus:
        yield from ((gpu.bus_id, gap) for gap in gpu.gaps if gap.detail.startswith(_SHARED))


def without_shared_mig(readings: Sequence[MigReading]) -> tuple[MigReading, ...]:
    """The MIG states, without those of GPUs whose UUID, or a MIG device's, others report too."""
    read = [reading for reading in readings if isinstance(reading, MigGpu)]
    counts = Counter(uuid for gpu in read for uuid in _mig_uuids(gpu))

    def mended(gpu: MigReading) -> MigReading:
        if not isinstance(gpu, MigGpu):
            return gpu
        shared = [uuid for uuid in _mig_uuids(gpu) if counts[uuid] > 1]
        if not shared:
            return gpu
        gap = _gap("uuid", "nvmlDeviceGetUUID", shared[0])
        return UnreadMigGpu(bus_id=gpu.bus_id, gaps=(gap,), index=gpu.index, model=gpu.model)

    return tuple(map(mended, readings))


def _mig_uuids(gpu: MigGpu) -> Iterator[str]:
    yield gpu.uuid
    for instance in gpu.instances:
        yield from (compute.uuid for compute in instance.compute if compute.uuid is not None)


def _without(
    gpu: GpuSnapshot, field: str, missing: object, source: str, identity: str
) -> GpuSnapshot:
    gaps = tuple(gap for gap in gpu.gaps if gap.what != field)
    gap = _gap(field, source, identity)
    return with_gpu_fields(gpu, {field: missing, "gaps": (*gaps, gap)})


def _gap(field: str, source: str, identity: str) -> Gap:
    detail = f"{_SHARED}{identity}: it is not known which one has it"
    return Gap(what=field, reason=Reason.GARBAGE, source=source, detail=detail)
