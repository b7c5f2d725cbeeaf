# SPDX-License-Identifier: Apache-2.0
"""The GPU instance profiles of one GPU with all that placing them takes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pynvml

from discovery.mig_profile import ATTRIBUTES, mig_profile_name
from discovery.mig_state import MigEngines, MigProfile
from discovery.model import Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import BYTES, Garbage, scaled, whole
from discovery.nvml.mig_profiles import CALL, PROFILES, drivers_name, profile_info

WHAT = "profiles"
PLACEMENTS = 64
"""Room for the placements of one profile, and the highest memory unit; GPUs have 4, 8 or 12."""
KNOWN_NUMBERS = 18
"""Profile numbers whose attributes are known, NVML_GPU_INSTANCE_PROFILE_COUNT as of driver 580."""

_MEMORY = scaled(1 << 20, 1 << 30)
_COUNT = whole(1 << 12)
_PLACES = "nvmlDeviceGetGpuInstancePossiblePlacements"


def read_profiles(calls: Calls, handle: Handle, *, mig_on: bool) -> tuple[MigProfile, ...]:
    """All profiles by number; with MIG off none where the driver describes them only with it on.

    Left out are profiles that cannot be placed anywhere, and those without a name: a number
    that is not known here, of a driver that gives no name. What is missing otherwise is a gap.
    """
    profiles: list[MigProfile] = []
    for number in range(PROFILES):
        info, gap = profile_info(handle, number)
        if gap is not None:
            if gap.reason is Reason.ABSENT and number > 0:
                break
            if gap.reason is not Reason.UNSUPPORTED:
                calls.miss(WHAT, _reason(gap.reason), gap.source, gap.detail)
            continue
        profile = _profile(calls, handle, number, info, mig_on=mig_on)
        if profile is not None:
            profiles.append(profile)
    if mig_on and not profiles and not calls.gaps:
        calls.miss(WHAT, Reason.FAILED, CALL, "MIG is on and the driver describes no profile")
    calls.part(WHAT, CALL, _check_distinct, profiles)
    return tuple(profiles)


def _reason(reason: Reason) -> Reason:
    """Number 0 is in every version of NVML: that it is refused is a failure."""
    return Reason.FAILED if reason is Reason.ABSENT else reason


def _profile(
    calls: Calls, handle: Handle, number: int, info: Any, *, mig_on: bool
) -> MigProfile | None:
    """None for one that is left out, and with a gap."""
    name = _name(calls, handle, number, info)
    numbers = calls.part(WHAT, CALL, _numbers, info)
    if name is None or numbers is None:
        return None
    places = _placements(calls, handle, numbers["id"], mig_on=mig_on)
    if not places:
        return None
    size = places[0][1]
    if any(other_size != size for _, other_size in places):
        calls.miss(WHAT, Reason.GARBAGE, _PLACES, f"{name} has placements of several sizes")
        return None
    return MigProfile(
        number=number,
        name=name,
        size=size,
        starts=tuple(sorted({start for start, _ in places})),
        fitting=_fitting(handle, numbers["id"]) if mig_on else None,
        **numbers,
    )


def _name(calls: Calls, handle: Handle, number: int, info: Any) -> str | None:
    """The driver's name; without it one from slices and memory, if the number is a known one."""
    name = Calls().part(WHAT, CALL, drivers_name, info)
    if name is not None or number >= KNOWN_NUMBERS:
        return name
    total = calls.ask(WHAT, "nvmlDeviceGetMemoryInfo", handle, convert=_total_bytes)
    if total is None:
        return None
    return calls.part(WHAT, CALL, _computed_name, number, info, total)


def _total_bytes(value: Any) -> int:
    total = BYTES(value.total)
    if not total:
        raise Garbage("0 bytes in total")
    return total


def _computed_name(number: int, info: Any, total_bytes: int) -> str:
    slices = _COUNT(info.sliceCount)
    return mig_profile_name(
        gpu_slices=slices,
        compute_slices=slices,
        memory_bytes=_MEMORY(info.memorySizeMB),
        total_bytes=total_bytes,
        attribute=ATTRIBUTES.get(number, ""),
    )


def _numbers(info: Any) -> dict[str, Any]:
    slices = _COUNT(info.sliceCount)
    if not slices:
        raise Garbage("a profile of 0 slices")
    return {
        "id": whole(0xFFFF)(info.id),
        "slices": slices,
        "max_instances": _COUNT(info.instanceCount),
        "memory_bytes": _MEMORY(info.memorySizeMB),
        "multiprocessors": _COUNT(info.multiprocessorCount),
        "engines": MigEngines(
            decoders=_COUNT(info.decoderCount),
            encoders=_COUNT(info.encoderCount),
            jpeg=_COUNT(info.jpegCount),
            ofa=_COUNT(info.ofaCount),
        ),
    }


def _placements(
    calls: Calls, handle: Handle, profile_id: int, *, mig_on: bool
) -> tuple[tuple[int, int], ...]:
    """Start and size of each; with MIG off, none where the driver says so only with it on."""
    room = (pynvml.c_nvmlGpuInstancePlacement_t * PLACEMENTS)()
    count = ctypes.c_uint(PLACEMENTS)
    tried = Calls()
    placements = tried.ask(
        WHAT,
        _PLACES,
        handle,
        profile_id,
        room,
        ctypes.byref(count),
        convert=lambda _: tuple(
            checked_placement(room[index]) for index in range(whole(PLACEMENTS)(count))
        ),
    )
    calls.gaps += [gap for gap in tried.gaps if mig_on or gap.reason is not Reason.UNSUPPORTED]
    return placements or ()


def checked_placement(value: Any) -> tuple[int, int]:
    """Start and size in memory units. Raises Garbage."""
    start, size = whole(PLACEMENTS)(value.start), whole(PLACEMENTS)(value.size)
    if not size:
        raise Garbage("a placement of no memory")
    return start, size


def _fitting(handle: Handle, profile_id: int) -> int | None:
    """Instances that still fit; None without a gap, since it is for people and not for plans."""
    call = "nvmlDeviceGetGpuInstanceRemainingCapacity"
    return Calls().ask(WHAT, call, handle, profile_id, convert=_COUNT)


def _check_distinct(profiles: Sequence[MigProfile]) -> None:
    """Raises Garbage for two profiles of one name or one id: a layout could not tell them apart."""
    for kind in ("name", "id"):
        values = [getattr(profile, kind) for profile in profiles]
        if len(set(values)) != len(values):
            raise Garbage(f"two profiles with the same {kind}: {values}")
