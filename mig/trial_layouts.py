# SPDX-License-Identifier: Apache-2.0
"""Layouts that together show whether a GPU takes what its driver offers. Pure.

Each is one that an empty GPU takes, as far as the profiles say; the order is the one in which they
are to be tried, so that in some of them instances of the one before can stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from discovery.mig_state import MigGpu, MigProfile
from mig.configs.config_choice import config_layouts
from mig.configs.default_configs import generated_configs
from mig.configs.offered_profiles import offered_profiles
from mig.gpu_layout import GpuLayout, WantedInstance
from mig.placement import Grid

MIX = "all-balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLayout:
    """One layout of a self-test."""

    name: str
    """For people: ``7 x 1g.5gb``."""
    layout: GpuLayout


EMPTY = TrialLayout(name="MIG on, empty", layout=GpuLayout(mig=True))
"""The first one: some drivers report profiles with MIG on alone."""


def trial_layouts(gpu: MigGpu) -> Iterator[TrialLayout]:
    """For a GPU whose profiles are known; none where they are not.

    Each profile as often as it fits, then once at each place where that had none; a mix of sizes;
    the mix without its largest instance, and with another one in its room; and a GPU instance that
    is divided into the smallest compute instances.
    """
    offered = offered_profiles(gpu)
    if not gpu.profiles or offered is None:
        return
    grid = Grid(gpu.profiles)
    for profile in gpu.profiles:
        yield from _alone(grid, profile, offered.most[profile.name])
    mix = _mix(gpu)
    if mix is not None:
        yield TrialLayout(name=f"mix {MIX}", layout=mix)
        yield from _replaced(grid, mix)
    yield from _divided(grid)


def _alone(grid: Grid, profile: MigProfile, most: int) -> Iterator[TrialLayout]:
    """One profile on every place that it may have, first ``most`` at once."""
    one = _whole(profile)
    wanted = [one] * most
    while wanted and grid.misfit(wanted) is not None:
        wanted.pop()
    starts = grid.best_starts(wanted) or ()
    if starts:
        placed = tuple(replace(one, start=start) for start in starts)
        layout = GpuLayout(mig=True, instances=placed)
        yield TrialLayout(name=f"{len(placed)} x {profile.name}", layout=layout)
    for start in profile.starts:
        if start not in starts:
            alone = GpuLayout(mig=True, instances=(replace(one, start=start),))
            yield TrialLayout(name=f"{profile.name} at unit {start}", layout=alone)


def _mix(gpu: MigGpu) -> GpuLayout | None:
    configs = generated_configs([gpu])
    if not any(one.name == MIX for one in configs.configs):
        return None
    return config_layouts(configs.selected(MIX), [gpu]).get(gpu.uuid)


def _replaced(grid: Grid, mix: GpuLayout) -> Iterator[TrialLayout]:
    """The others are to stay as they are."""
    largest = max(mix.instances, key=grid.size)
    rest = list(mix.instances)
    rest.remove(largest)
    yield TrialLayout(
        name=f"{MIX} without its {largest.profile}",
        layout=GpuLayout(mig=True, instances=tuple(rest)),
    )
    smaller = max((one for one in rest if one != largest), key=grid.size, default=None)
    if smaller is not None and grid.misfit([*rest, smaller]) is None:
        yield TrialLayout(
            name=f"{MIX} with a {smaller.profile} instead",
            layout=GpuLayout(mig=True, instances=(*rest, smaller)),
        )


def _divided(grid: Grid) -> Iterator[TrialLayout]:
    """The smallest profile that has more than one slice, in parts of one slice."""
    several = [one for one in grid.profiles if one.slices > 1]
    if several:
        profile = min(several, key=lambda one: (one.slices, one.size, one.number))
        parts = WantedInstance(profile.name, (1,) * profile.slices)
        yield TrialLayout(
            name=f"{profile.name} in {profile.slices} compute instances",
            layout=GpuLayout(mig=True, instances=(parts,)),
        )


def _whole(profile: MigProfile) -> WantedInstance:
    return WantedInstance(profile.name, (profile.slices,))
