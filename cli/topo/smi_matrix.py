# SPDX-License-Identifier: Apache-2.0
"""The text of ``nvidia-smi topo -m`` as people paste it: wrapped, quoted, cut, with lost tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from base.errors import BadInput
from base.words import quoted

_STYLE = re.compile(r"\x1b?\[[0-9;]*m")
_MARGIN = re.compile(r"^[\s>|]*|[\s|]*$")
_DEVICE = re.compile(r"(?:GPU|NIC)\d+|[a-z][a-zA-Z0-9]*(?:_[a-z0-9]+)+")
_WORD = re.compile(r"NV\d+|X|PIX|PXB|PHB|NODE|SYS|SOC")
_WORDS = re.compile(rf"(?:{_WORD.pattern})+")
_HEADER_END = re.compile(r"CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA")
_AFFINITY = re.compile(r"N/A|\d[\d,-]*")
_LEGEND = re.compile(r"(NIC\d+)\s*:\s*(\S+)")
_OLD_WORDS = {"SOC": "SYS"}
"""Words of older drivers to those of today: published matrices have both."""
KNOWN = "X, NV#, PIX, PXB, PHB, NODE and SYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiMatrix:
    """A pasted matrix; what the paste does not have is missing, nothing is made up."""

    devices: tuple[str, ...]
    """Columns: GPU0, GPU1, … then NIC0, …, or the NICs' own names as older drivers print them."""
    cells: dict[tuple[str, str], str]
    """(row, column) to the word; no diagonal."""
    nic_names: dict[str, str]
    """NIC number to name, from the legend."""


@dataclass(slots=True, kw_only=True)
class _Row:
    name: str
    line: int
    words: list[str] = field(default_factory=list)


def parse_smi_matrix(text: str, file: str) -> SmiMatrix:
    """The first matrix in a text; prompts, tables and prose around it are passed over.

    Raises BadInput that names file and line where there is none, or where a row does not fit its
    header: a shifted row would show differences that are none.
    """
    lines = [(number, _plain(line)) for number, line in enumerate(text.splitlines(), 1)]
    devices, after = _header(lines, file)
    rows = list(_rows(lines[after:], devices, file))
    if not rows:
        raise BadInput(f"{file} line {lines[after - 1][0]}: a header without rows below it")
    cells: dict[tuple[str, str], str] = {}
    for row in rows:
        _check(row, devices, file)
        for column, word in zip(devices, row.words, strict=False):
            if column != row.name:
                cells[row.name, column] = _OLD_WORDS.get(word, word)
    return SmiMatrix(
        devices=devices,
        cells=cells,
        nic_names={name[1]: name[2] for _, line in lines if (name := _LEGEND.match(line))},
    )


def _plain(line: str) -> str:
    """The line without terminal styles, quote marks and margins."""
    return _MARGIN.sub("", _STYLE.sub("", line))


def _header(lines: list[tuple[int, str]], file: str) -> tuple[tuple[str, ...], int]:
    """Devices of the columns, and the place of the first line below the header."""
    for place, (number, line) in enumerate(lines):
        if not line.startswith("GPU0") or _words_of(line.split()[1:2]):
            continue
        devices: list[str] = []
        for after in range(place, len(lines)):
            names, ends = _header_part(lines[after][1])
            if after > place and (not names or _is_row(lines[after][1])):
                return _distinct(devices, number, file), after
            devices += names
            if ends:
                return _distinct(devices, number, file), after + 1
        return _distinct(devices, number, file), len(lines)
    raise BadInput(
        f"{file}: no matrix in it: paste the output of `nvidia-smi topo -m`, from the line that"
        " begins with GPU0 on"
    )


def _header_part(line: str) -> tuple[list[str], bool]:
    """Device names in one line of the header, and whether the columns of devices end here."""
    end = _HEADER_END.search(line)
    part = line if end is None else line[: end.start()]
    return _DEVICE.findall(part), end is not None


def _distinct(devices: list[str], number: int, file: str) -> tuple[str, ...]:
    twice = next((name for place, name in enumerate(devices) if name in devices[:place]), None)
    if twice is not None:
        raise BadInput(f"{file} line {number}: column {twice} stands there twice")
    return tuple(devices)


def _is_row(line: str) -> bool:
    parts = line.split()
    return len(parts) > 1 and bool(_DEVICE.fullmatch(parts[0])) and bool(_words_of(parts[1:2]))


def _rows(lines: list[tuple[int, str]], devices: tuple[str, ...], file: str) -> Iterator[_Row]:
    """Rows with their words; a line of words alone continues the row above it."""
    row: _Row | None = None
    for number, line in lines:
        parts = line.split()
        if not parts:
            continue
        if parts[0] in devices:
            if row is not None:
                yield row
            row, parts = _Row(name=parts[0], line=number), parts[1:]
        elif row is None or not _words_of(parts[:1]):
            if row is not None and not _AFFINITY.fullmatch(parts[0]):
                break
            continue
        row.words += _row_words(parts, number, file)
    if row is not None:
        yield row


def _row_words(parts: list[str], number: int, file: str) -> list[str]:
    """Words at the start of a line; affinities behind them end the matrix's columns."""
    words: list[str] = []
    for part in parts:
        if _AFFINITY.fullmatch(part):
            break
        more = _words_of([part])
        if not more:
            raise BadInput(
                f"{file} line {number}: {quoted(part)} is no word of `nvidia-smi topo -m`:"
                f" these are {KNOWN}"
            )
        words += more
    return words


def _words_of(parts: list[str]) -> list[str]:
    """Words of one part, several where the tabs between them are lost; none where it is no word."""
    return [word for part in parts if _WORDS.fullmatch(part) for word in _WORD.findall(part)]


def _check(row: _Row, devices: tuple[str, ...], file: str) -> None:
    row_text = f"{file} line {row.line}: row {row.name}"
    if len(row.words) > len(devices):
        raise BadInput(f"{row_text} has {len(row.words)} cells, the header {len(devices)} devices")
    own = devices.index(row.name)
    places = [place for place, word in enumerate(row.words) if word == "X"]
    if places not in ([own], []) or (not places and len(row.words) > own):
        shown = f"column {devices[places[0]]}" if places else "no column"
        raise BadInput(
            f"{row_text} has its X in {shown}, not in {row.name}:"
            " cells before it are missing or doubled"
        )
