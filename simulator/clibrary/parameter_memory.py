# SPDX-License-Identifier: Apache-2.0
"""How much C memory stands behind each parameter of an entry point.

It follows from the kinds in the table of entry points. The library measures the caller's memory
by it, and the server measures what it got once more: it believes no length that it did not
compute itself.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import pynvml

from discovery.nvml_abi.argument_kinds import (
    ArgumentKind,
    CountedArray,
    In,
    InOut,
    InStruct,
    InText,
    Out,
    OutList,
    OutText,
)
from discovery.nvml_abi.c_values import CType
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.gpm_metrics_argument import GpmQuestion

MOST_BYTES: Final = 1 << 20
"""Largest memory behind one pointer; a caller that claims more is refused."""
MOST_GIVEN: Final = 1024
"""Items of a list for which the caller promises enough room."""

_NUMBER: Final = ctypes.sizeof(ctypes.c_uint)


class MemoryShape(IntEnum):
    """How the memory behind a parameter is measured."""

    VALUE = 0
    """There is none: the parameter is the value."""
    TEXT = 1
    """Text up to its terminating zero."""
    FIXED = 2
    SIZED = 3
    """Items; another parameter is their number."""
    COUNTED = 4
    """Items; another parameter leads to their number."""
    GIVEN = 5
    """Nothing goes in; as much comes out as the call gives."""
    VERSIONED = 6
    """Sized by the number at its start; 4 bytes where that is none of the known ones."""
    TAILED = 7
    """A head, and behind it as many items as a number in it says; the head alone above the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A C parameter and the memory that it leads to."""

    ctype: CType = ctypes.c_void_p
    shape: MemoryShape = MemoryShape.VALUE
    size: int = 0
    """Bytes; of one item where there may be several."""
    counter: int | None = None
    """Place of the parameter that counts the items; None where there is one."""
    max_items: int = 0
    """Items that a TAILED one may have."""
    count_offset: int = 0
    """Offset of a TAILED one's number of items."""
    head: int = 0
    """Bytes before a TAILED one's first item."""
    versions: Mapping[int, int] = field(default_factory=dict)
    """Number at the start of a VERSIONED one to its bytes."""


def parameters(entry: EntryPoint) -> tuple[Parameter, ...]:
    """The C parameters of an entry point, in order. Raises TypeError for an unknown kind."""
    collected: list[Parameter] = []
    for kind in entry.kinds:
        collected += _of_kind(kind, len(collected))
    return tuple(collected)


def length(
    parameter: Parameter, content: bytes, words: Sequence[int], memory: Sequence[bytes | None]
) -> int:
    """Bytes that a caller has to send for a pointer that is not NULL and of which ``content`` came.

    ``words`` and ``memory`` are what came for all parameters. Raises ValueError where that is too
    little to say.
    """
    match parameter.shape:
        case MemoryShape.TEXT:
            return len(content)
        case MemoryShape.FIXED:
            return parameter.size
        case MemoryShape.SIZED:
            return parameter.size * (words[parameter.counter or 0] & 0xFFFFFFFF)
        case MemoryShape.COUNTED:
            counter = memory[parameter.counter or 0]
            return 0 if counter is None else parameter.size * _number(counter, 0)
        case MemoryShape.VERSIONED:
            return parameter.versions.get(_number(content, 0), _NUMBER)
        case MemoryShape.TAILED:
            count = _number(content, parameter.count_offset)
            return parameter.head + (parameter.size * count if count <= parameter.max_items else 0)
        case _:
            return 0


def _of_kind(kind: ArgumentKind, place: int) -> Iterator[Parameter]:
    """Parameters of a kind whose first one is the entry point's ``place``-th."""
    match kind:
        case In(ctype=ctype):
            yield Parameter(ctype=ctype)
        case InText():
            yield Parameter(shape=MemoryShape.TEXT)
        case InStruct(ctype=ctype) | Out(ctype=ctype):
            yield Parameter(shape=MemoryShape.FIXED, size=ctypes.sizeof(ctype))
        case OutText(parameters=(_, number)):
            yield Parameter(shape=MemoryShape.SIZED, size=1, counter=place + 1)
            yield Parameter(ctype=number)
        case CountedArray(parameters=(number, _)):
            yield Parameter(ctype=number)
            yield Parameter(shape=MemoryShape.SIZED, size=ctypes.sizeof(kind.item()), counter=place)
        case OutList():
            yield from _of_list(kind, place)
        case InOut(versions=versions):
            sizes = {number: ctypes.sizeof(known) for number, known in (versions or {}).items()}
            yield Parameter(shape=MemoryShape.VERSIONED, versions=sizes)
        case GpmQuestion():
            question, metric = pynvml.c_nvmlGpmMetricsGet_t, pynvml.c_nvmlGpmMetric_t
            yield Parameter(
                shape=MemoryShape.TAILED,
                size=ctypes.sizeof(metric),
                max_items=pynvml.NVML_GPM_METRIC_MAX,
                count_offset=question.numMetrics.offset,
                head=question.metrics.offset,
            )
        case _:
            raise TypeError(f"nothing is known of the C memory of {kind!r}")


def _of_list(kind: OutList, place: int) -> Iterator[Parameter]:
    counter_place = place + (len(kind.columns) if kind.array_first else 0)
    shape = MemoryShape.COUNTED if kind.counted else MemoryShape.GIVEN
    counter = Parameter(shape=MemoryShape.FIXED, size=_NUMBER)
    arrays = [
        Parameter(shape=shape, size=ctypes.sizeof(column), counter=counter_place)
        for column in kind.columns
    ]
    yield from (*arrays, counter) if kind.array_first else (counter, *arrays)


def _number(content: bytes, offset: int) -> int:
    if len(content) < offset + _NUMBER:
        raise ValueError(f"no number at {offset} in {len(content)} bytes")
    return int.from_bytes(content[offset : offset + _NUMBER], sys.byteorder)
