# SPDX-License-Identifier: Apache-2.0
"""Tables that fit into a width: some columns are left out or cut, and empty columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from cli import terminal
from cli.terminal import Cell, Styled, TextTable

_GAP: Final = 2
_NOTHING: Final = ("", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its title, its cells, and how it shrinks."""

    title: str
    cell: Callable[[Any], Cell]
    """The column's cell for a row."""
    goes: int = 0
    """The columns with the highest number are left out first where there is no room; 0 stays."""
    right: bool = False
    least: int | None = None
    """Width in characters to which the column may be cut; None: it is shown in full."""


_Filled = tuple[Column, tuple[Cell, ...]]


def fit_rows(columns: Sequence[Column], rows: Sequence[object], width: int) -> TextTable:
    """A table of these rows in so many columns of text."""
    filled = [(column, tuple(column.cell(row) for row in rows)) for column in columns]
    kept = [(column, cells) for column, cells in filled if not column.goes or _says(cells)]
    while sum(_width(column, cells) for column, cells in kept) + _GAP * (len(kept) - 1) > width:
        last = max((column for column, _ in kept), key=lambda column: column.goes)
        if not last.goes:
            break
        kept = [(column, cells) for column, cells in kept if column is not last]
    kept = _cut(kept, width)
    return TextTable(
        header=tuple(column.title for column, _ in kept),
        rows=tuple(zip(*(cells for _, cells in kept), strict=True)),
        right=frozenset(index for index, (column, _) in enumerate(kept) if column.right),
    )


def narrow_table(table: TextTable, width: int, least: Mapping[str, int]) -> TextTable:
    """The table in so many columns of text, with all its columns; ``least``: how far those with
    these titles may be cut, the last of them first."""
    columns = [
        Column(
            title=title, cell=itemgetter(index), right=index in table.right, least=least.get(title)
        )
        for index, title in enumerate(table.header)
    ]
    return fit_rows(columns, table.rows, width)


def _cut(columns: list[_Filled], width: int) -> list[_Filled]:
    """The columns, cut as far as the width and their ``least`` demand; the last are cut first."""
    over = (
        sum(_natural(column, cells) for column, cells in columns)
        + _GAP * (len(columns) - 1)
        - width
    )
    fitting = []
    for column, cells in reversed(columns):
        wide = _natural(column, cells)
        if over > 0 and column.least is not None:
            narrow = max(min(wide, column.least), wide - over)
            fitting.append((column, tuple(terminal.cut_cell(cell, narrow) for cell in cells)))
            over -= wide - narrow
        else:
            fitting.append((column, cells))
    return fitting[::-1]


def _says(cells: Sequence[Cell]) -> bool:
    """Whether there is anything in a column."""
    return any((cell.text if isinstance(cell, Styled) else cell) not in _NOTHING for cell in cells)


def _natural(column: Column, cells: Sequence[Cell]) -> int:
    return max(map(terminal.width_of, (column.title, *cells)))


def _width(column: Column, cells: Sequence[Cell]) -> int:
    wide = _natural(column, cells)
    return wide if column.least is None else min(wide, column.least)
