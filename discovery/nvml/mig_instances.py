# SPDX-License-Identifier: Apache-2.0
"""The GPU instances of one GPU, those without a compute instance too, and what is in them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pynvml

from discovery.mig_state import ComputeProfile, FoundCompute, FoundInstance, MigProfile
from discovery.model import Reason
from discovery.nvml.calls import Calls, Handle, has_entry_point
from discovery.nvml.conversions import Garbage, whole
from discovery.nvml.mig import mig_uuid
from discovery.nvml.mig_profile_table import checked_placement
from discovery.nvml.mig_profiles import newest

WHAT = "instances"
ROOM = 64
"""Of a list: a driver may report too small a count of an A30's instances."""
GPU_INSTANCE_IDS = range(16)
"""The kernel module has capabilities for instances 0 to 14 of a GPU.
Source: /proc/driver/nvidia-caps/mig-minors."""
COMPUTE_INSTANCE_IDS = range(8)
"""As above, 0 to 7 of a GPU instance."""
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
) -> tuple[FoundInstance, ...]:
    """All GPU instances by id.

    They are listed by profile, so one of a profile that the driver does not describe is in no
    list: it is found by its id, and leaves a gap.
    """
    found: dict[int, FoundInstance] = {}
    for profile in profiles:
        for one in _listed(calls, _LIST, pynvml.c_nvmlGpuInstance_t, handle, profile.id):
            instance = _instance(calls, one, profile)
            if instance is not None:
                found[instance.id] = instance
    for number in GPU_INSTANCE_IDS:
        if number not in found:
            _check_absent(calls, "nvmlDeviceGetGpuInstanceById", handle, number)
    return tuple(found[number] for number in sorted(found))


def read_compute_profiles(
    calls: Calls,
    handle: Handle,
    profiles: Sequence[MigProfile],
    instances: Sequence[FoundInstance],
) -> tuple[MigProfile, ...]:
    """The profiles with their compute instance profiles, of those that an instance is there of."""
    asked = {one.profile: one.id for one in reversed(instances)}
    found = []
    for profile in profiles:
        number = asked.get(profile.name)
        if number is None:
            found.append(profile)
            continue
        one = calls.ask(WHAT, "nvmlDeviceGetGpuInstanceById", handle, number)
        sizes = {} if one is None else _compute_profiles(calls, one)
        compute = [
            ComputeProfile(slices=slices, id=each, starts=_compute_starts(one, each, slices))
            for each, slices in sizes.items()
        ]
        compute.sort(key=lambda each: (each.slices, each.id))
        found.append(replace(profile, compute=tuple(compute)))
    return tuple(found)


def _compute_starts(handle: Handle, profile_id: int, slices: int) -> tuple[int, ...]:
    """Where compute instances of a profile may start; none where that cannot be chosen or asked.

    Nothing else depends on it, so no gap is kept: the driver then chooses by itself.
    """
    if not has_entry_point(PLACED_COMPUTE):
        return ()
    room = (pynvml.c_nvmlComputeInstancePlacement_t * ROOM)()
    count = ctypes.c_uint(ROOM)

    def convert(_: Any) -> tuple[int, ...]:
        places = [(_SLICES(one.start), _SLICES(one.size)) for one in room[: whole(ROOM)(count)]]
        if any(size != slices for _, size in places):
            raise Garbage("placements of another size")
        return tuple(sorted({start for start, _ in places}))

    found = Calls().ask(
        WHAT, _STARTS, handle, profile_id, room, ctypes.byref(count), convert=convert
    )
    return found or ()


def _listed(calls: Calls, call: str, kind: Any, of: Handle, profile_id: int) -> list[Any]:
    """Handles of the instances of one profile."""
    room = (kind * ROOM)()
    count = ctypes.c_uint(ROOM)
    found = calls.ask(
        WHAT,
        call,
        of,
        profile_id,
        room,
        ctypes.byref(count),
        convert=lambda _: [room[at] for at in range(whole(ROOM)(count))],
    )
    return found or []


def _check_absent(calls: Calls, call: str, of: Handle, number: int) -> None:
    """Keep a gap unless the driver says that there is no instance with this id."""
    tried = Calls(invalid_argument=Reason.ABSENT)
    if tried.ask(WHAT, call, of, number) is not None:
        why = f"instance {number} is there, and of no profile that the driver describes"
        calls.miss(WHAT, Reason.FAILED, call, why)
    calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.ABSENT]


def _instance(calls: Calls, handle: Handle, profile: MigProfile) -> FoundInstance | None:
    def convert(info: Any) -> FoundInstance:
        if _ID(info.profileId) != profile.id:
            raise Garbage(f"profile {info.profileId} in the list of profile {profile.id}")
        start, size = checked_placement(info.placement)
        return FoundInstance(id=_ID(info.id), profile=profile.name, start=start, size=size)

    found = calls.ask(WHAT, "nvmlGpuInstanceGetInfo", handle, convert=convert)
    if found is None:
        return None
    return replace(found, compute=_compute(calls, handle, profile.slices))


def _compute(calls: Calls, handle: Handle, slices: int) -> tuple[FoundCompute, ...]:
    """The compute instances of a GPU instance by id; where there may be more, looked for by id."""
    found: dict[int, FoundCompute] = {}
    sizes = _compute_profiles(calls, handle)
    kind, call = pynvml.c_nvmlComputeInstance_t, "nvmlGpuInstanceGetComputeInstances"
    for profile_id in sizes:
        for one in _listed(calls, call, kind, handle, profile_id):
            compute = _compute_instance(calls, one, sizes)
            if compute is not None:
                found[compute.id] = compute
    if sum(one.slices for one in found.values()) < slices:
        for number in COMPUTE_INSTANCE_IDS:
            if number not in found:
                _check_absent(calls, "nvmlGpuInstanceGetComputeInstanceById", handle, number)
    return tuple(found[number] for number in sorted(found))


def _compute_profiles(calls: Calls, handle: Handle) -> dict[int, int]:
    """Id to slices of the compute instance profiles in a GPU instance."""
    found: dict[int, int] = {}
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
            found.setdefault(*pair)
    if not found and not calls.gaps:
        calls.miss(WHAT, Reason.FAILED, _PROFILE, "the driver describes no compute instance")
    return found


def _id_and_slices(info: Any) -> tuple[int, int]:
    slices = _SLICES(info.sliceCount)
    if not slices:
        raise Garbage("a compute instance of 0 slices")
    return _ID(info.id), slices


def _compute_instance(
    calls: Calls, handle: Handle, sizes: Mapping[int, int]
) -> FoundCompute | None:
    info = calls.ask(WHAT, "nvmlComputeInstanceGetInfo_v2", handle)
    if info is None:
        return None
    uuid = calls.ask(WHAT, "nvmlDeviceGetUUID", info.device, convert=mig_uuid)
    if uuid is None:
        return None

    def convert(info: Any) -> FoundCompute:
        slices = sizes.get(_ID(info.profileId))
        if slices is None:
            raise Garbage(f"a compute instance of profile {info.profileId}, which is none")
        start = _SLICES(info.placement.start)
        return FoundCompute(id=_ID(info.id), slices=slices, start=start, uuid=uuid)

    return calls.part(WHAT, "nvmlComputeInstanceGetInfo_v2", convert, info)
