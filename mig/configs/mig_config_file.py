# SPDX-License-Identifier: Apache-2.0
"""Reads mig-parted's configuration file, format v1.

Whatever mig-parted reads and would act on is read the same; what it reads and then silently does
not apply is refused, with file, line and key. docs/mig.md lists the differences.
Import it where such a file is read, not before: the parser takes memory.

Source: mig-parted v0.15.0, api/spec/v1 and pkg/types; its files are converted by sigs.k8s.io/yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from base.errors import BadInput
from base.yaml_places import Yaml11Loader, YamlValue, read_yaml
from mig.configs.config_overlap import Overlap
from mig.configs.mig_configs import (
    DeviceFilter,
    MigConfig,
    MigConfigs,
    MigConfigSpec,
    SpecPlaces,
    device_filter,
)
from mig.configs.written_layout import device_counts, entries_of, profile_places, whole_number
from mig.gpu_layout import MIG_OFF, GpuLayout

_MOST_INDEX: Final = 1023
_KEYS: Final = ("version", "mig-configs")
_SPEC_KEYS: Final = ("device-filter", "devices", "mig-enabled", "mig-devices")


def parse_mig_configs(text: str, file: str, overlap: Overlap = Overlap.REFUSE) -> MigConfigs:
    """The configurations of a file, which messages call ``file``.

    ``overlap``: what several layouts of one GPU mean, once the GPUs are known.
    Raises BadInput naming file, line and key, and what would be accepted; nothing else, whatever
    the text is.
    """
    top = read_yaml(text, file, loader=Yaml11Loader)
    top.refuse_config_map()
    entries = entries_of(top, "version: v1 and mig-configs", _KEYS)
    version = _required(top, entries, "version", "write v1")
    if not version.is_text or version.text() != "v1":
        raise version.wrong("only the format v1 is known")
    configs = _required(top, entries, "mig-configs", "name at least one configuration")
    named = entries_of(configs, "names of configurations, each with a list")
    if not named:
        raise configs.wrong("name at least one configuration")
    return MigConfigs(
        source=file,
        configs=tuple(_config(name, value, overlap) for name, value in named.items()),
    )


def _config(name: str, value: YamlValue, overlap: Overlap) -> MigConfig:
    items = _listed(value, "a list of entries with devices and mig-enabled")
    if not items:
        raise value.wrong("a configuration needs at least one entry")
    return MigConfig(name=name, specs=tuple(_spec(item) for item in items), overlap=overlap)


def _spec(value: YamlValue) -> MigConfigSpec:
    entries = entries_of(value, "an entry with devices and mig-enabled", _SPEC_KEYS)
    devices = _required(value, entries, "devices", "write all, or a list of indices")
    enabled = _required(value, entries, "mig-enabled", "write true or false")
    filters = entries.get("device-filter", value)
    mig_devices = entries.get("mig-devices")
    written = enabled if mig_devices is None else mig_devices
    return MigConfigSpec(
        layout=_layout(value, enabled.flag(), mig_devices),
        filters=tuple(_filters(filters)) if "device-filter" in entries else (),
        devices=_devices(devices),
        places=SpecPlaces(
            filters=filters.place,
            devices=devices.place,
            layout=written.place,
            profiles=profile_places(written),
        ),
    )


def _layout(spec: YamlValue, enabled: bool, mig_devices: YamlValue | None) -> GpuLayout:
    if not enabled:
        if mig_devices is None or mig_devices.is_null:
            return MIG_OFF
        if entries_of(mig_devices, "{}, or nothing"):
            why = "MIG devices with mig-enabled: false; remove them, or write true"
            raise mig_devices.wrong(why)
        return MIG_OFF
    if mig_devices is None:
        raise spec.wrong("mig-devices is missing: write {} for none")
    if mig_devices.is_null:
        raise mig_devices.wrong("expected lines of profile: count, or {} for none")
    return device_counts(mig_devices)


def _devices(value: YamlValue) -> frozenset[int] | None:
    if value.is_text and value.text() == "all":
        return None
    if not value.is_list:
        raise value.wrong("write all, or a list of indices such as [0, 1]")
    items = _listed(value, "indices")
    if not items:
        raise value.wrong("an empty list matches no GPU: write all, or indices")
    return frozenset(whole_number(item, limit=_MOST_INDEX) for item in items)


def _filters(value: YamlValue) -> Iterator[DeviceFilter]:
    """Filters of an entry; none for empty text, an empty list and null, as in mig-parted."""
    if value.is_null or (value.is_text and not value.text()):
        return
    for item in _listed(value, "device filters") if value.is_list else (value,):
        if not item.is_text:
            raise item.wrong("a device filter is text: put it into quotes")
        try:
            yield device_filter(item.text())
        except BadInput as error:
            raise item.wrong(f"{error}") from error


def _listed(value: YamlValue, expected: str) -> tuple[YamlValue, ...]:
    """The items of a list, each with its position in its key."""
    if not value.is_list:
        raise value.wrong(f"expected {expected}")
    return tuple(
        replace(item, key=f"{value.key}[{index}]") for index, item in enumerate(value.items())
    )


def _required(value: YamlValue, entries: Mapping[str, YamlValue], key: str, fix: str) -> YamlValue:
    if key not in entries:
        raise value.wrong(f"{key} is missing: {fix}")
    return entries[key]
