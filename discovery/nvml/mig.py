# SPDX-License-Identifier: Apache-2.0
"""The MIG devices of one GPU, read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from discovery.model import Gap, MigDevice, Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import Garbage, printable_text, scaled, whole
from discovery.nvml.mig_profiles import InstanceProfile, instance_profiles

_MEMORY = scaled(1 << 20, 1 << 30)
_MULTIPROCESSORS = whole(1 << 12)
_SLICES = whole(8)
_ENGINES = whole(0xFF)
_MEMORY_UNITS = 64
"""Far above what there is: GPUs are placed by 4, 8 or 12 units."""
MONITORED = ("mig_devices", "profiles", "instances", "processes")
"""Readings that take the right to monitor MIG, by the names of their gaps."""
_NO_RIGHT = (
    "NVIDIA's capability mig/monitor is missing: give the container the management CDI device,"
    " or NVIDIA_MIG_MONITOR_DEVICES=all with CAP_SYS_ADMIN"
)
"""Source: MIG user guide, "Device Nodes and Capabilities"; NVIDIA container toolkit."""


def mig_handles(calls: Calls, handle: Handle) -> Iterator[Handle]:
    """Handles of the GPU's MIG devices by their index; holes in the numbering are skipped."""
    slots = calls.ask(
        "max_mig_devices", "nvmlDeviceGetMaxMigDeviceCount", handle, convert=whole(255)
    )
    for slot in range(slots or 0):
        tried = Calls(invalid_argument=Reason.ABSENT)
        device = tried.ask("mig_devices", "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
        if device is not None:
            yield device
        calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.ABSENT]


def read_mig_devices(
    calls: Calls, handle: Handle, total_bytes: int | None
) -> tuple[MigDevice, ...]:
    """The MIG devices of a GPU with MIG on; ``total_bytes`` is the GPU's memory.

    A MIG device of which an id, its sizes or its profile cannot be had is left out
    with a gap: half of its labels would be wrong.
    """
    profiles = instance_profiles(handle)
    devices = [
        device
        for mig in mig_handles(calls, handle)
        if (device := _read(calls, handle, mig, profiles, total_bytes)) is not None
    ]
    # a device that was listed shows that the right is there
    if not devices:
        _check_right(calls, handle)
    calls.gaps[:] = [with_fix(gap) for gap in calls.gaps]
    return tuple(devices)


def _check_right(calls: Calls, handle: Handle) -> None:
    """Keep a gap where no MIG device is listed only because the right to see them is missing.

    Without it the driver leaves devices out of the list as if they were not there, but
    refuses to look up a GPU instance, whether there is one with this number or not.
    Source: nvml.h, nvmlDeviceGetGpuInstanceById: NO_PERMISSION.
    """
    tried = Calls()
    tried.ask("mig_devices", "nvmlDeviceGetGpuInstanceById", handle, 0)
    calls.gaps += [gap for gap in tried.gaps if gap.reason is Reason.FORBIDDEN]


