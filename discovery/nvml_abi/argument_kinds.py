# SPDX-License-Identifier: Apache-2.0
"""The kinds of arguments that NVML's entry points take; each knows how to read and write itself.

A kind covers one C parameter or a fixed group of them, such as a buffer and its
length. It decodes what the caller put in, writes results, reads results back
(for recordings) and spoils them (for faults), so no entry point needs code of its own.
It also names the C types of its parameters, so that the table holds all of a C prototype.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pynvml

from discovery.nvml_abi.c_values import (
    HANDLES,
    CType,
    Garbage,
    HandleBook,
    Value,
    load_value,
    spoil_text,
    spoil_value,
    store_text,
    store_value,
)

Arguments = Sequence[object]
"""Arguments that the caller passed for one kind, as ctypes would get them."""

SUCCESS = 0


class Nvml(Exception):
    """The entry point ends with this return code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """Base: one C parameter through which nothing goes in and nothing comes out."""

    name: str
    identity: bool | tuple[str, ...] = field(default=False, kw_only=True)
    """It, or these fields of it, identify one device among all others in the world."""
    takes: ClassVar[bool] = False
    """The caller gives something through it."""
    gives: ClassVar[bool] = False
    """The caller gets something through it."""

    @property
    def parameters(self) -> tuple[CType, ...]:
        """The C types of the parameters it covers; a reference to anything is ``c_void_p``."""
        return (ctypes.c_void_p,)

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """Input of the caller. Raises Nvml for what NVML refuses."""
        raise NotImplementedError

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Put a result where the caller wants it; gives the return code that follows from it."""
        raise NotImplementedError

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """The result that stands where the caller wanted it."""
        raise NotImplementedError

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Make the result senseless."""
        raise NotImplementedError

    def restore(self, args: Arguments, given: Value) -> None:
        """Put back what says how to read the result, where a driver has overwritten it."""


@dataclass(frozen=True, slots=True)
class In(ArgumentKind):
    """A number or a handle, by value."""

    ctype: CType = ctypes.c_uint
    takes: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[CType, ...]:
        """The value itself."""
        return (self.ctype,)

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """The number, or what the handle stands for; NULL and unknown handles are refused.

        Raises ctypes.ArgumentError for what is not a number, as ctypes does before
        it would call C.
        """
        if self.ctype in HANDLES:
            return _known(args[0], book)
        return self.ctype(_number(args[0])).value


@dataclass(frozen=True, slots=True)
class InText(ArgumentKind):
    """A text."""

    takes: ClassVar[bool] = True

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """The text; NULL is refused."""
        del book
        raw = getattr(args[0], "value", args[0])
        if not isinstance(raw, bytes):
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return raw.decode("latin-1")


@dataclass(frozen=True, slots=True)
class InStruct(ArgumentKind):
    """A struct, by reference."""

    ctype: CType = None
    takes: ClassVar[bool] = True

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """Fields of the struct; NULL is refused."""
        return load_value(self.ctype, address_of(args[0]), book)


@dataclass(frozen=True, slots=True)
class Out(ArgumentKind):
    """A number, handle or struct, by reference."""

    ctype: CType = ctypes.c_uint
    gives: ClassVar[bool] = True

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store it; NULL is refused."""
        store_value(self.ctype, address_of(args[0]), value, book)
        return SUCCESS

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """The stored result."""
        return load_value(self.ctype, address_of(args[0]), book)

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Spoil all of it but handles."""
        spoil_value(self.ctype, address_of(args[0]), garbage)


@dataclass(frozen=True, slots=True)
class OutText(ArgumentKind):
    """A buffer for a text, then the buffer's length."""

    gives: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[CType, ...]:
        """Buffer and length."""
        return (ctypes.c_void_p, ctypes.c_uint)

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store it; INSUFFICIENT_SIZE where the buffer is too short."""
        del book
        try:
            store_text(address_of(args[0]), _number(args[1]), value)
        except ValueError:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        return SUCCESS

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """The text up to its terminating zero."""
        return load_value(ctypes.c_char * _number(args[1]), address_of(args[0]), book)

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Spoil the text within its buffer."""
        spoil_text(address_of(args[0]), _number(args[1]), garbage)


@dataclass(frozen=True, slots=True)
class CountedArray(ArgumentKind):
    """Base: the number of items there is room for, then the array that holds the result."""

    takes: ClassVar[bool] = True
    gives: ClassVar[bool] = True

    def item(self) -> CType:
        """The C type of one item."""
        raise NotImplementedError

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """All items, each with all its fields."""
        return load_value(self._array(args), address_of(args[1]), book)

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Spoil every item, but not the fields that say how to read it."""
        spoil_value(self._array(args), address_of(args[1]), garbage)

    def _array(self, args: Arguments) -> CType:
        return self.item() * _number(args[0])


@dataclass(frozen=True, slots=True)
class OutWords(CountedArray):
    """Room in 64-bit words, then the array for a bit set: the lowest word first."""

    @property
    def parameters(self) -> tuple[CType, ...]:
        """Room and array."""
        return (ctypes.c_uint, ctypes.c_void_p)

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """The room in words."""
        del book
        return _number(args[0])

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store the words, filled up with zeros; what there is no room for is left out."""
        words = [*value, *[0] * _number(args[0])]
        store_value(self._array(args), address_of(args[1]), words[: _number(args[0])], book)
        return SUCCESS

    def item(self) -> CType:
        """C type of one word."""
        return ctypes.c_uint64


