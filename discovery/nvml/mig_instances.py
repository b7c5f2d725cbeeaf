# SPDX-License-Identifier: Apache-2.0
"""The GPU instances of one GPU, those without a compute instance too, and what is in them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pynvml

from discovery.mig_state import ComputeProfile, CurrentCompute, CurrentInstance, MigProfile
from discovery.model import Reason
from discovery.nvml.calls import Calls, Handle, has_entry_point
from discovery.nvml.conversions import Garbage, whole
from discovery.nvml.mig import mig_uuid
from discovery.nvml.mig_profile_table import checked_placement
from discovery.nvml.mig_profiles import newest

WHAT = "instances"
ROOM = 64
"""Length of the list for instances: a driver may report too small a count for an A30."""
GPU_INSTANCE_IDS = range(16)
"""The kernel module has capabilities for instances 0 to 14 of a GPU.
Source: /proc/driver/nvidia-caps/mig-minors."""
COMPUTE_INSTANCE_IDS = range(8)
"""Ids of compute instances in a GPU instance, from the same file."""
COMPUTE_PROFILES = 16
"""Compute instance profile numbers to try at most; NVML has 9 of them today."""

_ID = whole(0xFFFF)
_SLICES = whole(8)
_LIST = "nvmlDeviceGetGpuInstances"
_PROFILE = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
_STARTS = "nvmlGpuInstanceGetComputeInstancePossiblePlacements"
PLACED_COMPUTE = "nvmlGpuInstanceCreateComputeInstanceWithPlacement"
"""Makes a compute instance at a place. NVML's first drivers with MIG choose the place alone."""


def read_instances(
    calls: Calls, handle: Handle, profiles: Sequence[MigProfile]
) -> tuple[CurrentInstance, ...]:
    """All GPU instances by id.

    They are listed by profile, so one of a profile that the driver does not describe is in no
    list: it is found by its id, and leaves a gap.
    """
    instances: dict[int, CurrentInstance] = {}
    for profile in profiles:
        for instance_handle in _listed(
            calls, _LIST, pynvml.c_nvmlGpuInstance_t, handle, profile.id
        ):
            instance = _instance(calls, instance_handle, profile)
            if instance is not None:
                instances[instance.id] = instance
    # an instance that nobody sees would be free space to a planner
    for number in GPU_INSTANCE_IDS:
        if number not in instances:
            _check_absent(calls, "nvmlDeviceGetGpuInstanceById", handle, number)
    return tuple(instances[number] for number in sorted(instances))


def read_compute_profiles(
    calls: Calls,
    handle: Handle,
    profiles: Sequence[MigProfile],
    instances: Sequence[CurrentInstance],
) -> tuple[MigProfile, ...]:
    """The profiles with their compute instance profiles, of those that an instance is there of."""
    ids_by_profile = {instance.profile: instance.id for instance in reversed(instances)}
    read = []
    for profile in profiles:
        number = ids_by_profile.get(profile.name)
        if number is None:
            read.append(profile)
            continue
        instance_handle = calls.ask(WHAT, "nvmlDeviceGetGpuInstanceById", handle, number)
        sizes = {} if instance_handle is None else _compute_profiles(calls, instance_handle)
        compute = [
            ComputeProfile(
                slices=slices,
                id=profile_id,
                starts=_compute_starts(instance_handle, profile_id, slices),
            )
            for profile_id, slices in sizes.items()
        ]
        compute.sort(key=lambda profile: (profile.slices, profile.id))
        read.append(replace(profile, compute=tuple(compute)))
    return tuple(read)


def _compute_starts(handle: Handle, profile_id: int, slices: int) -> tuple[int, ...]:
    """First slices of a profile's compute instances; empty if they cannot be chosen or read.

    Nothing else depends on it, so no gap is kept: the driver then chooses by itself.
    """
    if not has_entry_point(PLACED_COMPUTE):
        return ()
    room = (pynvml.c_nvmlComputeInstancePlacement_t * ROOM)()
    count = ctypes.c_uint(ROOM)

    def convert(_: Any) -> tuple[int, ...]:
        places = [
            (_SLICES(placement.start), _SLICES(placement.size))
            for placement in room[: whole(ROOM)(count)]
        ]
        if any(size != slices for _, size in places):
            raise Garbage("placements of another size")
        return tuple(sorted({start for start, _ in places}))

    starts = Calls().ask(
        WHAT, _STARTS, handle, profile_id, room, ctypes.byref(count), convert=convert
    )
    return starts or ()


