# SPDX-License-Identifier: Apache-2.0
"""Reading plans: how each field of a value is read, written in a value of its own type.

The template of a plan is a :class:`discovery.sample.GpuSample`, say, whose fields hold readings
where the value will hold what was read. The functions below that make readings are typed as what
will be read, as :func:`dataclasses.field` is. So a field that does not exist, a reading of another
type and a field without a reading are type errors, and the field's own name is the gap's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from discovery.driver_errors import GpuLost
from discovery.model import Reason
from discovery.nvml.calls import Calls, Field, Handle
from discovery.unread import unread_fields

Value = TypeVar("Value")
Read = TypeVar("Read")

Groups = tuple[StrEnum, ...]
"""A reading is made where one of these is selected; always where there are none."""


@dataclass(slots=True, kw_only=True, eq=False)
class OpenGpu:
    """A GPU that is being read: its handle, and the calls that keep the gaps."""

    bus_id: str
    handle: Handle
    calls: Calls


# What the fields of a template hold

_Source = Callable[[OpenGpu, Mapping[str, Any]], Mapping[str, Any]]
"""Reads all fields that have this source at once: names and details to names and values."""

_PLACES = itertools.count()


class _Reading:
    """How a field is read. Readings are made in the order in which they are written; those of one
    source are made together, where the first of them stands."""

    __slots__ = ("detail", "groups", "place", "source")

    def __init__(self, source: _Source, detail: object, groups: Groups) -> None:
        self.source = source
        self.detail = detail
        self.groups = groups
        self.place = next(_PLACES)


class _OneCall:
    """Source of one field: a call and its answer."""

    __slots__ = ("args", "call", "convert")

    def __init__(self, call: str, args: tuple[int, ...], convert: Callable[[Any], Any]) -> None:
        self.call = call
        self.args = args
        self.convert = convert

    def __call__(self, gpu: OpenGpu, details: Mapping[str, Any]) -> Mapping[str, Any]:
        (name,) = details
        ask = gpu.calls.ask
        return {name: ask(name, self.call, gpu.handle, *self.args, convert=self.convert)}


class _Part:
    """A value within the value: missing without any reading, or always there.

    The gaps of a part that is always there have the names of its fields alone.
    """

    __slots__ = ("always", "groups", "template")

    def __init__(self, template: object, groups: Groups, *, always: bool) -> None:
        self.template = template
        self.groups = groups
        self.always = always


# What templates are written with


def computed(compute: Callable[[Any, str], Read], *, groups: Groups = ()) -> Read:
    """Read by ``compute(gpu, name)``, whose ``gpu`` is what the plan is read with.

    ``name`` is the one for its gaps.
    """

    def source(gpu: OpenGpu, details: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: compute(gpu, name) for name in details}

    return cast("Read", _Reading(source, None, groups))


def by_call(
    call: str, *args: int, convert: Callable[[Any], Read], groups: Groups = ()
) -> Read | None:
    """Read by ``pynvml.<call>(handle, *args)``."""
    return cast("Read | None", _Reading(_OneCall(call, args, convert), None, groups))


def by_field(
    number: int,
    convert: Callable[[Any], Read],
    *,
    scope: int = 0,
    mistyped: str | None = None,
    wide: bool = False,
    groups: Groups = (),
) -> Read | None:
    """Read as a field, see :class:`discovery.nvml.calls.Field`; all fields come in one call."""
    field = Field(number=number, convert=convert, scope=scope, mistyped=mistyped, wide=wide)
    return cast("Read | None", _Reading(_read_fields, field, groups))


def _read_fields(gpu: OpenGpu, fields: Mapping[str, Field[Any]]) -> Mapping[str, Any]:
    return dict(zip(fields, gpu.calls.fields(tuple(fields.items()), gpu.handle), strict=True))


class SharedCall:
    """A call, ``pynvml.<call>(handle)``, that answers several fields."""

    def __init__(self, call: str) -> None:
        self._call = call

    def part(self, convert: Callable[[Any], Read], *, groups: Groups = ()) -> Read | None:
        """Read by converting one part of the answer."""
        return cast("Read | None", _Reading(self._read, convert, groups))

    def _read(self, gpu: OpenGpu, converts: Mapping[str, Any]) -> Mapping[str, Any]:
        return gpu.calls.parts(converts, self._call, gpu.handle)


def in_part(template: Value, *, groups: Groups = ()) -> Value | None:
    """A value within the value, None without any reading; ``groups`` count for all its fields."""
    return cast("Value | None", _Part(template, groups, always=False))


def always_part(template: Value) -> Value:
    """A value within the value that is there without any reading, too.

    The names of its fields differ from those of the value around it: gaps have them alone.
    """
    return cast("Value", _Part(template, (), always=True))


class ReadingPlan(Generic[Value]):
    """Reads a value as its template says; for one thread."""

    def __init__(self, template: Value) -> None:
        self._make = _maker(template)
        parts = {name: held for name, held in _held(template).items() if isinstance(held, _Part)}
        self._make_part = {name: _maker(part.template) for name, part in parts.items()}
        self._always = {
            field: name
            for name, part in parts.items()
            if part.always
            for field in _held(part.template)
        }
        """Field of a part that is always there to that part's name."""
        self._readings = sorted(_readings(template), key=lambda named: named[1].place)
        self._groups: Collection[StrEnum] | None = None
        self._steps: Mapping[_Source, Mapping[str, Any]] = {}

    def read(self, gpu: OpenGpu, groups: Collection[StrEnum] = ()) -> tuple[Value, GpuLost | None]:
        """The value, and the loss of the GPU if that ended the reading: then the rest is missing.

        What the GPU does not give is a gap; what is not selected leaves none. Raises
        DriverAbsent or DriverMismatch when the whole session is gone.
        """
        values: dict[str, Any] = {}
        try:
            for source, details in self._selected(groups).items():
                values |= source(gpu, details)
        except GpuLost as error:
            gpu.calls.miss("state", Reason.LOST, "nvml", str(error))
            return self._assembled(values), error
        return self._assembled(values), None

    def names(self, groups: Collection[StrEnum]) -> frozenset[str]:
        """Names of the fields that are read where one of these is selected, and only there."""
        return frozenset(
            name for name, _, users in self._readings if any(group in groups for group in users)
        )

    def _selected(self, groups: Collection[StrEnum]) -> Mapping[_Source, Mapping[str, Any]]:
        """Sources in their order, with names and details; kept for the next time."""
        if groups != self._groups:
            steps: dict[_Source, dict[str, Any]] = {}
            for name, reading, users in self._readings:
                if not users or any(group in groups for group in users):
                    steps.setdefault(reading.source, {})[name] = reading.detail
            self._groups, self._steps = groups, steps
        return self._steps

    def _assembled(self, read: Mapping[str, Any]) -> Value:
        plain: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {name: {} for name in self._always.values()}
        for path, value in read.items():
            if value is not None:
                name, dot, inner = path.partition(".")
                if name in self._always:
                    parts[self._always[name]][name] = value
                elif dot:
                    parts.setdefault(name, {})[inner] = value
                else:
                    plain[name] = value
        nested = {name: self._make_part[name](values) for name, values in parts.items()}
        return self._make(plain | nested)


def _readings(
    template: object, above: str = "", groups: Groups = ()
) -> Iterator[tuple[str, _Reading, Groups]]:
    """Names of the gaps, readings, and the groups of each and of the part it is in."""
    for name, held in _held(template).items():
        if isinstance(held, _Part):
            prefix = above if held.always else f"{above}{name}."
            yield from _readings(held.template, prefix, groups + held.groups)
        elif isinstance(held, _Reading):
            yield f"{above}{name}", held, groups + held.groups


def _held(template: Any) -> dict[str, Any]:
    return {field.name: getattr(template, field.name) for field in fields(template)}


def _maker(template: Value) -> Callable[[Mapping[str, Any]], Value]:
    """Makes values like the template: what was not read is missing, what is no reading stays."""
    kind = type(template)
    constant = {
        name: held
        for name, held in _held(template).items()
        if not isinstance(held, _Reading | _Part)
    }
    blank = unread_fields(kind) | constant
    return lambda values: kind(**{**blank, **values})