@dataclass(frozen=True, slots=True)
class OutList(ArgumentKind):
    """A counter by reference and an array, NULL where only the count is wanted.

    With several columns there are as many arrays, and each item is a list with one
    value of each. ``array_first``: the array stands before the counter. ``counted``:
    the counter says on entry how many items there is room for; else the caller
    promises enough. ``size_code``: what asking for the count of a list with items
    returns; without items it is SUCCESS.
    """

    columns: tuple[CType, ...] = ()
    array_first: bool = False
    counted: bool = True
    size_code: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    gives: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[CType, ...]:
        """Counter and arrays, all by reference."""
        return (ctypes.c_void_p,) * (1 + len(self.columns))

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store count and items; INSUFFICIENT_SIZE and the count alone where they do not fit."""
        count, arrays = self._parts(args)
        room, count.value = count.value, len(value)
        if arrays[0] is None:
            return self.size_code if value else SUCCESS
        if self.counted and room < len(value):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        rows = value if len(self.columns) > 1 else [[item] for item in value]
        for number, (ctype, array) in enumerate(zip(self.columns, arrays, strict=True)):
            store_value(ctype * len(rows), address_of(array), [row[number] for row in rows], book)
        return SUCCESS

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """The items; None for each where only the count was requested."""
        count, arrays = self._parts(args)
        if arrays[0] is None:
            return [None] * count.value
        columns = [
            load_value(ctype * count.value, address_of(array), book)
            for ctype, array in zip(self.columns, arrays, strict=True)
        ]
        return [list(row) for row in zip(*columns, strict=True)] if len(columns) > 1 else columns[0]

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Spoil the items; a wrong count would have the caller read memory that is not there."""
        count, arrays = self._parts(args)
        for ctype, array in zip(self.columns, arrays, strict=True):
            if array is not None:
                spoil_value(ctype * count.value, address_of(array), garbage)

    def _parts(self, args: Arguments) -> tuple[ctypes.c_uint, Arguments]:
        count, arrays = (args[-1], args[:-1]) if self.array_first else (args[0], args[1:])
        return ctypes.c_uint.from_address(address_of(count)), arrays


@dataclass(frozen=True, slots=True)
class InOut(ArgumentKind):
    """A struct by reference, whose first field is a version that says how it goes on.

    Answers may name fields of any version; each version takes those it has.
    """

    versions: Mapping[int, CType] | None = None
    """Version number, as callers write it, to the struct."""
    inputs: tuple[str, ...] = ()
    """Fields the caller fills, in addition to the version."""
    takes: ClassVar[bool] = True
    gives: ClassVar[bool] = True

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """Version and inputs. Raises Nvml: ARGUMENT_VERSION_MISMATCH for an unknown version."""
        whole = self.read(args, book)
        return {name: whole[name] for name in ("version", *self.inputs)}

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store the fields this version has, next to what the caller filled in."""
        struct = self._struct(args)
        names = {name for name, *_ in struct._fields_}
        answer = {name: field_value for name, field_value in value.items() if name in names}
        store_value(struct, address_of(args[0]), self.decode(args, book) | answer, book)
        return SUCCESS

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """All fields of this version."""
        return load_value(self._struct(args), address_of(args[0]), book)

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Spoil all fields but the version."""
        spoil_value(self._struct(args), address_of(args[0]), garbage)

    def restore(self, args: Arguments, given: Value) -> None:
        """Put back the version."""
        _version(args).value = given["version"]

    def _struct(self, args: Arguments) -> CType:
        struct = (self.versions or {}).get(_version(args).value)
        if struct is None:
            raise Nvml(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        return struct


@dataclass(frozen=True, slots=True)
class InOutList(CountedArray):
    """The number of items, then an array of structs which the caller fills in part."""

    ctype: CType = None
    inputs: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[CType, ...]:
        """Number and array."""
        return (ctypes.c_int, ctypes.c_void_p)

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """The inputs of each item."""
        return [{name: item[name] for name in self.inputs} for item in self.read(args, book)]

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store one answer for each item, next to its inputs."""
        requests = self.decode(args, book)
        items = [request | answer for request, answer in zip(requests, value, strict=True)]
        store_value(self._array(args), address_of(args[1]), items, book)
        return SUCCESS

    def item(self) -> CType:
        """The struct."""
        return self.ctype


def _version(args: Arguments) -> ctypes.c_uint:
    return ctypes.c_uint.from_address(address_of(args[0]))


def _known(argument: Any, book: HandleBook) -> Value:
    pointer = ctypes.cast(argument, ctypes.c_void_p).value
    try:
        return book.handle(pointer or 0)
    except LookupError as error:
        raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT) from error


def _number(argument: object) -> int:
    number = getattr(argument, "value", argument)
    if not isinstance(number, int):
        raise ctypes.ArgumentError(f"{argument!r} is not a number")
    return number


def address_of(argument: Any) -> int:
    """Address that a reference points to: what byref, pointer, an array or a struct stand for."""
    if argument is None:
        raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if not isinstance(argument, ctypes._Pointer):
        return ctypes.addressof(getattr(argument, "_obj", argument))
    pointer = ctypes.cast(argument, ctypes.c_void_p).value
    if not pointer:
        raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return pointer
