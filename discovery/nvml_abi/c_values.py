# SPDX-License-Identifier: Apache-2.0
"""C memory as plain values: numbers, texts, handles, structs as dicts, arrays as lists.

Texts stand for their bytes one to one (Latin-1), so that what is not UTF-8 survives. A
union is the unsigned number in its 8 bytes, whichever member the reader will use.
Handles are opaque pointers in C; a :class:`HandleBook` knows what each stands for.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, Protocol

import pynvml

Value = Any
"""An int, float, str, handle, list of values or dict of field name to value."""

CType = Any
"""A ctypes type."""

HANDLES: frozenset[CType] = frozenset(
    {
        pynvml.c_nvmlDevice_t,
        pynvml.c_nvmlGpuInstance_t,
        pynvml.c_nvmlComputeInstance_t,
        pynvml.c_nvmlEventSet_t,
        pynvml.c_nvmlGpmSample_t,
    }
)
"""Pointer types that are opaque handles."""

Garbage = Literal["max", "nan", "not-utf8", "unterminated"]
"""Numbers with every bit set; doubles that are no number; bad bytes; texts without an end."""

_TAGS = frozenset({"version", "fieldId", "scopeId", "nvmlReturn"})
"""Fields that say how to read a struct: garbage leaves them, else it would only be an error."""

_DOUBLE_VALUE_TYPE = 0  # NVML_VALUE_TYPE_DOUBLE


class HandleBook(Protocol):
    """Handles that opaque pointers stand for."""

    def pointer(self, handle: Hashable) -> int:
        """The number a handle has in C."""

    def handle(self, pointer: int) -> Hashable:
        """The handle of a number. Raises LookupError where there is none."""


def load_value(ctype: CType, address: int, book: HandleBook) -> Value:
    """The value in memory. Raises LookupError for an unknown handle."""
    match _shape(ctype):
        case "number":
            return ctype.from_address(address).value
        case "handle":
            return book.handle(ctypes.c_void_p.from_address(address).value or 0)
        case "union":
            return ctypes.c_uint64.from_address(address).value
        case "struct":
            return {
                name: load_value(kind, field_address, book)
                for name, kind, field_address in struct_fields(ctype, address)
            }
        case "text":
            raw = ctypes.string_at(address, ctype._length_)
            return raw.split(b"\0", 1)[0].decode("latin-1")
        case "array":
            return [
                load_value(ctype._type_, item_address, book)
                for item_address in _items(ctype, address)
            ]


def store_value(ctype: CType, address: int, value: Value, book: HandleBook) -> None:
    """Write the value into memory; struct fields that a dict leaves out become zero.

    Raises ValueError for a text, list or dict that does not fit.
    """
    match _shape(ctype):
        case "number":
            ctype.from_address(address).value = value
        case "handle":
            ctypes.c_void_p.from_address(address).value = book.pointer(value)
        case "union":
            ctypes.c_uint64.from_address(address).value = value
        case "struct":
            _store_struct(ctype, address, value, book)
        case "text":
            store_text(address, ctype._length_, value)
        case "array":
            _store_array(ctype, address, value, book)


@cache
def _shape(ctype: CType) -> Literal["number", "handle", "union", "struct", "text", "array"]:
    """Shape of a type; needed for each field of each call, hence cached."""
    if ctype in HANDLES:
        return "handle"
    if issubclass(ctype, ctypes.Union):
        return "union"
    if issubclass(ctype, ctypes.Structure):
        return "struct"
    if issubclass(ctype, ctypes.Array):
        return "text" if ctype._type_ is ctypes.c_char else "array"
    return "number"


def store_text(address: int, room: int, text: str) -> None:
    """Write a text with its terminating zero. Raises ValueError where the room is too small."""
    raw = text.encode("latin-1") + b"\0"
    if len(raw) > room:
        raise ValueError(f"{len(raw)} bytes do not fit into {room}")
    ctypes.memmove(address, raw, len(raw))


def struct_fields(struct: CType, address: int) -> Iterator[tuple[str, CType, int]]:
    """Name, type and address of each field.

    By address, because pynvml's structs decode texts on attribute access and raise
    on bytes that are not UTF-8.
    """
    return ((name, kind, address + offset) for name, kind, offset in _layout(struct))


@cache
def _layout(struct: CType) -> tuple[tuple[str, CType, int], ...]:
    """Name, type and offset of each field."""
    return tuple((name, kind, getattr(struct, name).offset) for name, kind, *_ in struct._fields_)


def spoil_value(ctype: CType, address: int, garbage: Garbage) -> None:
    """Make what stands in memory senseless, leaving handles and tags as they are."""
    match _shape(ctype):
        case "number":
            _spoil_number(ctype, address, garbage)
        case "handle":
            pass
        case "union":
            _spoil_union(address, garbage)
        case "struct":
            _spoil_struct(ctype, address, garbage)
        case "text":
            spoil_text(address, ctype._length_, garbage)
        case "array":
            for item_address in _items(ctype, address):
                spoil_value(ctype._type_, item_address, garbage)


def spoil_text(address: int, room: int, garbage: Garbage) -> None:
    """Make a text no UTF-8, or let it fill its room without an end."""
    if garbage == "not-utf8":
        ctypes.memmove(address, b"\xff\xfe\x80\0", min(4, room))
    elif garbage == "unterminated":
        ctypes.memset(address, ord("A"), room)


def _spoil_number(ctype: CType, address: int, garbage: Garbage) -> None:
    if issubclass(ctype, (ctypes.c_double, ctypes.c_float)):
        if garbage in ("max", "nan"):
            ctype.from_address(address).value = math.nan
    elif garbage == "max":
        ctypes.memset(address, 0xFF, ctypes.sizeof(ctype))


def _spoil_struct(struct: CType, address: int, garbage: Garbage) -> None:
    for name, kind, field_address in struct_fields(struct, address):
        if name == "valueType":
            if garbage == "nan":  # the union next to it is to be read as a double
                kind.from_address(field_address).value = _DOUBLE_VALUE_TYPE
        elif name not in _TAGS:
            spoil_value(kind, field_address, garbage)


def _spoil_union(address: int, garbage: Garbage) -> None:
    if garbage == "nan":
        ctypes.c_double.from_address(address).value = math.nan
    elif garbage == "max":
        ctypes.memset(address, 0xFF, 8)


def _store_struct(
    struct: CType, address: int, value: Mapping[str, Value], book: HandleBook
) -> None:
    known = {
        name: (kind, field_address) for name, kind, field_address in struct_fields(struct, address)
    }
    ctypes.memset(address, 0, ctypes.sizeof(struct))
    for name, field_value in value.items():
        kind, field_address = known[name]
        store_value(kind, field_address, field_value, book)


def _store_array(array: CType, address: int, value: Value, book: HandleBook) -> None:
    if len(value) > array._length_:
        raise ValueError(f"{len(value)} items do not fit into {array._length_}")
    for item_address, item_value in zip(_items(array, address), value, strict=False):
        store_value(array._type_, item_address, item_value, book)


def _items(array: CType, address: int) -> Iterator[int]:
    size = ctypes.sizeof(array._type_)
    return (address + index * size for index in range(array._length_))
