"""Recorded calls: handles as numbers in the order they were first seen, all else as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pynvml

from discovery.model import normal_bus_id
from discovery.simulator.kinds import In, Kind
from discovery.simulator.structs import Value
from discovery.simulator.table import TABLE, Entry


@dataclass(frozen=True, slots=True)
class Token:
    """What a handle is in a recording; 0 is NULL."""

    number: int


class Call(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """One call and its answer, by the names in the table."""

    entry: str
    inputs: dict[str, Any] = {}
    code: int = 0
    outputs: dict[str, Any] = {}
    """Empty unless the code is 0."""

    @property
    def says_less(self) -> bool:
        """It asked how long a list is and did not get its items."""
        if self.code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            return True
        return any(isinstance(one, list) and None in one for one in self.outputs.values())


def call(entry: Entry, inputs: Sequence[Value], code: int, outputs: Sequence[Value]) -> Call:
    """A call as it is recorded."""
    return Call(
        entry=entry.name,
        inputs=_named(entry.inputs, inputs),
        code=code,
        outputs=_named(entry.outputs, outputs) if code == pynvml.NVML_SUCCESS else {},
    )


def key(entry: Entry, inputs: Sequence[Value]) -> bytes:
    """The same for calls that ask the same.

    Event sets are not told apart, since a replay makes its own, and bus ids may be
    spelled in any way.
    """
    taking = (kind for kind in entry.kinds if kind.takes)
    asked = [_canonical(kind, _plain(one)) for kind, one in zip(taking, inputs, strict=True)]
    return msgspec.json.encode([entry.name, *asked])


def unfit(one: Call) -> str | None:
    """Why a call cannot be one of this table's; None where it can."""
    entry = TABLE.get(one.entry)
    if entry is None:
        return f"this version knows no NVML entry point {one.entry!r}: use a newer one"
    outputs = entry.outputs if one.code == pynvml.NVML_SUCCESS else ()
    if (set(one.inputs), set(one.outputs)) != (set(entry.inputs), set(outputs)):
        expected = ", ".join((*entry.inputs, *outputs)) or "nothing"
        return f"{one.entry} goes with {expected}: record anew"
    return None


def _named(names: Sequence[str], values: Sequence[Value]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in zip(names, values, strict=True)}


def _plain(value: Value) -> Value:
    if isinstance(value, Token):
        return value.number
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _canonical(kind: Kind, value: Value) -> Value:
    if isinstance(kind, In) and kind.ctype is pynvml.c_nvmlEventSet_t:
        return None
    if kind.name == "busId":
        try:
            return normal_bus_id(value)
        except ValueError:
            return value
    return value
