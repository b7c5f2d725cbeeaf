# SPDX-License-Identifier: Apache-2.0
"""Configurations of MIG as mig-parted's format v1 has them: which GPUs get which layout. Values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from base.errors import BadInput
from base.words import first_names, quoted
from discovery.mig_state import MigGpu
from mig.configs.config_overlap import Overlap
from mig.gpu_layout import GpuLayout
from mig.profile_names import profile_hint

_PACKED: Final = re.compile(
    r"0[xX][0-9a-fA-F]{1,8}|0[oO][0-7]{1,11}|0[bB][01]{1,32}|0|[1-9][0-9]{0,9}", re.ASCII
)
_NVIDIA: Final = 0x10DE
ONE_PROFILE: Final = "all-"
"""Prefix of a profile in the name of the configuration that fills GPUs with it."""
_MOST_NAMES: Final = 12
"""Names of configurations that a message lists at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFilter:
    """Chooses GPUs by PCI ids, each packed as NVML gives it: the device in the upper half."""

    device: int
    """Device and vendor, ``0x20b010de``."""
    subsystem: int | None = None
    """Board and its vendor; None for all boards."""

    def matches(self, gpu: MigGpu) -> bool:
        """Whether the GPU has these ids."""
        return gpu.device_id == self.device and self.subsystem in (None, gpu.subsystem_id)

    def __str__(self) -> str:
        """The filter as configuration files write it."""
        board = "" if self.subsystem is None else f":0x{self.subsystem:08X}"
        return f"0x{self.device:08X}{board}"


def device_filter(text: str) -> DeviceFilter:
    """The filter that a text such as ``0x20B010DE`` or ``0x233010DE:0x16C110DE`` is.

    Raises BadInput for everything else, and for a vendor that is not NVIDIA: such a filter could
    never match. Source: mig-parted's pkg/types/device.go.
    """
    parts = text.split(":")
    if len(parts) > 2 or any(_PACKED.fullmatch(part) is None for part in parts):
        raise BadInput(
            f"{quoted(text)} is no device filter; they look like '0x20B010DE': PCI device, then"
            " vendor, then if wanted ':0x' and the same of the board"
        )
    device, *subsystem = (int(part, 0) for part in parts)
    if device & 0xFFFF != _NVIDIA or max((device, *subsystem)) >> 32:
        raise BadInput(f"{quoted(text)} matches no GPU of NVIDIA: device filters end in 10DE")
    return DeviceFilter(device=device, subsystem=subsystem[0] if subsystem else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPlaces:
    """Places of the parts of a specification in its file, for the beginning of messages."""

    filters: str
    devices: str
    layout: str
    profiles: Mapping[str, str] = field(default_factory=dict)
    """GPU instance profile to its place."""

    @classmethod
    def all_at(cls, place: str, profiles: Mapping[str, str] = MappingProxyType({})) -> SpecPlaces:
        """The places of a specification whose parts all have the same place."""
        return cls(filters=place, devices=place, layout=place, profiles=profiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigConfigSpec:
    """An entry of a configuration: a layout for each GPU that it matches."""

    layout: GpuLayout
    """The layout; without placements in a file: the format has none."""
    filters: tuple[DeviceFilter, ...] = ()
    """Filters of which at least one must match; empty for all models."""
    devices: frozenset[int | str] | None = None
    """Indices of GPUs, and in a layout in place UUIDs and bus ids; None for all that have MIG."""
    places: SpecPlaces = field(
        default_factory=lambda: SpecPlaces.all_at("this configuration"), compare=False, repr=False
    )

    def lets_through(self, gpu: MigGpu) -> bool:
        """Whether the filters let the GPU through."""
        return not self.filters or any(device.matches(gpu) for device in self.filters)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigConfig:
    """A configuration: the desired layouts of a node's GPUs."""

    name: str = ""
    """Empty for layouts in place."""
    specs: tuple[MigConfigSpec, ...]
    """Entries of the configuration; at least one."""
    overlap: Overlap = Overlap.REFUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class MigConfigs:
    """Configurations to choose from."""

    source: str
    """File of the configurations, for messages."""
    configs: tuple[MigConfig, ...]
    """Configurations with different names; at least one."""

    def selected(self, name: str | None = None) -> MigConfig:
        """The configuration of this name; without one the only configuration.

        Raises BadInput where there is none of this name, or several to choose from.
        """
        if name is None and len(self.configs) == 1:
            return self.configs[0]
        names = [config.name for config in self.configs]
        for config in self.configs:
            if config.name == name:
                return config
        shown = first_names([quoted(config_name) for config_name in names], _MOST_NAMES)
        if name is None:
            raise BadInput(f"{self.source}: choose one of its configurations: {shown}")
        hint = profile_hint(name, names, ONE_PROFILE) or f"; it has {shown}"
        raise BadInput(f"{self.source}: no configuration {quoted(name)}{hint}")
