# SPDX-License-Identifier: Apache-2.0
"""Layouts that together show whether a GPU takes what its driver offers. Pure.

By its profiles an empty GPU takes each of them. They are to be tried in this order: some can then
keep instances of the layout before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from discovery.mig_state import MigGpu, MigProfile
from mig.configs.config_choice import config_layouts
from mig.configs.default_configs import generated_configs
from mig.configs.known_gpus import offered_profiles
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.placement import Grid

MIX: Final = "all-balanced"

EMPTY: Final = GpuLayout(mig=True)
"""The first layout to try: some drivers report profiles only with MIG on."""


def trial_title(layout: GpuLayout) -> str:
    """A layout in short, for people: the places of its instances only if there is one."""
    return str(layout if len(layout.instances) == 1 else layout.anywhere)


def trial_layouts(gpu: MigGpu) -> Iterator[GpuLayout]:
    """Layouts to try on a GPU; none if its profiles are not known.

    Each profile as often as it fits, then once at each place that this left free; a mix of sizes;
    the mix without its largest instance, and with a smaller one in its room; and a GPU instance
    that is divided into the smallest compute instances.
    """
    if not gpu.profiles:
        return
    grid = Grid(gpu.profiles)
    for profile in offered_profiles(gpu):
        yield from _alone(grid, profile)
    configs = generated_configs([gpu])
    if any(config.name == MIX for config in configs.configs):
        mix = config_layouts(configs.selected(MIX), [gpu])[gpu.uuid]
        yield mix
        yield from _replaced(grid, mix)
    yield from _divided(grid)


def _alone(grid: Grid, profile: MigProfile) -> Iterator[GpuLayout]:
    """Layouts with one profile at each of its places, first as many instances as fit at once."""
    instance = DesiredInstance(profile.name, (profile.slices,))
    instances = [instance] * profile.max_instances
    while instances and grid.misfit(instances) is not None:
        instances.pop()
    starts = grid.best_starts(instances) or ()
    others = ((start,) for start in profile.starts if start not in starts)
    for places in (starts, *others) if starts else others:
        yield GpuLayout(
            mig=True, instances=tuple(replace(instance, start=start) for start in places)
        )


def _replaced(grid: Grid, mix: GpuLayout) -> Iterator[GpuLayout]:
    """The mix with its largest instance removed or replaced; the other instances are to stay."""
    largest = max(mix.instances, key=grid.size)
    rest = list(mix.instances)
    rest.remove(largest)
    yield GpuLayout(mig=True, instances=tuple(rest))
    smaller = max(
        (instance for instance in rest if instance != largest), key=grid.size, default=None
    )
    if smaller is not None and grid.misfit([*rest, smaller]) is None:
        yield GpuLayout(mig=True, instances=(*rest, smaller))


def _divided(grid: Grid) -> Iterator[GpuLayout]:
    """The smallest profile of several slices, divided into compute instances of one slice."""
    several = [profile for profile in grid.profiles if profile.slices > 1]
    if several:
        profile = min(
            several, key=lambda candidate: (candidate.slices, candidate.size, candidate.number)
        )
        parts = DesiredInstance(profile.name, (1,) * profile.slices)
        yield GpuLayout(mig=True, instances=(parts,))
