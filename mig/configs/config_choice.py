# SPDX-License-Identifier: Apache-2.0
"""Desired layouts of one node's GPUs by a configuration. Pure.

Nothing is silently left out: an entry that a GPU cannot meet, and two entries for one GPU that do
not agree, are refused with their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from base.errors import BadInput
from base.words import quoted
from discovery.mig_state import MigGpu, MigProfile
from mig.configs.config_overlap import Overlap
from mig.configs.default_configs import generated_configs
from mig.configs.known_gpus import offered_profiles
from mig.configs.mig_configs import DeviceFilter, MigConfig, MigConfigs, MigConfigSpec
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.profile_names import profile_hint

COMPUTE_SIZES: Final = (1, 2, 3, 4, 6, 7, 8)
"""Slices of compute instances. Source: nvml.h, NVML_COMPUTE_INSTANCE_PROFILE_*."""
_REMEDY: Final = "leave it out of one of them"
_OVERLAP_REMEDY: Final = (
    f"{_REMEDY}, or let the last entry decide (--overlap last, for an agent"
    " mig-config-overlap: last)"
)

_Match = tuple[MigConfigSpec, Sequence[MigGpu]]
"""An entry of a configuration, and the GPUs that it matches."""


def config_layouts(config: MigConfig, gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
    """GPU UUID to the layout that the configuration desires, for the GPUs that it matches.

    ``gpus``: all of the node, those without MIG too. Entries for models that the node does not
    have are passed over, as long as every GPU with MIG is matched by another one. Where the last
    entry decides, the earlier ones of a GPU do not count. How many instances fit is not checked.
    Raises BadInput naming the place where an entry would silently do nothing: a GPU that does not
    exist or is of another model than the filter, no match at all, filters without a match while a
    GPU is left out; for MIG on GPUs that have none, for a profile or placement that a GPU does not
    have, and for two different layouts of one GPU.
    """
    matches: list[_Match] = []
    unmatched: list[MigConfigSpec] = []
    for spec in config.specs:
        candidates = [gpu for gpu in gpus if spec.lets_through(gpu)]
        if spec.filters and not candidates:
            unmatched.append(spec)
        else:
            matches.append((spec, _matching(spec, candidates, gpus)))
    if unmatched:
        _check_left_out(unmatched[0], matches, gpus)
    if config.overlap is Overlap.LAST:
        matches = _deciding(matches)
    desired: dict[str, tuple[GpuLayout, str]] = {}
    for spec, matching in matches:
        for gpu in _with_mig(spec, matching):
            _check_profiles(gpu, spec)
            layout, place = desired.setdefault(gpu.uuid, (spec.layout, spec.places.devices))
            if layout != spec.layout:
                remedy = _OVERLAP_REMEDY if config.name else _REMEDY
                raise BadInput(
                    f"{spec.places.devices}: {_title(gpu)} gets another layout from {place}:"
                    f" {remedy}"
                )
    return {uuid: layout for uuid, (layout, _) in desired.items()}


def _matching(
    spec: MigConfigSpec, candidates: Sequence[MigGpu], gpus: Sequence[MigGpu]
) -> Sequence[MigGpu]:
    """The GPUs of an entry; ``candidates``: those that its filters let through."""
    if spec.devices is None:
        if spec.layout.mig and not gpus:
            raise BadInput(f"{spec.places.devices}: this node has no GPU")
        return candidates
    by_name = {name: gpu for gpu in gpus for name in gpu_names(gpu)}
    for name in sorted(spec.devices, key=str):
        gpu = by_name.get(name)
        if gpu is None:
            present = ", ".join(" ".join(map(str, gpu_names(gpu))) for gpu in gpus[:16])
            raise BadInput(
                f"{spec.places.devices}: there is no GPU {name}; there are: {present or 'none'}"
            )
        if gpu not in candidates:
            raise BadInput(
                f"{spec.places.devices}: {_title(gpu)} is {_ids(gpu)}, which the device-filter"
                f" {', '.join(map(str, spec.filters))} leaves out"
            )
    return [gpu for gpu in candidates if not spec.devices.isdisjoint(gpu_names(gpu))]


def gpu_names(gpu: MigGpu) -> tuple[int | str, ...]:
    """Index, UUID and bus id: what an entry may name a GPU by."""
    return gpu.index, gpu.uuid, gpu.bus_id


def _check_left_out(spec: MigConfigSpec, matches: Sequence[_Match], gpus: Sequence[MigGpu]) -> None:
    """A filter without a match is another model's or a slip; a GPU that is left out decides."""
    matched = {gpu.uuid for _, matching in matches for gpu in matching}
    left_out = [gpu for gpu in gpus if gpu.uuid not in matched and gpu.mode is not None]
    filters = ", ".join(map(str, spec.filters))
    if left_out:
        raise BadInput(
            f"{spec.places.filters}: no GPU here is {filters}, and no entry matches"
            f" {_title(left_out[0])}, which is {_ids(left_out[0])}"
        )
    if not matches:
        models = ", ".join(f"{gpu.index} {_ids(gpu)}" for gpu in gpus[:16])
        present = f"there are: {models}" if gpus else "this node has none"
        raise BadInput(f"{spec.places.filters}: no GPU here is {filters}; {present}")


