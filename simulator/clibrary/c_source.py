# SPDX-License-Identifier: Apache-2.0
"""The library's C source: constants, parameters and functions around the part that forwards."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pynvml

from discovery.nvml_abi.c_values import HANDLES
from simulator.clibrary.call_format import (
    MOST_CALL_BYTES,
    NONCE_BYTES,
    NOTHING,
    SOCKET_NAME,
    AnswerKind,
)
from simulator.clibrary.exports import Export, exports
from simulator.clibrary.parameter_memory import MOST_BYTES, MemoryShape, Parameter
from simulator.driver.calling_process import CRASH_STATUS
from simulator.driver.simulated_driver import ERROR_TEXTS

_FORWARDING = Path(__file__).with_name("forwarding.c")
_INIT = ("nvmlInit_v2", "nvmlInitWithFlags")
_MOST_TEXTS = 4096
_C_TYPES = {
    ctypes.c_int: "int",
    ctypes.c_uint: "unsigned int",
    ctypes.c_ulonglong: "unsigned long long",
}


@cache
def digest() -> str:
    """Digest of all that a library and its server have to agree on, in hex digits."""
    agreed = repr((_FORWARDING.read_bytes(), exports(), list(AnswerKind)))
    return hashlib.sha256(agreed.encode()).hexdigest()[:32]


@cache
def c_source() -> str:
    """The source, complete."""
    lines = (*_constants(), *_error_texts(), _FORWARDING.read_text("utf-8"), *_functions())
    return "\n".join(lines)


def _constants() -> Iterator[str]:
    numbers = {
        "NONCE_BYTES": NONCE_BYTES,
        "NOTHING": f"{NOTHING}u",
        "MOST_BYTES": MOST_BYTES,
        "MOST_ANSWER_BYTES": 2 * MOST_CALL_BYTES,
        "MOST_TEXTS": _MOST_TEXTS,
        "CRASH_STATUS": CRASH_STATUS,
        **{
            f"ERROR_{name}": getattr(pynvml, f"NVML_ERROR_{name}")
            for name in (
                "UNKNOWN",
                "DRIVER_NOT_LOADED",
                "LIB_RM_VERSION_MISMATCH",
                "INVALID_ARGUMENT",
                "MEMORY",
            )
        },
    }
    yield from (f"#define {name} {number}" for name, number in numbers.items())
    yield f"#define SOCKET_NAME {json.dumps(SOCKET_NAME)}"
    yield f"#define DIGEST {json.dumps(digest())}"
    yield f"enum {{ {', '.join(f'{kind.name} = {kind}' for kind in AnswerKind)} }};"
    yield f"enum {{ {', '.join(f'{shape.name} = {shape}' for shape in MemoryShape)} }};"
    init = [
        f"number == {number}" for number, export in enumerate(exports()) if export.name in _INIT
    ]
    yield f"static int is_init(unsigned int number) {{ return {' || '.join(init)}; }}"


def _error_texts() -> Iterator[str]:
    yield "static const char *known_text(int code) {"
    yield "    switch (code) {"
    for code, text in sorted(ERROR_TEXTS.items()):
        yield f"    case {code}: return {json.dumps(text)};"
    yield f"    default: return {json.dumps(ERROR_TEXTS[pynvml.NVML_ERROR_UNKNOWN])};"
    yield "    }"
    yield "}"


def _functions() -> Iterator[str]:
    for number, export in enumerate(exports()):
        yield from _parameters(number, export)
        yield from _function(number, export)


def _parameters(number: int, export: Export) -> Iterator[str]:
    rows = []
    for place, parameter in enumerate(export.parameters):
        versions = "NULL"
        if parameter.versions:
            versions = f"versions_{number}_{place}"
            pairs = [str(value) for pair in parameter.versions.items() for value in pair]
            yield f"static const uint32_t {versions}[] = {{{', '.join((*pairs, '0'))}}};"
        rows.append(_row(parameter, versions))
    if rows:
        yield f"static const struct parameter parameters_{number}[] = {{{', '.join(rows)}}};"


def _row(parameter: Parameter, versions: str) -> str:
    limit_or_counter = (
        parameter.max_items if parameter.shape == MemoryShape.TAILED else parameter.counter or 0
    )
    row = (
        parameter.shape.name,
        parameter.size,
        limit_or_counter,
        parameter.count_offset,
        parameter.head,
        versions,
    )
    return f"{{{', '.join(map(str, row))}}}"


def _function(number: int, export: Export) -> Iterator[str]:
    count = len(export.parameters)
    names = [f"a{place}" for place in range(count)]
    typed = [
        f"{_c_type(parameter)} {name}"
        for parameter, name in zip(export.parameters, names, strict=True)
    ]
    words = [
        f"(word)(uintptr_t){name}" if _c_type(parameter) == "void *" else _widened(parameter, name)
        for parameter, name in zip(export.parameters, names, strict=True)
    ]
    rows = f"parameters_{number}" if count else "NULL"
    result = "const char *" if export.gives_text else "int "
    yield f"EXPORT {result}{export.name}({', '.join(typed) or 'void'}) {{"
    yield f"    word words[] = {{{', '.join(words) or '0'}}};"
    if export.gives_text:
        yield f"    return forward_text({number}, {rows}, {count}, words);"
    else:
        yield f"    return forward({number}, {rows}, {count}, words, NULL);"
    yield "}"


def _c_type(parameter: Parameter) -> str:
    if parameter.shape != MemoryShape.VALUE or parameter.ctype in HANDLES:
        return "void *"
    return _C_TYPES[parameter.ctype]


def _widened(parameter: Parameter, name: str) -> str:
    """A number without its sign, as many bits as it has."""
    return f"(word){name}" if ctypes.sizeof(parameter.ctype) == 8 else f"(word)(uint32_t){name}"
