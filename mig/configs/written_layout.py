# SPDX-License-Identifier: Apache-2.0
"""Layouts as people write them in YAML: profiles and counts, with the place of every mistake.

Import it where such a text is read, not before: the parser takes memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from api.mig_layout_annotation import AT
from base.errors import BadInput
from base.words import quoted
from base.yaml_places import YamlValue
from mig.gpu_layout import MOST_DEVICES, DesiredInstance, GpuLayout, layout_from_counts
from mig.profile_names import DeviceName, device_name

_MOST_START: Final = 63

_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)

_Placed = dict[tuple[str, int], list[DeviceName]]
"""Devices by GPU instance profile and first memory unit."""


def device_counts(value: YamlValue, *, placed: bool = False) -> GpuLayout:
    """The layout of ``profile: count`` entries; entries of count 0 mean nothing.

    With ``placed`` a profile may end in ``@4``: its one instance is to start at that memory unit,
    and all parts of instances that name one unit share one instance.
    Raises BadInput for a name that is no profile, for a profile in two spellings, for a count that
    is no whole number, for entries that are all 0, and for more devices than any GPU or place has.
    """
    anywhere: dict[str, int] = {}
    placed_devices: _Placed = {}
    seen: set[tuple[str, int]] = set()
    for text, entry in entries_of(value, "lines of profile: count").items():
        name, start = _name(text, entry, placed=placed)
        if (str(name), start) in seen:
            raise entry.wrong(f"{name} stands twice, in two spellings: keep one")
        seen.add((str(name), start))
        count = whole_number(entry, limit=MOST_DEVICES)
        if start < 0:
            anywhere[str(name)] = count
        elif count:
            siblings = placed_devices.setdefault((name.instance, start), [])
            siblings += [name] * count
            if sum(device.compute for device in siblings) > name.slices:
                raise entry.wrong(f"one instance starts at {start}, and this is more than fits it")
    total = sum(anywhere.values()) + sum(map(len, placed_devices.values()))
    if seen and not total:
        raise value.wrong("all counts are 0: write {} for no MIG devices, or a count")
    if total > MOST_DEVICES:
        raise value.wrong(f"{total} MIG devices: no GPU has that many")
    return GpuLayout(
        mig=True, instances=(*layout_from_counts(anywhere).instances, *_instances(placed_devices))
    )


def profile_places(value: YamlValue) -> Mapping[str, str]:
    """GPU instance profile to the place where :func:`device_counts` read it, if it read any."""
    if not value.is_mapping:
        return {}
    entries = entries_of(value, "lines of profile: count").items()
    return {device_name(text.partition(AT)[0]).instance: entry.place for text, entry in entries}


def entries_of(
    value: YamlValue, expected: str, known: Collection[str] | None = None
) -> Mapping[str, YamlValue]:
    """Entries of a mapping, merged with ``<<``. Raises BadInput, naming ``expected``."""
    if not value.is_mapping:
        raise value.wrong(f"expected {expected}")
    entries = value.merged().mapping(known, names=True)
    for key, entry in entries.items():
        if not key.strip():
            raise entry.wrong(f"{quoted(key)} is no name: write one")
    return entries


def whole_number(value: YamlValue, *, limit: int) -> int:
    """A plain decimal number from 0 to ``limit``. Raises BadInput for any other text."""
    text = "" if value.is_mapping or value.is_list or value.is_text else value.text()
    if _WHOLE.fullmatch(text) is None:
        raise value.wrong(f"expected a whole number from 0 to {limit}")
    if int(text) > limit:
        raise value.wrong(f"{text} is more than {limit}")
    return int(text)


def _name(text: str, entry: YamlValue, *, placed: bool) -> tuple[DeviceName, int]:
    """The profile, and where it is to start; -1 for anywhere."""
    profile, at_sign, start = text.partition(AT) if placed else (text, "", "")
    try:
        name = device_name(profile)
    except BadInput as error:
        raise entry.wrong(str(error)) from error
    if not at_sign:
        return name, -1
    if _WHOLE.fullmatch(start) is None or int(start) > _MOST_START:
        raise entry.wrong(f"{quoted(start)} is no memory unit: write a number, as in {profile}@4")
    return name, int(start)


def _instances(placed: _Placed) -> tuple[DesiredInstance, ...]:
    return tuple(
        DesiredInstance(
            profile, tuple(sorted((device.compute for device in names), reverse=True)), start
        )
        for (profile, start), names in placed.items()
    )