def _deciding(matches: Sequence[_Match]) -> list[_Match]:
    """The entries, each without the GPUs that a later one matches.

    So decides the last match in ``nvidia-mig-parted``, whose ``apply`` gives a GPU the layouts of
    all its entries in turn and whose ``assert`` compares with the last one.
    Source: mig-parted v0.15.0, cmd/nvidia-mig-parted/apply/config.go and assert/config.go.
    """
    later: set[str] = set()
    deciding: list[_Match] = []
    for spec, matching in reversed(matches):
        deciding.append((spec, [gpu for gpu in matching if gpu.uuid not in later]))
        later |= {gpu.uuid for gpu in matching}
    return deciding[::-1]


def _with_mig(spec: MigConfigSpec, matching: Sequence[MigGpu]) -> list[MigGpu]:
    """The matching GPUs that have MIG. Raises BadInput if the entry turns MIG on for others."""
    mig_gpus = [gpu for gpu in matching if gpu.mode is not None]
    lacking = next((gpu for gpu in matching if gpu.mode is None), None)
    if spec.layout.mig and lacking is not None and (spec.devices is not None or not mig_gpus):
        raise BadInput(f"{spec.places.devices}: {_title(lacking)} has no MIG")
    return mig_gpus


def _check_profiles(gpu: MigGpu, spec: MigConfigSpec) -> None:
    if not spec.layout.instances:
        return
    offered = {profile.name: profile for profile in offered_profiles(gpu)}
    if not offered:
        raise BadInput(
            f"{spec.places.layout}: the driver reports no profiles of {_title(gpu)} while MIG"
            " is off, and the model is not known: turn MIG on there first, without instances"
        )
    for instance in spec.layout.instances:
        name = instance.profile
        if name in offered:
            wrong = _misfit(instance, offered[name])
        else:
            names = profile_hint(name, offered) or f"; it has {', '.join(offered)}"
            wrong = f"has no profile {quoted(name)}{names}"
        if wrong:
            place = spec.places.profiles.get(name, spec.places.layout)
            raise BadInput(f"{place}: {_title(gpu)} {wrong}")


def _misfit(instance: DesiredInstance, profile: MigProfile) -> str:
    """Why the GPU cannot have the instance of this profile, for a message; empty if it can."""
    sizes = [compute.slices for compute in profile.compute] or COMPUTE_SIZES
    for slices in instance.compute:
        if slices not in sizes:
            allowed = ", ".join(map(str, sizes))
            return f"has no compute instances of {slices} slices in {profile.name}; of {allowed}"
    if instance.start >= 0 and instance.start not in profile.starts:
        starts = ", ".join(map(str, profile.starts))
        return f"has no place for {profile.name} at {instance.start}; at {starts}"
    return ""


def _title(gpu: MigGpu) -> str:
    return f"GPU {gpu.index} ({gpu.model}, {gpu.uuid})"


def _ids(gpu: MigGpu) -> str:
    return str(DeviceFilter(device=gpu.device_id, subsystem=gpu.subsystem_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """A configuration's name or layouts in place, and the configurations with these names."""

    layout: str | MigConfig | None
    """Name of a configuration, or layouts in place; None for the only configuration of a file."""
    configs: MigConfigs | None = None
    """Configurations of a file; None for the default ones of the GPUs."""

    def gpu_layouts(self, gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
        """GPU UUID to the desired layout; other GPUs stay as they are.

        Raises BadInput naming the key where the choice does not go with these GPUs.
        """
        config = self.layout
        if not isinstance(config, MigConfig):
            configs = generated_configs(gpus) if self.configs is None else self.configs
            config = configs.selected(config)
        return config_layouts(config, gpus)

    def is_of(self, gpus: Sequence[MigGpu]) -> bool:
        """Whether it names its GPUs, all among these: no other GPU has to be read."""
        known = {name for gpu in gpus for name in gpu_names(gpu)}
        return isinstance(self.layout, MigConfig) and all(
            spec.devices is not None and spec.devices <= known for spec in self.layout.specs
        )
