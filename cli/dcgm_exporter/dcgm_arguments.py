# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's command line and environment, read as layers of our settings. Pure.

The grammar is that of Go's package flag, with which dcgm-exporter reads its flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.settings.agent_settings import AGENT_SETTINGS
from base.errors import BadInput
from base.files import read_text
from base.settings.layers import Layer, WrittenValue, is_service_link
from base.words import did_you_mean
from cli.dcgm_exporter.dcgm_flags import CONFIG_FILE, FLAGS, Flag, Form
from exporters.dcgm.legacy import COMPATIBILITY_FILE
from exporters.dcgm.peer.peer_config import PeerConfig

_IMAGE_FOLDER = Path("/etc/dcgm-exporter")
_DEFAULT_FILE = _IMAGE_FOLDER / "default-counters.csv"
_BUILT_IN: Mapping[Path, Path | None] = {
    _DEFAULT_FILE: None,
    _IMAGE_FOLDER / "dcp-metrics-included.csv": None,
    _IMAGE_FOLDER / "1.x-compatibility-metrics.csv": COMPATIBILITY_FILE,
}
"""Files of dcgm-exporter's image, which manifests name, to what stands for each where it is not
there: a file of ours, or None for the families that are served anyway."""

_BOUNDS = {
    option.name: option.spec.kind.bounds
    for option in AGENT_SETTINGS.options
    if option.spec.kind.bounds is not None
}
"""Least and most seconds of our settings."""

_BY_WORD = {word: flag for flag in FLAGS for word in (flag.name, flag.short) if word}


_WrittenFlags = list[tuple[Flag, WrittenValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmSettings:
    """dcgm-exporter's command line and environment, as settings of ours."""

    flags: Layer
    environment: Layer
    configuration: Layer
    """Settings from dcgm-exporter's YAML file."""
    notes: tuple[str, ...]
    """Settings that have another effect here, or none: sentences that name the flag or variable."""
    fallback: Layer
    """Settings that apply when neither a person nor a file of ours sets them."""


def read_dcgm_arguments(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    is_there: Callable[[Path], bool] = Path.exists,
    read_file: Callable[[Path], str] = read_text,
) -> DcgmSettings:
    """Settings from dcgm-exporter's command line, without its name, and its environment.

    Raises BadInput that names the flag or variable: for flags that no release has, words that are
    none, and values of another form. The same for a YAML file that they name.
    """
    from_flags, from_variables = _flags(arguments), _variables(environ)
    config = _configuration([*from_flags, *from_variables], read_file)
    from_file = _configured(config)
    everything = [*from_flags, *from_variables, *from_file]
    notes = [note for flag, written in everything if (note := _note(flag, written))]
    layer = _layer(from_file, is_there)
    if config.rows:
        fields = WrittenValue(text=config.file, source=config.rows_place)
        layer = {**layer, "counters": fields}
    return DcgmSettings(
        flags=_layer(from_flags, is_there),
        environment=_layer(from_variables, is_there),
        configuration=layer,
        notes=(*notes, *config.notes, *_unknown(environ)),
        fallback=_fallback(is_there),
    )


def _configuration(flags: _WrittenFlags, read_file: Callable[[Path], str]) -> PeerConfig:
    """The YAML file that is named first: by a flag, or else by the variable."""
    named = next((written for flag, written in flags if flag is CONFIG_FILE), None)
    if named is None:
        return PeerConfig()
    from exporters.dcgm.peer.peer_config_reader import read_configuration  # takes memory

    try:
        return read_configuration(read_file(Path(named.text)), named.text)
    except BadInput as error:
        raise BadInput(f"{named.source}: {error}") from error


def _configured(config: PeerConfig) -> _WrittenFlags:
    """The values of the YAML file, as the flags that set the same."""
    return [
        (_BY_WORD[value.flag], _written(_BY_WORD[value.flag], value.text, value.place))
        for value in config.flags
        if value.text
    ]


def _fallback(is_there: Callable[[Path], bool]) -> Layer:
    """The counters file that people mount over that of dcgm-exporter's image."""
    if not is_there(_DEFAULT_FILE):
        return {}
    return {"counters": WrittenValue(text=str(_DEFAULT_FILE), source="dcgm-exporter")}


def has_flag(words: Iterable[str], arguments: Iterable[str]) -> bool:
    """Whether an argument is one of these words, written as a flag."""
    return any(argument.startswith("-") and argument.lstrip("-") in words for argument in arguments)


def _flags(arguments: Sequence[str]) -> _WrittenFlags:
    """Each flag once, with its last value, or with all that were added to its list."""
    flags: dict[str, tuple[Flag, WrittenValue]] = {}
    rest = list(arguments)
    while rest:
        flag, written = _next(rest)
        if flag.form is Form.LIST and flag.name in flags:
            written = replace(written, text=f"{flags[flag.name][1].text},{written.text}")
        flags[flag.name] = flag, written
    return list(flags.values())


def _next(rest: list[str]) -> tuple[Flag, WrittenValue]:
    """Take a flag and its value from the front."""
    word = rest.pop(0)
    match = re.fullmatch(r"--?([^-=][^=]*)(?:=(.*))?", word, re.DOTALL)
    if match is None:
        advice = ": write --kubernetes=true, with =" if word in _BOOLEANS else ""
        raise BadInput(f"{word!r} is not a flag of dcgm-exporter{advice}")
    name, value = match.groups()
    if (flag := _BY_WORD.get(name)) is None:
        raise BadInput(f"{word!r} is not a flag of dcgm-exporter{did_you_mean(name, _BY_WORD)}")
    if value is None and flag.form is Form.SWITCH:
        value = "true"
    elif value is None:
        if not rest:
            raise BadInput(f"{word} needs a value: {flag.form.value}")
        value = rest.pop(0)
    return flag, _written(flag, value, word.partition("=")[0])


def _variables(environ: Mapping[str, str]) -> _WrittenFlags:
    return [
        (flag, _written(flag, text, flag.variable))
        for flag in FLAGS
        if (text := environ.get(flag.variable, "")).strip()
    ]


_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), "true"),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), "false"),
}
"""Source: Go's strconv.ParseBool."""


