# SPDX-License-Identifier: Apache-2.0
"""Reads the annotation ``gpuscape.io/mig-layout``: a configuration's name, or layouts in place.

Import it where the annotation stands, not before: the parser takes memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from api.mig_layout_annotation import ALL, MOST_BYTES, MOST_INDEX, OFF, ON, SOURCE
from base.errors import BadInput
from base.words import quoted
from base.yaml_places import CoreLoader, YamlValue, read_yaml
from discovery.bus_id import normal_bus_id
from mig.configs.mig_configs import MigConfig, MigConfigSpec, SpecPlaces
from mig.configs.written_layout import device_counts, profile_places
from mig.gpu_layout import MIG_OFF, GpuLayout

_INDICES: Final = re.compile(r"(0|[1-9][0-9]{0,3})(?:-(0|[1-9][0-9]{0,3}))?", re.ASCII)
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_BUS_ID: Final = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)


def parse_layout_annotation(value: str, source: str = SOURCE) -> str | MigConfig:
    """The name of a configuration, or the nameless one that the annotation has itself.

    ``source``: its name in messages. Raises BadInput naming the key within it; nothing else,
    whatever the value is.
    """
    if len(value.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise BadInput(f"{source}: longer than {MOST_BYTES} bytes: put it into a configuration")
    top = read_yaml(value, source, loader=CoreLoader)
    if top.is_list:
        raise top.wrong("expected the name of a configuration, or GPUs with layouts")
    if not top.is_mapping:
        return _config_name(top)
    entries = top.mapping()
    if not entries:
        raise top.wrong("it names no GPU: leave it out, or write a layout")
    return MigConfig(specs=tuple(_spec(key, entry) for key, entry in entries.items()))


def _config_name(value: YamlValue) -> str:
    name = value.text().strip()
    if not name:
        raise value.wrong("it is empty: leave it out, or write a layout")
    if name in (ALL, OFF, ON):
        raise value.wrong(f'a layout goes with GPUs: write {{"{ALL}": "{OFF}"}}, for example')
    return name


def _spec(key: str, value: YamlValue) -> MigConfigSpec:
    return MigConfigSpec(
        devices=None if key.strip() == ALL else frozenset(_devices(key, value)),
        layout=_layout(value),
        places=SpecPlaces.all_at(value.place, profile_places(value)),
    )


def _layout(value: YamlValue) -> GpuLayout:
    if value.is_mapping:
        return device_counts(value, placed=True)
    words = {OFF: MIG_OFF, ON: GpuLayout(mig=True)}
    if not value.is_text or value.text() not in words:
        raise value.wrong(f'expected "{OFF}", "{ON}", or profiles with counts: {{"1g.10gb": 7}}')
    return words[value.text()]


def _devices(key: str, value: YamlValue) -> Iterator[int | str]:
    for part in map(str.strip, key.split(",")):
        if match := _INDICES.fullmatch(part):
            yield from _range(match, value)
        elif _UUID.fullmatch(part):
            yield f"GPU-{part[4:].lower()}"
        elif _BUS_ID.fullmatch(part):
            yield normal_bus_id(part)
        else:
            raise value.wrong(
                f"{quoted(part)} names no GPU: write {ALL}, indices such as 0-3, UUIDs or bus ids"
            )


def _range(match: re.Match[str], value: YamlValue) -> range:
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last <= MOST_INDEX:
        raise value.wrong(f"{quoted(match[0])} is no range of indices: 0-3 is, up to {MOST_INDEX}")
    return range(first, last + 1)
