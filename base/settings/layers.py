# SPDX-License-Identifier: Apache-2.0
"""Layers of the text of settings: one each for flags, environment and file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from base.errors import BadInput
from base.files import read_text
from base.settings.option import Option, variable
from base.settings.setting_kinds import SettingKind
from base.words import did_you_mean

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenValue:
    """The text of a setting as somebody wrote it, and its source."""

    text: str
    """Empty counts as not set, as unset variables in manifests come out."""
    source: str
    """Place of the text, for messages: ``--deadline``, a variable, ``agent.yaml:3: deadline``."""

    def read(self, kind: SettingKind[Value]) -> Value:
        """The value. Raises BadInput that names the source, the text and what is expected."""
        try:
            return kind.read(self.text.strip())
        except ValueError as error:
            raise BadInput(f"{self.source} is {self.text!r}: {error}") from None


Layer = Mapping[str, WrittenValue]
"""Option names, as :attr:`Option.name` has them, to what one source sets."""

CONFIG_VARIABLE = variable("config")

_SERVICE_LINK = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)


def flag_layer(flags: Mapping[str, str]) -> Layer:
    """The settings of the command line, without ``config``, which only names the file."""
    return {
        name: WrittenValue(text=text, source=f"--{name}")
        for name, text in flags.items()
        if name != "config"
    }


def environment_layer(
    environ: Mapping[str, str], options: Sequence[Option], *, other_options: Iterable[Option] = ()
) -> Layer:
    """The settings of the environment. Raises BadInput for an unknown ``GPUSCAPE_`` variable.

    Variables of ``other_options``, the options of other programs, are known and set nothing.
    """
    known = [name for option in (*options, *other_options) for name in option.variables]
    for name in environ:
        if name.startswith("GPUSCAPE_") and name not in (*known, CONFIG_VARIABLE):
            if is_service_link(name):
                continue
            raise BadInput(f"{name} is not a setting{did_you_mean(name, known)}")
    layer = {}
    for option in options:
        for name in option.variables:
            if environ.get(name, "").strip():
                layer[option.name] = WrittenValue(text=environ[name], source=name)
                break
    return layer


def is_service_link(name: str) -> bool:
    """Whether the kubelet sets such a variable in every pod, for a Service of its namespace.

    Source: Kubernetes documentation, "Service", section "Environment variables".
    """
    return _SERVICE_LINK.fullmatch(name) is not None


def named_file_layer(
    named: WrittenValue,
    options: Sequence[Option],
    read_file: Callable[[Path], str] = read_text,
) -> Layer:
    """The settings of the file that ``named`` names; none without a name. Raises BadInput."""
    if not named.text:
        return {}
    try:
        text = read_file(Path(named.text))
    except BadInput as error:
        raise BadInput(f"{named.source}: {error}") from error
    return file_layer(text, named.text, options)


def file_layer(text: str, file: str, options: Sequence[Option]) -> Layer:
    """The settings of a file's text: one YAML mapping of option names to plain values.

    Raises BadInput naming file, line and key for anything else: unknown and repeated
    keys, lists and mappings as values, YAML that does not parse.
    """
    from base.yaml_places import read_yaml  # takes memory, and most programs run without a file

    keys = tuple(option.name for option in options)
    layer = {}
    for key, value in read_yaml(text, file).mapping().items():
        if key not in keys:
            raise BadInput(
                f"{file}:{value.line}: {key!r} is not a setting{did_you_mean(key, keys)}"
            )
        layer[key] = WrittenValue(text=value.text(), source=value.place)
    return layer
