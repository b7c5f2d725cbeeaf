# SPDX-License-Identifier: Apache-2.0
"""Everything that commands print: tables and documents, coloured for people, plain for pipes.

Names, reasons and messages come from a cluster or a machine, and whoever writes those may be an
attacker: all of it is made safe here, so no command prints in another way (ruff refuses it).
Styles are never taken from a text. Source: CVE-2021-25743 of kubectl.

rich is imported on first use: the commands that print no table never load it.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from base.text.safe_text import is_safe, safe_json, safe_line, safe_lines

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text
    from yaml import Node as YamlNode
    from yaml.emitter import ScalarAnalysis

WIDE_ENOUGH = 10_000
"""Columns. Tables keep their shape and leave wrapping to the terminal, as nvidia-smi does."""


@dataclass(frozen=True, slots=True)
class Styled:
    """Text with a style of rich's, which only a terminal shows."""

    text: str
    style: str


Cell = str | Styled

UNKNOWN = Styled("?", "yellow")
"""A reading that should be there."""
NONE = Styled("-", "dim")
"""A value that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A header and rows of as many cells."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = field(default_factory=frozenset)
    """Columns that line up on the right."""


def show_table(table: TextTable) -> None:
    """Print a table; with styles when standard output is a terminal and NO_COLOR is not set."""
    print_lines(table_lines(table, styled=is_styled()))


def print_lines(texts: Iterable[str]) -> None:
    """Print lines that :func:`table_lines` or :func:`joined_cells` has made."""
    styled = is_styled()
    for text in texts:
        click.echo(text, color=styled)


def is_styled() -> bool:
    """Whether standard output shows styles: a terminal, and NO_COLOR is not set.

    Without colour rich would still write bold and dim: whoever sets NO_COLOR wants neither.
    """
    from rich.console import Console

    console = Console()
    return console.is_terminal and not console.no_color


def screen_width() -> int:
    """Columns of the terminal that standard output is; :data:`WIDE_ENOUGH` where it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDE_ENOUGH
    except (OSError, ValueError):
        return WIDE_ENOUGH


def table_lines(table: TextTable, *, styled: bool, width: int = WIDE_ENOUGH) -> tuple[str, ...]:
    """The lines of a table; cells that have no room in ``width`` columns are cut."""
    return _printed(_rich_table(table), styled=styled, width=width)


def joined_cells(*cells: Cell, styled: bool, width: int = WIDE_ENOUGH) -> str:
    """Cells one behind the other as one line, cut at ``width`` columns."""
    from rich.text import Text

    text = Text.assemble(*map(_rich_text, cells))
    return "".join(_printed(text, styled=styled, width=width))


def width_of(cell: Cell) -> int:
    """Columns that a cell takes."""
    from rich.cells import cell_len

    return cell_len(_text_of(cell))


def cut_cell(cell: Cell, width: int) -> Cell:
    """The cell in so many columns, with a mark where something of it is missing."""
    from rich.cells import set_cell_size

    text = _text_of(cell)
    if width_of(cell) <= width:
        return cell
    short = f"{set_cell_size(text, width - 1).rstrip()}…"
    return short if isinstance(cell, str) else Styled(short, cell.style)


def _printed(renderable: RichTable | Text, *, styled: bool, width: int) -> tuple[str, ...]:
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        force_terminal=styled,
        color_system="standard" if styled else None,
        no_color=not styled,
    )
    with console.capture() as captured:
        console.print(renderable, no_wrap=True, overflow="ellipsis", crop=True)
    return tuple(line.rstrip() for line in captured.get().splitlines())


def note(*texts: str, err: bool = False) -> None:
    """Print lines that are not part of a table; with ``err`` on standard error."""
    for text in texts:
        click.echo(safe_line(text), err=err)


def confirm(*texts: str) -> bool:
    """Print these lines, and ask the last one as a question."""
    note(*texts[:-1])
    return click.confirm(safe_line(texts[-1]))


def show_progress(text: str) -> None:
    """Write over the last line of standard error, where that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[2K{safe_line(text)}", nl=False, err=True)


def print_document(text: str) -> None:
    """Print a text of several lines that is a file of some format."""
    click.echo(safe_lines(text.removesuffix("\n")))


def write_archive(content: bytes) -> None:
    """Write a file that is no text."""
    click.echo(content, nl=False)


def print_data(value: object, output: str) -> None:
    """Print a value as ``json`` or ``yaml``; dataclasses become mappings of their fields."""
    import msgspec

    if output == "json":
        click.echo(safe_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))
        return
    click.echo(_yaml(msgspec.to_builtins(value)), nl=False)


def _yaml(value: object) -> str:
    """A text with something unsafe stands in quotes there, with YAML's own escapes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
            self.allow_unicode = is_safe(scalar)
            analysis = super().analyze_scalar(scalar)
            if not self.allow_unicode:
                analysis.allow_single_quoted = analysis.allow_flow_plain = (
                    analysis.allow_block_plain
                ) = False
            return analysis

    dumper = Dumper(io.StringIO(), sort_keys=False)
    node = dumper.represent_data(value)
    _in_lines(node)
    return str(yaml.serialize(node, Dumper=Dumper, allow_unicode=True, width=100))


def _in_lines(node: YamlNode, *, is_item: bool = False) -> None:
    """Have a mapping take a line for each key, and what is short a line for itself.

    Short are lists of plain values, and mappings of plain values that are items of a list.
    """
    import yaml

    if isinstance(node, yaml.MappingNode):
        children = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    else:
        return
    is_list = isinstance(node, yaml.SequenceNode)
    is_flat = all(isinstance(child, yaml.ScalarNode) for child in children)
    node.flow_style = is_flat and (is_list or is_item or not children)
    for child in children:
        _in_lines(child, is_item=is_list)


def _rich_table(table: TextTable) -> RichTable:
    from rich.table import Table as RichTable

    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, title in enumerate(table.header):
        drawn.add_column(
            _rich_text(title), justify="right" if place in table.right else "left", no_wrap=True
        )
    for row in table.rows:
        drawn.add_row(*map(_rich_text, row))
    return drawn


def _rich_text(cell: Cell) -> Text:
    from rich.text import Text

    return Text(_text_of(cell), style="" if isinstance(cell, str) else cell.style)


def _text_of(cell: Cell) -> str:
    """Text of a cell as it is printed: it has no effect as rich's markup or in a terminal."""
    return safe_line(cell if isinstance(cell, str) else cell.text)
