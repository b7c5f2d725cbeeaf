"""Reading plans: how each field of a value is read, written in a value of its own type.

The template of a plan is a :class:`discovery.sample.GpuSample`, say, whose fields hold readings
where the value will hold what was read. The functions below that make readings are typed as what
will be read, as :func:`dataclasses.field` is. So a field that does not exist, a reading of another
type and a field without a reading are type errors, and the field's own name is the gap's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from typing import Any, Generic, TypeVar, cast

from discovery.driver_errors import GpuLost
from discovery.model import Reason
from discovery.nvml.calls import Calls, Field, Handle
from discovery.sample import ReadingGroup
from discovery.unread import unread_fields

Value = TypeVar("Value")
Read = TypeVar("Read")

Groups = tuple[ReadingGroup, ...]
"""A reading is made where one of these is selected; always where there are none."""


@dataclass(slots=True, kw_only=True)
class OpenGpu:
    """A GPU that is being read: its handle, and the calls that keep the gaps."""

    bus_id: str
    handle: Handle
    calls: Calls


# What the fields of a template hold


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    groups: Groups
    place: int = dataclass_field(default_factory=itertools.count().__next__)
    """Readings are made in the order in which they are written."""

    @property
    def step(self) -> object:
        """Readings of the same step are made together, where the first of them stands."""
        return self.place

    def read(self, gpu: OpenGpu, together: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values by name, of readings of this step by name."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallReading(_Reading):
    call: str
    args: tuple[int, ...]
    convert: Callable[[Any], Any]

    def read(self, gpu: OpenGpu, together: Mapping[str, Any]) -> Mapping[str, Any]:
        (what,) = together
        return {what: gpu.calls.ask(what, self.call, gpu.handle, *self.args, convert=self.convert)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerPart(_Reading):
    answer: Answer
    convert: Callable[[Any], Any]

    @property
    def step(self) -> object:
        return self.answer

    def read(self, gpu: OpenGpu, together: Mapping[str, Any]) -> Mapping[str, Any]:
        converts = {what: each.convert for what, each in together.items()}
        return gpu.calls.parts(converts, self.answer.call, gpu.handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FieldReading(_Reading):
    field: Field[Any]

    @property
    def step(self) -> object:
        return _FieldReading

    def read(self, gpu: OpenGpu, together: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = [(what, each.field) for what, each in together.items()]
        return dict(zip(together, gpu.calls.fields(asked, gpu.handle), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed(_Reading):
    compute: Callable[[Any, str], Any]

    def read(self, gpu: OpenGpu, together: Mapping[str, Any]) -> Mapping[str, Any]:
        (what,) = together
        return {what: self.compute(gpu, what)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    template: Any
    groups: Groups


# What templates are written with


def by_call(
    call: str, *args: int, convert: Callable[[Any], Read], groups: Groups = ()
) -> Read | None:
    """Read by ``pynvml.<call>(handle, *args)``."""
    return cast("Read | None", _CallReading(call=call, args=args, convert=convert, groups=groups))


def by_field(
    number: int,
    convert: Callable[[Any], Read],
    *,
    scope: int = 0,
    mistyped: str | None = None,
    groups: Groups = (),
) -> Read | None:
    """Read as a field, see :class:`discovery.nvml.calls.Field`; all fields come in one call."""
    asked = Field(number=number, convert=convert, scope=scope, mistyped=mistyped)
    return cast("Read | None", _FieldReading(field=asked, groups=groups))


class Answer:
    """One call, ``pynvml.<call>(handle)``, that answers several fields."""

    def __init__(self, call: str) -> None:
        self.call = call

    def part(self, convert: Callable[[Any], Read], *, groups: Groups = ()) -> Read | None:
        """Read by converting one part of the answer."""
        return cast("Read | None", _AnswerPart(answer=self, convert=convert, groups=groups))


def computed(compute: Callable[[Any, str], Read], *, groups: Groups = ()) -> Read:
    """Read by ``compute(gpu, what)``, whose ``gpu`` is what the plan is read with.

    ``what`` is the name for its gaps.
    """
    return cast("Read", _Computed(compute=compute, groups=groups))


def in_part(template: Value, *, groups: Groups = ()) -> Value | None:
    """A value within the value, None without any reading; ``groups`` count for all its fields."""
    return cast("Value | None", _Part(template=template, groups=groups))


class ReadingPlan(Generic[Value]):
    """Reads a value as its template says; for one thread."""

    def __init__(self, template: Value) -> None:
        self._make = _maker(template)
        self._make_part = {
            name: _maker(held.template)
            for name, held in _held(template).items()
            if isinstance(held, _Part)
        }
        self._readings = sorted(_readings(template), key=lambda it: it.reading.place)
        self._groups: Collection[ReadingGroup] | None = None
        self._steps: Sequence[Mapping[str, _Reading]] = ()

    def read(
        self, gpu: OpenGpu, groups: Collection[ReadingGroup] = ()
    ) -> tuple[Value, GpuLost | None]:
        """The value, and the loss of the GPU if that ended the reading: then the rest is missing.

        What the GPU does not give is a gap; what is not selected leaves none. Raises
        DriverAbsent or DriverMismatch when the whole session is gone.
        """
        found: dict[str, Any] = {}
        try:
            for together in self._asked(groups):
                first = next(iter(together.values()))
                found |= first.read(gpu, together)
        except GpuLost as error:
            gpu.calls.miss("state", Reason.LOST, "nvml", str(error))
            return self._made(found), error
        return self._made(found), None

    def _asked(self, groups: Collection[ReadingGroup]) -> Sequence[Mapping[str, _Reading]]:
        """The steps of these groups, kept for the next time."""
        if groups != self._groups:
            steps: dict[object, dict[str, _Reading]] = {}
            for it in self._readings:
                if not it.groups or not it.groups.isdisjoint(groups):
                    steps.setdefault(it.reading.step, {})[it.what] = it.reading
            self._groups, self._steps = groups, tuple(steps.values())
        return self._steps

    def _made(self, found: Mapping[str, Any]) -> Value:
        plain: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for what, value in found.items():
            if value is not None:
                name, dot, inner = what.partition(".")
                if dot:
                    parts.setdefault(name, {})[inner] = value
                else:
                    plain[name] = value
        made = {name: self._make_part[name](values) for name, values in parts.items()}
        return self._make(plain | made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedReading:
    what: str
    """Name of its gap: the field's, below the part's where it is in one."""
    groups: frozenset[ReadingGroup]
    reading: _Reading


def _readings(
    template: object, above: str = "", groups: frozenset[ReadingGroup] = frozenset()
) -> Iterator[_NamedReading]:
    for name, held in _held(template).items():
        if isinstance(held, _Part):
            yield from _readings(held.template, f"{above}{name}.", groups.union(held.groups))
        elif isinstance(held, _Reading):
            own = groups.union(held.groups)
            yield _NamedReading(what=f"{above}{name}", groups=own, reading=held)


def _held(template: Any) -> dict[str, Any]:
    return {it.name: getattr(template, it.name) for it in fields(template)}


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
