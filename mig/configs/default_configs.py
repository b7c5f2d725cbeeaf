# SPDX-License-Identifier: Apache-2.0
"""The default configurations, without a file: mig-parted's, by name and content. Pure.

For GPUs at hand they are generated, as mig-parted does since v0.14; for no GPU in particular they
are the list that it ships. docs/mig.md has the differences.
Source: mig-parted v0.15.0, pkg/mig/builder and deployments/systemd/config-default.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from base.grouping import grouped
from discovery.mig_state import MigGpu
from mig.configs.known_gpus import offered_profiles
from mig.configs.known_mig_models import FAMILIES
from mig.configs.mig_configs import (
    ONE_PROFILE,
    DeviceFilter,
    MigConfig,
    MigConfigs,
    MigConfigSpec,
    SpecPlaces,
)
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts

SOURCE: Final = "the default configurations"

Counts = Mapping[str, int]
"""Profile to how many fit on an empty GPU."""

_BALANCED: Final[Mapping[int, Mapping[int, int]]] = MappingProxyType(
    {7: MappingProxyType({1: 2, 2: 1, 3: 1}), 4: MappingProxyType({1: 2, 2: 1})}
)
"""Slices of the largest profile to the instances of ``all-balanced``: slices to count."""


def listed_configs() -> MigConfigs:
    """The configurations for all known models at once.

    An entry has filters only where its profile's count is not the same on all models.
    """
    models = {device: family.max_instances for family in FAMILIES for device in family.devices}
    counts: dict[str, set[int]] = {}
    for family in FAMILIES:
        for profile, count in family.max_instances.items():
            counts.setdefault(profile, set()).add(count)
    filtered = {profile for profile, model_counts in counts.items() if len(model_counts) > 1}
    return _configs(models, filtered, balanced_filtered=True)


def generated_configs(gpus: Sequence[MigGpu]) -> MigConfigs:
    """The configurations for these GPUs; if none has MIG, the two that fit every node.

    They have filters if the GPUs with MIG have different PCI ids. A GPU whose profiles neither the
    driver reports nor the table knows is only in the configurations that set the mode.
    """
    models: dict[int, Counts] = {}
    for gpu in gpus:
        if gpu.mode is not None:
            profiles = offered_profiles(gpu)
            models[gpu.device_id] = {profile.name: profile.max_instances for profile in profiles}
    several = len(models) > 1
    names = {profile for counts in models.values() for profile in counts}
    return _configs(models, names if several else set(), balanced_filtered=several)


def config_name(profile: str) -> str:
    """The configuration that fills a GPU with a profile; a label cannot have a ``+``."""
    return ONE_PROFILE + profile.replace("+", ".")


def _configs(
    models: Mapping[int, Counts], filtered: set[str], *, balanced_filtered: bool
) -> MigConfigs:
    """``models``: PCI id to its profiles; ``filtered``: profiles whose entries name the models."""
    on = GpuLayout(mig=True)
    configs = [
        _config("all-disabled", [MigConfigSpec(layout=MIG_OFF)]),
        _config("all-enabled", [MigConfigSpec(layout=on)]),
    ]
    balanced = [(device, _balanced(counts)) for device, counts in models.items()]
    specs = _grouped([(device, counts) for device, counts in balanced if counts], balanced_filtered)
    if specs:
        configs.append(_config("all-balanced", specs))
    for profile in dict.fromkeys(name for counts in models.values() for name in counts):
        chosen = [
            (device, {profile: counts[profile]})
            for device, counts in models.items()
            if profile in counts
        ]
        configs.append(_config(config_name(profile), _grouped(chosen, profile in filtered)))
    return MigConfigs(source=SOURCE, configs=tuple(configs))


def _grouped(models: Iterable[tuple[int, Counts]], filtered: bool) -> list[MigConfigSpec]:
    """Entries of a configuration, one for each layout, in the order of the models."""
    by_layout = grouped(models, lambda model: layout_from_counts(model[1]))
    return [
        MigConfigSpec(
            layout=layout,
            filters=tuple(DeviceFilter(device=device) for device, _ in alike) if filtered else (),
        )
        for layout, alike in by_layout.items()
    ]


def _balanced(counts: Counts) -> Counts:
    """Profile to count of the balanced mix; empty if the model has no such mix."""
    best: dict[int, str] = {}
    for profile, count in counts.items():
        slices, plain = _slices(profile)
        if plain and (slices not in best or count > counts[best[slices]]):
            best[slices] = profile
    mix = _BALANCED.get(max(best, default=0), {})
    if not best.keys() >= mix.keys():
        return {}
    return {best[slices]: count for slices, count in mix.items()}


def _slices(profile: str) -> tuple[int, bool]:
    """Slices, and whether the profile has no attributes."""
    slices, _, rest = profile.partition("g.")
    return int(slices), rest.endswith("gb")


def _config(name: str, specs: Sequence[MigConfigSpec]) -> MigConfig:
    places = SpecPlaces.all_at(f"default configuration {name}")
    return MigConfig(name=name, specs=tuple(replace(spec, places=places) for spec in specs))
