# SPDX-License-Identifier: Apache-2.0
"""Single values of the device plugin's configuration, as its readers in Go take them. Pure.

Go reads the file as JSON made from YAML 1.1: a whole number may have a point, what YAML takes for a
number or truth is no string, and null leaves a value as it was. Each function returns None for
null where that is so, and raises BadInput with file, line, key and fix for what Go or the plugin
refuses.

Source: sigs.k8s.io/yaml, yaml.go; NVIDIA k8s-device-plugin v0.20.0, api/config/v1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from base.text.go_duration import go_nanoseconds
from base.words import quoted
from base.yaml_places import YamlValue

PREFIX: Final = "nvidia.com/"
_MOST_NAME_BYTES: Final = 63
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UUID: Final = (
    r"(?:(?:urn:uuid:)?{h}{{8}}-(?:{h}{{4}}-){{3}}{h}{{12}}|\{{{h}{{8}}-(?:{h}{{4}}-){{3}}{h}{{12}}\}}"
    r"|{h}{{32}})"
).format(h="[0-9A-Fa-f]")
_DEVICE: Final = re.compile(
    rf"[0-9]+|[0-9]+:[0-9]+|GPU-{_UUID}|MIG-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+"
)
_DEVICES: Final = "write all, a number of devices, or a list of indices and UUIDs"


def text_value(value: YamlValue) -> str | None:
    """A string."""
    if value.is_null:
        return None
    if not _is_string(value):
        raise value.wrong("expected text: put it in quotes")
    return value.text()


def flag_value(value: YamlValue) -> bool | None:
    """True or false, without quotes."""
    return None if value.is_null else value.flag()


def whole_number_value(value: YamlValue) -> int | None:
    """A whole number, which may have a point and an exponent."""
    if value.is_null:
        return None
    if (number := _number(value)) is None or number != int(number):
        raise value.wrong("expected a whole number")
    return int(number)


def duration_value(value: YamlValue) -> str | None:
    """Text such as 1m30s, or nanoseconds as a number."""
    if value.is_null:
        return None
    if _number(value) is None and not (_is_string(value) and _is_duration(value.text())):
        raise value.wrong("expected a duration: write it as 60s or 1m30s")
    return value.text()


def _is_duration(written: str) -> bool:
    try:
        go_nanoseconds(written)
    except ValueError:
        return written == "infinite"
    return True


def word(*words: str) -> Callable[[YamlValue], str | None]:
    """A reader of a value that must be one of these words."""

    def read(value: YamlValue) -> str | None:
        return None if text_value(value) is None else value.one_of(words)

    return read


def texts(*words: str) -> Callable[[YamlValue], tuple[str, ...]]:
    """A reader of a value that must be one of these words, or a list of them."""
    read_word = word(*words)

    def read(value: YamlValue) -> tuple[str, ...]:
        values = map(read_word, value.items() if value.is_list else (value,))
        return tuple(text for text in values if text is not None)

    return read


def resource_name(value: YamlValue) -> str:
    """A resource's name, completed by its prefix ``nvidia.com/``."""
    if not _is_string(value):
        raise value.wrong("expected a name in quotes, such as nvidia.com/gpu")
    written = value.text()
    name = written if written.startswith(PREFIX) else PREFIX + written
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise value.wrong(f"{quoted(name)} is longer than {_MOST_NAME_BYTES} characters")
    if _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)) is None:
        raise value.wrong(
            f"{quoted(written)} is no name of a resource: write {PREFIX} and a name of a-z, 0-9, -"
            " and dots"
        )
    return name


def check_devices(value: YamlValue) -> None:
    """Check the devices of a resource to share; the plugin checks them too, and shares all."""
    if value.is_list:
        for device in value.items():
            if not (device.is_null or _is_index(device) or _names_device(device)):
                raise device.wrong(f"no device: {_DEVICES}")
    elif _is_string(value):
        if value.text() != "all":
            raise value.wrong(_DEVICES)
    elif not _is_index(value) or _number(value) == 0:
        raise value.wrong(_DEVICES)


def _is_index(value: YamlValue) -> bool:
    number = _number(value)
    return number is not None and number >= 0 and number == int(number)


def _names_device(value: YamlValue) -> bool:
    return _is_string(value) and _DEVICE.fullmatch(value.text()) is not None


def channels(value: YamlValue) -> None:
    """IMEX channels of the plugin, of which there is one."""
    numbers = [whole_number_value(channel) or 0 for channel in value.items()]
    if numbers not in ([], [0]):
        raise value.wrong("write [] or [0]")


def _is_string(value: YamlValue) -> bool:
    """Whether JSON has it as a string: text and times, and what only PyYAML takes for base 60."""
    if value.is_list or value.is_mapping or value.is_null:
        return False
    return value.is_text or value.is_time or (value.is_number and ":" in value.text())


def _number(value: YamlValue) -> float | int | None:
    """The value as JSON's number; None for another kind of value."""
    if not value.is_number or ":" in value.text():
        return None
    number = value.content()
    return number if math.isfinite(number) else None
