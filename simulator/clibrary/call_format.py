# SPDX-License-Identifier: Apache-2.0
"""How a call of a C entry point travels to the process that serves the machine, and back.

Numbers are in the machine's own byte order; both ends run on it. A caller that connects sends
the library's digest and a nonce of its process, and gets one byte: 1, or 0 where the library is
not this server's. Then calls follow each other:

- a call: bytes that follow (u32), number of the function (u32), one word (u64) for each of its
  parameters, then for each parameter that is a pointer the memory it leads to: bytes (u32,
  ``NOTHING`` for NULL) and content;
- an answer: bytes that follow (u32), its kind (u8), and for ``ANSWER`` the return code (i32) and
  the memory of each pointer again, now with the results; behind them the text of a function that
  returns one. Before it may come ``DEAF`` and ``HEARING``, between which the caller ignores
  SIGTERM. Instead of it may come ``EXIT`` or ``KILL`` and a text for standard error, and the
  caller ends so.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from discovery.nvml_abi.c_values import HANDLES
from simulator.clibrary.exports import Export
from simulator.clibrary.parameter_memory import (
    MOST_BYTES,
    MOST_GIVEN,
    MemoryShape,
    Parameter,
    length,
)

SOCKET_NAME: Final = "gpuscape-nvml.sock"
"""Name of the socket in the folder of the library."""
NONCE_BYTES: Final = 16
NOTHING: Final = 0xFFFFFFFF
"""Stands for NULL in place of a number of bytes."""
MOST_CALL_BYTES: Final = 16 * MOST_BYTES

_SIZE: Final = struct.Struct("=I")
_CODE: Final = struct.Struct("=i")


class AnswerKind(IntEnum):
    """Kinds of message that a server sends."""

    ANSWER = 0
    DEAF = 1
    HEARING = 2
    EXIT = 3
    KILL = 4


class Stream(Protocol):
    """Buffered bytes from and to the other end."""

    def read(self, size: int, /) -> bytes:
        """So many bytes; fewer where the other end has gone."""

    def write(self, data: bytes, /) -> int:
        """Send when :meth:`flush` is called."""

    def flush(self) -> None:
        """Raises OSError where the other end has gone."""


class BrokenCall(Exception):
    """The bytes of a call make no sense: no library of ours sent them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as received: copies of the caller's memory, which the results go into."""

    export: Export
    arguments: tuple[object, ...]
    """Arguments as ctypes would get them: numbers, handles, texts, buffers, None for NULL."""


def receive(stream: Stream) -> bytes | None:
    """The next call or answer; None where the other end has gone. Raises BrokenCall."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    if size > MOST_CALL_BYTES:
        raise BrokenCall(f"a call of {size} bytes")
    body = stream.read(size)
    return body if len(body) == size else None


def send(stream: Stream, kind: AnswerKind, body: bytes = b"") -> None:
    """Send an answer. Raises OSError where the caller has gone."""
    stream.write(_SIZE.pack(1 + len(body)) + bytes([kind]) + body)
    stream.flush()


def decode(body: bytes, exports: Sequence[Export]) -> Call:
    """A call from its bytes. Raises BrokenCall."""
    try:
        (number,) = _SIZE.unpack_from(body)
        export = exports[number]
        words = struct.unpack_from(f"={len(export.parameters)}Q", body, _SIZE.size)
        memory = _memory(body, _SIZE.size + 8 * len(words), export.parameters)
        arguments = tuple(
            _argument(*parts, words, memory)
            for parts in zip(export.parameters, words, memory, strict=True)
        )
    except (struct.error, IndexError, ValueError) as error:
        raise BrokenCall(str(error)) from error
    return Call(export=export, arguments=arguments)


def encode(call: Call, result: object) -> bytes:
    """Body of an answer: ``result`` is the return code, a text, or None for NULL."""
    code = result if isinstance(result, int) else 0
    parts = [_CODE.pack(code)]
    for parameter, argument in zip(call.export.parameters, call.arguments, strict=True):
        if parameter.shape != MemoryShape.VALUE:
            parts.append(_piece(_content(parameter, argument, call.arguments, code)))
    if call.export.gives_text:
        parts.append(_piece(result if isinstance(result, bytes) else None))
    return b"".join(parts)


def _memory(body: bytes, offset: int, parameters: Sequence[Parameter]) -> list[bytes | None]:
    """Bytes that came for each parameter; None for values and NULL."""
    contents: list[bytes | None] = []
    for parameter in parameters:
        if parameter.shape == MemoryShape.VALUE:
            contents.append(None)
            continue
        (size,) = _SIZE.unpack_from(body, offset)
        offset += _SIZE.size
        if size == NOTHING:
            contents.append(None)
            continue
        contents.append(body[offset : offset + size])  # fewer are refused where they are measured
        offset += size
    return contents


def _argument(
    parameter: Parameter,
    word: int,
    content: bytes | None,
    words: Sequence[int],
    memory: Sequence[bytes | None],
) -> object:
    """Raises ValueError where the caller sent more or less than stands behind the pointer."""
    if parameter.shape == MemoryShape.VALUE:
        return ctypes.c_void_p(word) if parameter.ctype in HANDLES else word
    if content is None:
        return None
    expected = length(parameter, content, words, memory)
    if len(content) != expected:
        raise ValueError(f"{len(content)} bytes where {expected} belong")
    if parameter.shape == MemoryShape.TEXT:
        return content
    if parameter.shape == MemoryShape.GIVEN:
        return ctypes.create_string_buffer(parameter.size * MOST_GIVEN)
    return (ctypes.c_char * len(content)).from_buffer(bytearray(content))


def _content(
    parameter: Parameter, argument: object, arguments: Sequence[object], code: int
) -> bytes | None:
    """Bytes that the caller gets back for a pointer."""
    if not isinstance(argument, ctypes.Array):
        return None
    if parameter.shape != MemoryShape.GIVEN:
        return bytes(argument)
    if code != 0:
        return b""
    items = 1 if parameter.counter is None else _counted(arguments[parameter.counter])
    return bytes(argument)[: items * parameter.size]


def _counted(counter: object) -> int:
    if not isinstance(counter, ctypes.Array):
        return 0
    return ctypes.c_uint.from_address(ctypes.addressof(counter)).value


def _piece(content: bytes | None) -> bytes:
    return _SIZE.pack(NOTHING) if content is None else _SIZE.pack(len(content)) + content
