# SPDX-License-Identifier: Apache-2.0
"""Checks of a GPU model beyond its schema: placements fit, memory and names add up.

Source: the MIG user guide on placements and names; nvml.h, NVML_GPU_INSTANCE_PROFILE_*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

from base.yaml_places import Place
from discovery.mig_profile import mig_profile_name
from simulator.description.machine_problem import Problem
from simulator.description.machine_schema import GpuInstanceProfile, Model, OwnModel

_VENDOR: Final = 0x10DE
_MOST_LINKS: Final = 18
_SLICES: Final = (1, 2, 3, 4, 7, 8, 6, 1, 2, 1, 1, 2, 4, 1, 2, 1, 2, 3)
"""Slices of NVML's profiles, by their number in ``enum``."""
_ATTRIBUTES: Final = {
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}
"""Number of a profile to the suffix of its name."""
_MIB: Final = 1 << 20


def own_model_problems(models: tuple[OwnModel, ...], shipped: Collection[str]) -> Iterator[Problem]:
    """Everything wrong with the models of a machine file, by their places in it."""
    times = Counter(model.model for model in models)
    for index, model in enumerate(models):
        place: Place = ("models", index)
        if model.model in shipped:
            text = f"{model.model!r} is a model that comes with gpuscape; give yours another name"
            yield Problem(place=(*place, "model"), text=text)
        if times[model.model] > 1:
            yield Problem(place=(*place, "model"), text=f"two models are called {model.model!r}")
        yield from _board(place, model)
        yield from _profiles(place, model)


def _board(place: Place, model: Model) -> Iterator[Problem]:
    if model.device_id & 0xFFFF != _VENDOR or model.device_id >> 32:
        text = "write device and vendor, NVIDIA's 10DE at the end, like 0x233010DE"
        yield Problem(place=(*place, "device_id"), text=text)
    if model.memory_mib is not None and not 0 <= model.reserved_mib < model.memory_mib:
        text = f"more than the {model.memory_mib} MiB of the GPU cannot be reserved"
        yield Problem(place=(*place, "reserved_mib"), text=text)
    if not 0 <= model.nvlink_links <= _MOST_LINKS:
        text = f"NVML knows at most {_MOST_LINKS} links"
        yield Problem(place=(*place, "nvlink_links"), text=text)
    for key, value in (
        ("nvlink_version", model.nvlink_version),
        ("nvlink_mbps", model.nvlink_mbps),
    ):
        if model.nvlink_links and value < 1:
            text = f"a GPU with {model.nvlink_links} links needs {key}; add it"
            yield Problem(place=(*place, key), text=text)


def _profiles(place: Place, model: Model) -> Iterator[Problem]:
    if not model.mig:
        return
    if model.memory_mib is None:
        text = "a GPU with MIG has memory of its own; write its size"
        yield Problem(place=(*place, "memory_mib"), text=text)
        return
    for key in ("name", "id", "enum"):
        values = Counter(getattr(profile, key) for profile in model.mig)
        for index, profile in enumerate(model.mig):
            if values[value := getattr(profile, key)] > 1:
                text = f"two profiles have the {key} {value}"
                yield Problem(place=(*place, "mig", index, key), text=text)
    whole = max(model.mig, key=lambda profile: (profile.slices, profile.size))
    for index, profile in enumerate(model.mig):
        profile_place: Place = (*place, "mig", index)
        yield from _sums(profile_place, profile, whole, model.memory_mib)
        yield from _placements(profile_place, profile, whole.size)


def _sums(
    place: Place, profile: GpuInstanceProfile, whole: GpuInstanceProfile, total_mib: int
) -> Iterator[Problem]:
    """Slices, memory and multiprocessors of as many instances as fit; and the name."""
    if not 0 <= profile.enum < len(_SLICES):
        text = f"NVML knows profiles 0 to {len(_SLICES) - 1}"
        yield Problem(place=(*place, "enum"), text=text)
        return
    if profile.slices != _SLICES[profile.enum]:
        slices = _SLICES[profile.enum]
        text = f"profile {profile.enum} of NVML has {slices} slices, not {profile.slices}"
        yield Problem(place=(*place, "slices"), text=text)
        return
    for key, of_one, of_all in (
        ("slices", profile.slices, whole.slices),
        ("memory_mib", profile.memory_mib, total_mib),
        ("multiprocessors", profile.multiprocessors, whole.multiprocessors),
    ):
        if of_one < 1 or profile.max * of_one > of_all:
            text = f"{profile.max} of {of_one} do not fit the GPU's {of_all}"
            yield Problem(place=(*place, key), text=text)
            return
    name = mig_profile_name(
        gpu_slices=profile.slices,
        compute_slices=profile.slices,
        memory_bytes=profile.memory_mib * _MIB,
        total_bytes=total_mib * _MIB,
        attribute=_ATTRIBUTES.get(profile.enum, ""),
    )
    if name != profile.name:
        text = (
            f"{profile.memory_mib} of {total_mib} MiB in profile {profile.enum} are called {name!r}"
        )
        yield Problem(place=(*place, "name"), text=text)


def _placements(place: Place, profile: GpuInstanceProfile, units: int) -> Iterator[Problem]:
    starts_place: Place = (*place, "starts")
    if profile.size < 1 or not profile.starts:
        text = "an instance takes at least one memory unit, and starts somewhere"
        yield Problem(place=(*place, "size"), text=text)
        return
    for start in profile.starts:
        if not 0 <= start <= units - profile.size:
            text = f"{profile.size} memory units from {start} on are not within the GPU's {units}"
            yield Problem(place=starts_place, text=text)
    if any(later <= earlier for earlier, later in pairwise(profile.starts)):
        yield Problem(place=starts_place, text="write them in ascending order, each once")
    elif not 1 <= profile.max <= (apart := _apart(profile)):
        text = f"{apart} of it fit without overlap, not {profile.max}"
        yield Problem(place=(*place, "max"), text=text)


def _apart(profile: GpuInstanceProfile) -> int:
    """How many instances fit, the lowest starts first."""
    count = end = 0
    for start in profile.starts:
        if start >= end:
            count, end = count + 1, start + profile.size
    return count
