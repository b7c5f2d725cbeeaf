"""The MIG devices of one GPU, read only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from discovery.model import Gap, MigDevice, Mode, Reason
from discovery.nvml.calls import Calls, Handle, text, whole
from discovery.profile import ATTRIBUTES, profile_name

_MIB = 1 << 20
_PROFILES = 32
"""GPU instance profile numbers to try at most; NVML has 18 of them today."""

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
    calls: Calls, handle: Handle, mode: Mode | None, total_bytes: int | None
) -> dict[str, Any]:
    """``max_mig_devices`` and ``mig_devices`` of a GPU; empty unless MIG is on now.

    A MIG device of which an id, its sizes or its profile cannot be had is left out
    with a gap: half of its labels would be wrong.
    """
    if mode is None:
        return {}
    slots = calls.ask(
        "max_mig_devices", "nvmlDeviceGetMaxMigDeviceCount", handle, convert=whole(255)
    )
    if not mode.current:
        return {"max_mig_devices": slots}
    suffixes = _suffixes(handle)
    devices = [
        device
        for mig in mig_handles(calls, handle)
        if (device := _read(calls, handle, mig, suffixes, total_bytes)) is not None
    ]
    if not devices:
        _look_behind(calls, handle)
    calls.gaps[:] = [_with_fix(gap) for gap in calls.gaps]
    return {"max_mig_devices": slots, "mig_devices": tuple(devices)}


def _look_behind(calls: Calls, handle: Handle) -> None:
    """Keep a gap where no MIG device is listed only because the right to see them is missing.

    Without it the driver leaves devices out of the list as if they were not there, but
    refuses to look up a GPU instance, whether there is one with this number or not.
    Source: nvml.h, nvmlDeviceGetGpuInstanceById: NO_PERMISSION.
    """
    tried = Calls()
    tried.ask("mig_devices", "nvmlDeviceGetGpuInstanceById", handle, 0)
    calls.gaps += [gap for gap in tried.gaps if gap.reason is Reason.FORBIDDEN]


def _with_fix(gap: Gap) -> Gap:
    """The gap; if MIG devices could not be seen for want of a right, with how to get it."""
    if gap.what != "mig_devices" or gap.reason is not Reason.FORBIDDEN:
        return gap
    return replace(gap, detail=f"{gap.detail}; {_NO_RIGHT}")


def _suffixes(handle: Handle) -> dict[int, str]:
    """Suffix of the profile's name by profile id, such as ``+me`` by 20."""
    suffixes = {}
    for number in range(_PROFILES):
        tried = Calls()
        info = tried.ask("profile", "nvmlDeviceGetGpuInstanceProfileInfo", handle, number)
        if info is None and tried.gaps[0].reason is Reason.UNSUPPORTED:
            info = tried.ask("profile", "nvmlDeviceGetGpuInstanceProfileInfo", handle, number, 1)
        if info is not None:
            suffixes[int(info.id)] = ATTRIBUTES.get(number, "")
    return suffixes


def _read(
    calls: Calls, handle: Handle, mig: Handle, suffixes: dict[int, str], total_bytes: int | None
) -> MigDevice | None:
    name = calls.ask("mig_devices", "nvmlDeviceGetUUID", mig, convert=text)
    instance = calls.ask("mig_devices", "nvmlDeviceGetGpuInstanceId", mig, convert=whole(0xFFFF))
    compute = calls.ask("mig_devices", "nvmlDeviceGetComputeInstanceId", mig, convert=whole(0xFFFF))
    sizes = calls.ask("mig_devices", "nvmlDeviceGetAttributes_v2", mig)
    if name is None or instance is None or compute is None or sizes is None:
        return None
    info = _instance_info(calls, handle, instance)
    if info is None:
        return None
    suffix = suffixes.get(int(info.profileId))
    if suffix is None:
        why = f"no profile with id {info.profileId}, so its name is not known"
        calls.miss("mig_devices", Reason.FAILED, "nvmlDeviceGetGpuInstanceProfileInfo", why)
        return None
    memory = int(sizes.memorySizeMB) * _MIB
    return MigDevice(
        uuid=name,
        gpu_instance_id=instance,
        compute_instance_id=compute,
        profile=profile_name(
            gpu_slices=int(sizes.gpuInstanceSliceCount),
            compute_slices=int(sizes.computeInstanceSliceCount),
            memory_bytes=memory,
            total_bytes=total_bytes or memory,
            attribute=suffix,
        ),
        placement=(int(info.placement.start), int(info.placement.size)),
        memory_bytes=memory,
        multiprocessors=int(sizes.multiprocessorCount),
        gpu_instance_slices=int(sizes.gpuInstanceSliceCount),
        compute_instance_slices=int(sizes.computeInstanceSliceCount),
        copy_engines=int(sizes.sharedCopyEngineCount),
        decoders=int(sizes.sharedDecoderCount),
        encoders=int(sizes.sharedEncoderCount),
        jpeg_engines=int(sizes.sharedJpegCount),
        ofa_engines=int(sizes.sharedOfaCount),
    )


def _instance_info(calls: Calls, handle: Handle, instance: int) -> Any:
    """The GPU instance's info; None without the right to monitor MIG, which is a gap.

    Without it the profile cannot be told from its variants, such as ``+me``.
    """
    found = calls.ask("mig_devices", "nvmlDeviceGetGpuInstanceById", handle, instance)
    return None if found is None else calls.ask("mig_devices", "nvmlGpuInstanceGetInfo", found)
