# SPDX-License-Identifier: Apache-2.0
"""The page that benchmarks are written to. Pure: what was measured in, Markdown out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one benchmark found."""

    title: str
    text: str
    """What was measured and how, one paragraph."""
    rows: tuple[tuple[str, ...], ...]
    """What it is, and the figures with their units, one for each further column."""
    columns: tuple[str, ...] = ("", "")
    """What stands above them."""


def page(title: str, machine: str, sections: Iterable[Section]) -> str:
    """The whole page."""
    head = (
        f"# {title}\n\n"
        "Written by `make bench`. All ways of doing one thing are measured in turns in the same "
        f"run, and the figures are medians. This run: {machine}.\n"
    )
    return "\n".join([head, *(table(section) for section in sections)])


def table(section: Section) -> str:
    """One section under its title."""
    rule = "|---|" + "---:|" * (len(section.columns) - 1)
    lines = [_row(section.columns), rule, *(_row(row) for row in section.rows)]
    return f"## {section.title}\n\n{section.text}\n\n" + "".join(f"{line}\n" for line in lines)


def _row(cells: tuple[str, ...]) -> str:
    """Empty cells as narrow as Markdown allows."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
