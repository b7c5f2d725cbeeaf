# SPDX-License-Identifier: Apache-2.0
"""Records of a counters file as dcgm-exporter reads them: CSV of Go's package encoding/csv. Pure.

Lines that begin with ``#`` and empty ones are passed over. A quote stands at the first character of
a field or nowhere; a quoted field may go over several lines. Where dcgm-exporter ends, the record's
first line is faulty here, and reading goes on with the line after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST_RECORD_BYTES: Final = 4096

_QUOTE: Final = b'"'
_COMMA: Final = b","
BARE_QUOTE: Final = (
    "a quote within a field, at which dcgm-exporter ends: put it right behind the comma, without a"
    " blank, or double it within quotes"
)
OPEN_QUOTE: Final = "a quote that no other closes, at which dcgm-exporter ends: close it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRecord:
    """Record of a CSV file, or a fault."""

    line: int
    """Its first line, from 1."""
    fields: tuple[bytes, ...] = ()
    fault: str = ""
    """Why the line is no record; empty where it is one."""


def records(content: bytes, most_lines: int) -> Iterator[CsvRecord]:
    """The records that begin in the first ``most_lines`` lines, in order."""
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    index = 0
    while index < min(len(lines), most_lines):
        if not lines[index] or lines[index].startswith(b"#"):
            index += 1
            continue
        first = index + 1
        try:
            fields, index = _record(lines, index)
        except _Fault as fault:
            yield CsvRecord(line=first, fault=str(fault))
            index = first
        else:
            yield CsvRecord(line=first, fields=fields)


class _Fault(ValueError):
    """A line that is no record; its text is the reason."""


def _record(lines: list[bytes], index: int) -> tuple[tuple[bytes, ...], int]:
    """The fields of the record that begins at a line, and the line after it. Raises _Fault."""
    fields: list[bytes] = []
    rest = lines[index]
    _check_size(len(rest))
    while True:
        if not rest.startswith(_QUOTE):
            field, comma, rest = rest.partition(_COMMA)
            if _QUOTE in field:
                raise _Fault(BARE_QUOTE)
        else:
            field, rest, index = _quoted(lines, rest[1:], index)
            comma = rest[:1]
            if comma not in (b"", _COMMA):
                raise _Fault(BARE_QUOTE)
            rest = rest[1:]
        fields.append(field)
        if not comma:
            return tuple(fields), index + 1


def _quoted(lines: list[bytes], rest: bytes, index: int) -> tuple[bytes, bytes, int]:
    """The text up to the closing quote, what follows it on its line, and that line."""
    field = b""
    while True:
        part, quote, rest = rest.partition(_QUOTE)
        field += part
        if quote and rest.startswith(_QUOTE):
            field, rest = field + _QUOTE, rest[1:]
        elif quote:
            return field, rest, index
        else:
            index += 1
            if index == len(lines):
                raise _Fault(OPEN_QUOTE)
            field, rest = field + b"\n", lines[index]
            _check_size(len(field) + len(rest))


def _check_size(size: int) -> None:
    if size > MOST_RECORD_BYTES:
        raise _Fault(f"{size} bytes are too long for a line: {MOST_RECORD_BYTES} are allowed")
