# SPDX-License-Identifier: Apache-2.0
"""What the schema cannot say of a GPU model: placements that fit, memory and names that add up.

Source: the MIG user guide on placements and names; nvml.h, NVML_GPU_INSTANCE_PROFILE_*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

from base.yaml_places import Place
from discovery.mig_profile import profile_name
from discovery.simulator.description.machine_problem import Problem
from discovery.simulator.description.machine_schema import GpuInstanceProfile, Model, OwnModel

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
"""What the names of these numbers end in."""
_MIB: Final = 1 << 20


def own_model_problems(models: tuple[OwnModel, ...], shipped: Collection[str]) -> Iterator[Problem]:
    """Everything wrong with the models of a machine file, by their places in it."""
    times = Counter(one.model for one in models)
    for place, one in enumerate(models):
        at: Place = ("models", place)
        if one.model in shipped:
            text = f"{one.model!r} is a model that comes with gpuscape; give yours another name"
            yield Problem(at=(*at, "model"), text=text)
        if times[one.model] > 1:
            yield Problem(at=(*at, "model"), text=f"two models are called {one.model!r}")
        yield from _board(at, one)
        yield from _profiles(at, one)


def _board(at: Place, model: Model) -> Iterator[Problem]:
    if model.device_id & 0xFFFF != _VENDOR or model.device_id >> 32:
        text = "write device and vendor, NVIDIA's 10DE at the end, like 0x233010DE"
        yield Problem(at=(*at, "device_id"), text=text)
    if model.memory_mib is not None and not 0 <= model.reserved_mib < model.memory_mib:
        text = f"more than the {model.memory_mib} MiB of the GPU cannot be reserved"
        yield Problem(at=(*at, "reserved_mib"), text=text)
    if not 0 <= model.nvlink_links <= _MOST_LINKS:
        text = f"NVML knows at most {_MOST_LINKS} links"
        yield Problem(at=(*at, "nvlink_links"), text=text)
    for key, value in (
        ("nvlink_version", model.nvlink_version),
        ("nvlink_mbps", model.nvlink_mbps),
    ):
        if model.nvlink_links and value < 1:
            text = f"a GPU with {model.nvlink_links} links needs {key}; add it"
            yield Problem(at=(*at, key), text=text)


def _profiles(at: Place, model: Model) -> Iterator[Problem]:
    if not model.mig:
        return
    if model.memory_mib is None:
        text = "a GPU with MIG has memory of its own; write its size"
        yield Problem(at=(*at, "memory_mib"), text=text)
        return
    for key in ("name", "id", "enum"):
        values = Counter(getattr(one, key) for one in model.mig)
        for place, one in enumerate(model.mig):
            if values[value := getattr(one, key)] > 1:
                text = f"two profiles have the {key} {value}"
                yield Problem(at=(*at, "mig", place, key), text=text)
    whole = max(model.mig, key=lambda one: (one.slices, one.size))
    for place, one in enumerate(model.mig):
        where: Place = (*at, "mig", place)
        yield from _sums(where, one, whole, model.memory_mib)
        yield from _placements(where, one, whole.size)


def _sums(
    at: Place, one: GpuInstanceProfile, whole: GpuInstanceProfile, total_mib: int
) -> Iterator[Problem]:
    """Slices, memory and multiprocessors of as many instances as fit; and the name."""
    if not 0 <= one.enum < len(_SLICES):
        text = f"NVML knows profiles 0 to {len(_SLICES) - 1}"
        yield Problem(at=(*at, "enum"), text=text)
        return
    if one.slices != _SLICES[one.enum]:
        text = f"profile {one.enum} of NVML has {_SLICES[one.enum]} slices, not {one.slices}"
        yield Problem(at=(*at, "slices"), text=text)
        return
    for key, of_one, of_all in (
        ("slices", one.slices, whole.slices),
        ("memory_mib", one.memory_mib, total_mib),
        ("multiprocessors", one.multiprocessors, whole.multiprocessors),
    ):
        if of_one < 1 or one.max * of_one > of_all:
            text = f"{one.max} of {of_one} do not fit the GPU's {of_all}"
            yield Problem(at=(*at, key), text=text)
            return
    name = profile_name(
        gpu_slices=one.slices,
        compute_slices=one.slices,
        memory_bytes=one.memory_mib * _MIB,
        total_bytes=total_mib * _MIB,
        attribute=_ATTRIBUTES.get(one.enum, ""),
    )
    if name != one.name:
        text = f"{one.memory_mib} of {total_mib} MiB in profile {one.enum} are called {name!r}"
        yield Problem(at=(*at, "name"), text=text)


def _placements(at: Place, one: GpuInstanceProfile, units: int) -> Iterator[Problem]:
    where: Place = (*at, "starts")
    if one.size < 1 or not one.starts:
        text = "an instance takes at least one memory unit, and starts somewhere"
        yield Problem(at=(*at, "size"), text=text)
        return
    for start in one.starts:
        if not 0 <= start <= units - one.size:
            text = f"{one.size} memory units from {start} on are not within the GPU's {units}"
            yield Problem(at=where, text=text)
    if any(later <= earlier for earlier, later in pairwise(one.starts)):
        yield Problem(at=where, text="write them in ascending order, each once")
    elif not 1 <= one.max <= (apart := _apart(one)):
        text = f"{apart} of it fit without overlap, not {one.max}"
        yield Problem(at=(*at, "max"), text=text)


def _apart(one: GpuInstanceProfile) -> int:
    """How many instances fit, the lowest starts first."""
    count = end = 0
    for start in one.starts:
        if start >= end:
            count, end = count + 1, start + one.size
    return count