def with_fix(gap: Gap) -> Gap:
    """The gap; if MIG devices could not be seen for want of a right, with how to get it."""
    if gap.what not in MONITORED or gap.reason is not Reason.FORBIDDEN:
        return gap
    return replace(gap, detail=f"{gap.detail}; {_NO_RIGHT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """nvmlDeviceAttributes_t of a MIG device, in the words of :class:`MigDevice`."""

    memory_bytes: int
    multiprocessors: int
    gpu_instance_slices: int
    compute_instance_slices: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


def checked_sizes(value: Any) -> Sizes:
    """Raises Garbage: a device of which one number cannot be is not described by the others."""
    sizes = Sizes(
        memory_bytes=_MEMORY(value.memorySizeMB),
        multiprocessors=_MULTIPROCESSORS(value.multiprocessorCount),
        gpu_instance_slices=_SLICES(value.gpuInstanceSliceCount),
        compute_instance_slices=_SLICES(value.computeInstanceSliceCount),
        copy_engines=_ENGINES(value.sharedCopyEngineCount),
        decoders=_ENGINES(value.sharedDecoderCount),
        encoders=_ENGINES(value.sharedEncoderCount),
        jpeg_engines=_ENGINES(value.sharedJpegCount),
        ofa_engines=_ENGINES(value.sharedOfaCount),
    )
    if not 0 < sizes.compute_instance_slices <= sizes.gpu_instance_slices:
        parts = f"{sizes.compute_instance_slices} of {sizes.gpu_instance_slices}"
        raise Garbage(f"a compute instance of {parts} slices")
    if not sizes.memory_bytes:
        raise Garbage("no memory")
    return sizes


def mig_uuid(value: Any) -> str:
    """The UUID of a MIG device."""
    uuid = printable_text(pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE)(value)
    if not uuid.startswith("MIG-"):
        raise Garbage(f"not a MIG device's UUID: {uuid:.80}")
    return uuid


def _read(
    calls: Calls,
    handle: Handle,
    mig: Handle,
    profiles: Mapping[int, InstanceProfile],
    total_bytes: int | None,
) -> MigDevice | None:
    name = calls.ask("mig_devices", "nvmlDeviceGetUUID", mig, convert=mig_uuid)
    instance = calls.ask("mig_devices", "nvmlDeviceGetGpuInstanceId", mig, convert=whole(0xFFFF))
    compute = calls.ask("mig_devices", "nvmlDeviceGetComputeInstanceId", mig, convert=whole(0xFFFF))
    sizes = calls.ask("mig_devices", "nvmlDeviceGetAttributes_v2", mig, convert=checked_sizes)
    if name is None or instance is None or compute is None or sizes is None:
        return None
    info = _instance_info(calls, handle, instance)
    if info is None:
        return None
    profile_id, placement = info
    profile = profiles.get(profile_id)
    if profile is None:
        why = f"no profile with id {profile_id}, so its name is not known"
        calls.miss("mig_devices", Reason.FAILED, "nvmlDeviceGetGpuInstanceProfileInfo", why)
        return None
    called = profile.called(
        gpu_slices=sizes.gpu_instance_slices,
        compute_slices=sizes.compute_instance_slices,
        memory_bytes=sizes.memory_bytes,
        total_bytes=total_bytes,
    )
    if called is None:
        why = "the GPU's memory is not known, and the driver does not name the profile"
        calls.miss("mig_devices", Reason.FAILED, "nvmlDeviceGetMemoryInfo", why)
        return None
    return MigDevice(
        uuid=name,
        gpu_instance_id=instance,
        compute_instance_id=compute,
        profile=called,
        placement=placement,
        memory_bytes=sizes.memory_bytes,
        multiprocessors=sizes.multiprocessors,
        gpu_instance_slices=sizes.gpu_instance_slices,
        compute_instance_slices=sizes.compute_instance_slices,
        copy_engines=sizes.copy_engines,
        decoders=sizes.decoders,
        encoders=sizes.encoders,
        jpeg_engines=sizes.jpeg_engines,
        ofa_engines=sizes.ofa_engines,
    )


def _instance_info(
    calls: Calls, handle: Handle, instance: int
) -> tuple[int, tuple[int, int]] | None:
    """Profile id and placement of a GPU instance; None without the right to monitor MIG, a gap.

    Without it the profile cannot be distinguished from its variants, such as ``+me``.
    """
    instance_handle = calls.ask("mig_devices", "nvmlDeviceGetGpuInstanceById", handle, instance)
    if instance_handle is None:
        return None
    call = "nvmlGpuInstanceGetInfo"
    return calls.ask("mig_devices", call, instance_handle, convert=_profile_and_placement)


def _profile_and_placement(info: Any) -> tuple[int, tuple[int, int]]:
    units = whole(_MEMORY_UNITS)
    start, size = units(info.placement.start), units(info.placement.size)
    return whole(0xFFFF)(info.profileId), (start, size)
