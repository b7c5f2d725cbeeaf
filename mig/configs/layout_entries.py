# SPDX-License-Identifier: Apache-2.0
"""Combines the entries of a configuration into one layout for each GPU. Pure.

Nothing is silently left out: an entry that a GPU cannot meet, and two entries for one GPU that do
not agree, are refused with their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from base.errors import BadInput
from base.words import quoted
from discovery.mig_state import MigGpu
from mig.configs.offered_profiles import COMPUTE_SIZES, OfferedProfiles, offered_profiles
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.profile_hints import profile_hint


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEntry:
    """A layout that an entry asks for, with the GPUs that the entry matches."""

    layout: GpuLayout
    gpus: tuple[MigGpu, ...]
    named: bool
    """Whether the GPUs are named one by one; if not, GPUs without MIG are left out."""
    place: str
    """Place of the GPU selection in the source, for the beginning of messages."""
    layout_place: str
    profile_places: Mapping[str, str] = field(default_factory=dict)
    """GPU instance profile to its place in the source; if absent, ``layout_place``."""


def agreed_layouts(
    entries: Iterable[LayoutEntry], *, remedy: str = "leave it out of one of them"
) -> dict[str, GpuLayout]:
    """GPU UUID to the desired layout; a GPU that no entry matches is not in it.

    ``remedy``: what an admin can do about two layouts of one GPU, for the message.
    Raises BadInput for MIG on GPUs that have none, for a profile or placement that a GPU does not
    have, and for two different layouts of one GPU. How many instances fit is not checked here.
    """
    desired: dict[str, tuple[GpuLayout, str]] = {}
    for entry in entries:
        for gpu in _with_mig(entry):
            _check_profiles(gpu, entry)
            layout, place = desired.setdefault(gpu.uuid, (entry.layout, entry.place))
            if layout != entry.layout:
                raise BadInput(
                    f"{entry.place}: {gpu_title(gpu)} gets another layout from {place}: {remedy}"
                )
    return {uuid: layout for uuid, (layout, _) in desired.items()}


def gpu_title(gpu: MigGpu) -> str:
    """The GPU as messages name it."""
    return f"GPU {gpu.index} ({gpu.model}, {gpu.uuid})"


def _with_mig(entry: LayoutEntry) -> tuple[MigGpu, ...]:
    """The matching GPUs that have MIG. Raises BadInput if the entry turns MIG on for others."""
    mig_gpus = tuple(gpu for gpu in entry.gpus if gpu.mode is not None)
    lacking = next((gpu for gpu in entry.gpus if gpu.mode is None), None)
    if entry.layout.mig and lacking is not None and (entry.named or not mig_gpus):
        raise BadInput(f"{entry.place}: {gpu_title(lacking)} has no MIG")
    return mig_gpus


def _check_profiles(gpu: MigGpu, entry: LayoutEntry) -> None:
    if not entry.layout.instances:
        return
    offered = offered_profiles(gpu)
    if offered is None:
        raise BadInput(
            f"{entry.layout_place}: the driver reports no profiles of {gpu_title(gpu)} while MIG"
            " is off, and the model is not known: turn MIG on there first, without instances"
        )
    for instance in entry.layout.instances:
        wrong = _misfit(instance, offered)
        if wrong:
            place = entry.profile_places.get(instance.profile, entry.layout_place)
            raise BadInput(f"{place}: {gpu_title(gpu)} {wrong}")


def _misfit(instance: DesiredInstance, offered: OfferedProfiles) -> str:
    """Why the GPU cannot have the instance, for a message; empty if it can."""
    name = instance.profile
    if name not in offered.most:
        names = profile_hint(name, offered.most) or f"; it has {', '.join(offered.most)}"
        return f"has no profile {quoted(name)}{names}"
    sizes = offered.compute.get(name, COMPUTE_SIZES)
    for slices in instance.compute:
        if slices not in sizes:
            allowed = ", ".join(map(str, sizes))
            return f"has no compute instances of {slices} slices in {name}; of {allowed}"
    starts = offered.starts.get(name)
    if instance.start >= 0 and starts is not None and instance.start not in starts:
        return f"has no place for {name} at {instance.start}; at {', '.join(map(str, starts))}"
    return ""