def _written(flag: Flag, text: str, source: str) -> WrittenValue:
    """The value as our setting takes it. Raises BadInput where its form is another."""
    value = text.strip()
    if flag.form is Form.SWITCH:
        value = _BOOLEANS.get(value, "")
    elif flag.form is Form.MILLISECONDS:
        value = f"{value}ms" if re.fullmatch(r"[0-9]+", value) else ""
    if text.strip() and not value:
        raise BadInput(f"{source} is {text!r}: expected {flag.form.value}")
    return WrittenValue(text=flag.values.get(value, value), source=source)


def _note(flag: Flag, written: WrittenValue) -> str:
    """The note about a flag that sets nothing here; empty where nothing is missed."""
    if flag is CONFIG_FILE or not written.text:
        return ""
    if flag.setting:
        return _bound_note(flag, written)
    if written.text in flag.silent:
        return ""
    reason = f"{flag.does[0].lower()}{flag.does[1:]}"
    return f"{written.source} does nothing: {reason}"


def _bound_note(flag: Flag, written: WrittenValue) -> str:
    """The note about a number of milliseconds that is taken as the nearest one that we take."""
    if (
        flag.form is not Form.MILLISECONDS
        or (taken := _bounded(flag, written.text)) == written.text
    ):
        return ""
    return f"{written.source} is {written.text}: taken as {taken}, as far as {flag.setting} goes"


def _bounded(flag: Flag, text: str) -> str:
    """A number of milliseconds within what our setting takes."""
    bounds = _BOUNDS[flag.setting]
    lowest, highest = (round(1000 * bound) for bound in bounds)
    return f"{min(max(int(text.removesuffix('ms')), lowest), highest)}ms"


def _layer(flags: _WrittenFlags, is_there: Callable[[Path], bool]) -> Layer:
    """The flags that set something; a file that only dcgm-exporter's image has is replaced."""
    layer: dict[str, WrittenValue] = {}
    for flag, written in flags:
        file = Path(written.text)
        if flag.setting == "counters" and file in _BUILT_IN and not is_there(file):
            if (instead := _BUILT_IN[file]) is not None:
                layer[flag.setting] = replace(written, text=str(instead))
        elif flag.form is Form.MILLISECONDS:
            layer[flag.setting] = replace(written, text=_bounded(flag, written.text))
        elif flag.setting:
            layer[flag.setting] = written
    return layer


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = [flag.variable for flag in FLAGS]
    return [
        f"{name} does nothing: it is no variable of dcgm-exporter{did_you_mean(name, known)}"
        for name in environ
        if name.startswith("DCGM_EXPORTER_") and name not in known and not is_service_link(name)
    ]
