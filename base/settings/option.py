# SPDX-License-Identifier: Apache-2.0
"""How one setting is declared, and how people write it: flag, variable, key in the file. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from base.settings import setting_kinds
from base.settings.setting_kinds import SettingKind

Value = TypeVar("Value")

_METADATA: Final = "setting"
_UNITS: Final = ("_seconds", "_ratio", "_mebibytes")


def setting(
    default: Value,
    kind: SettingKind[Value],
    help: str,  # noqa: A002  # the word that click uses too
    *,
    subject: str = "",
    unset: str = "",
    variables: tuple[str, ...] = (),
    name: str = "",
) -> Value:
    """Declare one setting: the default value of its field in a dataclass.

    ``help`` is one sentence or more, for help texts and the configuration page. ``subject`` is a
    heading in help texts, from this setting to the next one that has a subject. ``unset`` says
    what applies when nobody sets it and the default is None or empty. ``variables`` of other
    origin, such as ``POD_NAME``, are read after our own. ``name`` is what people write, where that
    is not the field's name.
    """
    spec = SettingSpec(
        kind=kind, help=help, subject=subject, unset=unset, variables=variables, name=name
    )
    field: Any = dataclasses.field(default=default, metadata={_METADATA: spec})
    return field  # type: ignore[no-any-return]  # dataclass takes the default out of it


def fixed(value: Value) -> Value:
    """Declare a field of settings that nobody sets, and that a test may replace."""
    field: Any = dataclasses.field(default=value, metadata={_METADATA: None})
    return field  # type: ignore[no-any-return]  # dataclass takes the default out of it


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """Declaration of one setting, as :func:`setting` describes it."""

    kind: SettingKind[object]
    help: str
    subject: str
    unset: str
    variables: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting as people write it: flag, variable and key of the file."""

    field: str
    """Field of the settings' class."""
    default: object
    spec: SettingSpec
    subject: str
    """Heading in help texts."""

    @property
    def name(self) -> str:
        """Key in the file and, after two dashes, the flag: the field without its unit."""
        word = self.spec.name or self.field
        for unit in _UNITS:
            word = word.removesuffix(unit)
        return word.replace("_", "-")

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables of this setting; the first one that is not empty wins."""
        return (variable(self.name), *self.spec.variables)

    @property
    def has_default(self) -> bool:
        """A value applies when nobody sets it."""
        return self.default not in (None, ())

    @property
    def default_text(self) -> str:
        """The default as one would write it, else what applies when nobody sets it, else empty."""
        return self.spec.kind.show(self.default) if self.has_default else self.spec.unset

    @property
    def is_flag(self) -> bool:
        """On the command line it is ``--name`` or ``--no-name``, without a value."""
        return self.spec.kind is setting_kinds.FLAG


def variable(name: str) -> str:
    """The environment variable of a setting: ``log-level`` gives ``GPUSCAPE_LOG_LEVEL``."""
    return f"GPUSCAPE_{name.upper().replace('-', '_')}"


def declared_options(settings: type) -> tuple[Option, ...]:
    """The options of a dataclass of settings, in the order of its fields.

    Raises TypeError for a field that is not declared by :func:`setting`: a mistake in the program.
    """
    options, subject = list[Option](), ""
    for field in dataclasses.fields(settings):
        spec = field.metadata.get(_METADATA, field)
        if spec is None:
            continue
        if not isinstance(spec, SettingSpec):
            raise TypeError(f"{settings.__name__}.{field.name} is not declared by setting()")
        subject = spec.subject or subject
        options.append(Option(field=field.name, default=field.default, spec=spec, subject=subject))
    return tuple(options)
