# SPDX-License-Identifier: Apache-2.0
"""Reads the annotation ``gpuscape.io/mig-layout``: a configuration's name, or layouts in place.

Import it where the annotation stands, not before: the parser takes memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from api.mig_layout_annotation import ALL, MOST_BYTES, MOST_INDEX, OFF, ON, SOURCE
from base.errors import BadInput
from base.words import quoted
from base.yaml_places import CoreLoader, YamlValue, read_yaml
from discovery.bus_id import normal_bus_id
from discovery.mig_state import MigGpu
from mig.configs.layout_entries import LayoutEntry, agreed_layouts
from mig.configs.written_layout import device_counts, profile_places
from mig.gpu_layout import MIG_OFF, GpuLayout

_INDICES: Final = re.compile(r"(0|[1-9][0-9]{0,3})(?:-(0|[1-9][0-9]{0,3}))?", re.ASCII)
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_BUS_ID: Final = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSelector:
    """GPUs by what people call them."""

    all: bool = False
    """All GPUs that have MIG; then none is named."""
    indices: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    bus_ids: tuple[str, ...] = ()
    """PCI bus ids, normalised."""

    @property
    def names(self) -> frozenset[int | str]:
        """All indices, UUIDs and bus ids that it names."""
        return frozenset((*self.indices, *self.uuids, *self.bus_ids))

    def chosen(self, gpus: Sequence[MigGpu], place: str) -> tuple[MigGpu, ...]:
        """The selected GPUs, each once, in the node's order. Raises BadInput for an unknown one."""
        if self.all:
            return tuple(gpus)
        keys: tuple[int | str, ...] = (*self.indices, *self.uuids, *self.bus_ids)
        for key in keys:
            if not any(key in (gpu.index, gpu.uuid, gpu.bus_id) for gpu in gpus):
                present = ", ".join(f"{gpu.index} {gpu.uuid} {gpu.bus_id}" for gpu in gpus[:16])
                raise BadInput(f"{place}: there is no GPU {key}; there are: {present or 'none'}")
        return tuple(gpu for gpu in gpus if {gpu.index, gpu.uuid, gpu.bus_id}.intersection(keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineEntry:
    """An entry of the annotation: GPUs, and the layout that they are to have."""

    selector: GpuSelector
    layout: GpuLayout
    place: str = field(compare=False, default=SOURCE)
    """Place of the entry, for the beginning of messages."""
    profile_places: Mapping[str, str] = field(compare=False, default_factory=dict)
    """GPU instance profile to its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineLayout:
    """An annotation that has layouts, not the name of a configuration."""

    entries: tuple[InlineEntry, ...]
    """Entries of the annotation; at least one."""

    def is_of(self, gpus: Sequence[MigGpu]) -> bool:
        """Whether every GPU is named, and each is one of these."""
        known = {key for gpu in gpus for key in (gpu.index, gpu.uuid, gpu.bus_id)}
        return all(
            not entry.selector.all and entry.selector.names <= known for entry in self.entries
        )


def parse_layout_annotation(value: str, source: str = SOURCE) -> str | InlineLayout:
    """The name of a configuration, or the layouts that the annotation has itself.

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
    return InlineLayout(entries=tuple(_entry(key, entry) for key, entry in entries.items()))


def inline_layouts(inline: InlineLayout, gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
    """GPU UUID to the layout that the annotation desires, for the GPUs that it names.

    Raises BadInput for a GPU that is not there, and as :func:`agreed_layouts` does.
    """
    return agreed_layouts(_layout_entries(inline.entries, gpus))


def _layout_entries(
    entries: Iterable[InlineEntry], gpus: Sequence[MigGpu]
) -> Iterator[LayoutEntry]:
    for entry in entries:
        chosen = entry.selector.chosen(gpus, entry.place)
        if entry.layout.mig and not chosen:
            raise BadInput(f"{entry.place}: this node has no GPU")
        yield LayoutEntry(
            layout=entry.layout,
            gpus=chosen,
            named=not entry.selector.all,
            place=entry.place,
            layout_place=entry.place,
            profile_places=entry.profile_places,
        )


def _config_name(value: YamlValue) -> str:
    name = value.text().strip()
    if not name:
        raise value.wrong("it is empty: leave it out, or write a layout")
    if name in (ALL, OFF, ON):
        raise value.wrong(f'a layout goes with GPUs: write {{"{ALL}": "{OFF}"}}, for example')
    return name


def _entry(key: str, value: YamlValue) -> InlineEntry:
    return InlineEntry(
        selector=_selector(key, value),
        layout=_layout(value),
        place=value.place,
        profile_places=profile_places(value) if value.is_mapping else {},
    )


def _layout(value: YamlValue) -> GpuLayout:
    if value.is_mapping:
        return device_counts(value, placed=True)
    words = {OFF: MIG_OFF, ON: GpuLayout(mig=True)}
    if not value.is_text or value.text() not in words:
        raise value.wrong(f'expected "{OFF}", "{ON}", or profiles with counts: {{"1g.10gb": 7}}')
    return words[value.text()]


def _selector(key: str, value: YamlValue) -> GpuSelector:
    if key.strip() == ALL:
        return GpuSelector(all=True)
    indices: set[int] = set()
    uuids: set[str] = set()
    bus_ids: set[str] = set()
    for part in map(str.strip, key.split(",")):
        if match := _INDICES.fullmatch(part):
            indices.update(_range(match, value))
        elif _UUID.fullmatch(part):
            uuids.add(f"GPU-{part[4:].lower()}")
        elif _BUS_ID.fullmatch(part):
            bus_ids.add(normal_bus_id(part))
        else:
            raise value.wrong(
                f"{quoted(part)} names no GPU: write {ALL}, indices such as 0-3, UUIDs or bus ids"
            )
    return GpuSelector(
        indices=tuple(sorted(indices)), uuids=tuple(sorted(uuids)), bus_ids=tuple(sorted(bus_ids))
    )


def _range(match: re.Match[str], value: YamlValue) -> range:
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last <= MOST_INDEX:
        raise value.wrong(f"{quoted(match[0])} is no range of indices: 0-3 is, up to {MOST_INDEX}")
    return range(first, last + 1)