def _listed(calls: Calls, call: str, kind: Any, holder: Handle, profile_id: int) -> list[Any]:
    """Handles of the instances of one profile."""
    room = (kind * ROOM)()
    count = ctypes.c_uint(ROOM)
    handles = calls.ask(
        WHAT,
        call,
        holder,
        profile_id,
        room,
        ctypes.byref(count),
        convert=lambda _: [room[index] for index in range(whole(ROOM)(count))],
    )
    return handles or []


def _check_absent(calls: Calls, call: str, holder: Handle, number: int) -> None:
    """Keep a gap unless the driver says that there is no instance with this id."""
    tried = Calls(invalid_argument=Reason.ABSENT)
    if tried.ask(WHAT, call, holder, number) is not None:
        why = f"instance {number} is there, and of no profile that the driver describes"
        calls.miss(WHAT, Reason.FAILED, call, why)
    calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.ABSENT]


def _instance(calls: Calls, handle: Handle, profile: MigProfile) -> CurrentInstance | None:
    def convert(info: Any) -> CurrentInstance:
        if _ID(info.profileId) != profile.id:
            raise Garbage(f"profile {info.profileId} in the list of profile {profile.id}")
        start, size = checked_placement(info.placement)
        return CurrentInstance(id=_ID(info.id), profile=profile.name, start=start, size=size)

    instance = calls.ask(WHAT, "nvmlGpuInstanceGetInfo", handle, convert=convert)
    if instance is None:
        return None
    return replace(instance, compute=_compute(calls, handle, profile.slices))


def _compute(calls: Calls, handle: Handle, slices: int) -> tuple[CurrentCompute, ...]:
    """The compute instances of a GPU instance by id; where there may be more, looked for by id."""
    instances: dict[int, CurrentCompute] = {}
    sizes = _compute_profiles(calls, handle)
    kind, call = pynvml.c_nvmlComputeInstance_t, "nvmlGpuInstanceGetComputeInstances"
    for profile_id in sizes:
        for instance_handle in _listed(calls, call, kind, handle, profile_id):
            compute = _compute_instance(calls, instance_handle, sizes)
            if compute is not None:
                instances[compute.id] = compute
    if sum(instance.slices for instance in instances.values()) < slices:
        for number in COMPUTE_INSTANCE_IDS:
            if number not in instances:
                _check_absent(calls, "nvmlGpuInstanceGetComputeInstanceById", handle, number)
    return tuple(instances[number] for number in sorted(instances))


def _compute_profiles(calls: Calls, handle: Handle) -> dict[int, int]:
    """Id to slices of the compute instance profiles in a GPU instance."""
    slices_by_id: dict[int, int] = {}
    for number in range(COMPUTE_PROFILES):
        info, gap = newest(_PROFILE, handle, number, 0)
        if gap is not None:
            if gap.reason is Reason.ABSENT and number > 0:
                break
            if gap.reason is not Reason.UNSUPPORTED:
                calls.miss(WHAT, Reason.FAILED, gap.source, gap.detail)
            continue
        pair = calls.part(WHAT, _PROFILE, _id_and_slices, info)
        if pair is not None:
            slices_by_id.setdefault(*pair)
    if not slices_by_id and not calls.gaps:
        calls.miss(WHAT, Reason.FAILED, _PROFILE, "the driver describes no compute instance")
    return slices_by_id


def _id_and_slices(info: Any) -> tuple[int, int]:
    slices = _SLICES(info.sliceCount)
    if not slices:
        raise Garbage("a compute instance of 0 slices")
    return _ID(info.id), slices


def _compute_instance(
    calls: Calls, handle: Handle, sizes: Mapping[int, int]
) -> CurrentCompute | None:
    info = calls.ask(WHAT, "nvmlComputeInstanceGetInfo_v2", handle)
    if info is None:
        return None
    uuid = calls.ask(WHAT, "nvmlDeviceGetUUID", info.device, convert=mig_uuid)
    if uuid is None:
        return None

    def convert(info: Any) -> CurrentCompute:
        slices = sizes.get(_ID(info.profileId))
        if slices is None:
            raise Garbage(f"a compute instance of profile {info.profileId}, which is none")
        start = _SLICES(info.placement.start)
        return CurrentCompute(id=_ID(info.id), slices=slices, start=start, uuid=uuid)

    return calls.part(WHAT, "nvmlComputeInstanceGetInfo_v2", convert, info)
