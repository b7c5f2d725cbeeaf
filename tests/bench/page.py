# SPDX-License-Identifier: Apache-2.0
"""The page that benchmarks are written to. Pure: what was measured in, Markdown out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

REAL_NODES: Final = "What real nodes hand out"
"""A section of docs/scheduler-quality.md that real nodes are needed for: a program of its own
writes it (``tests/node/prediction_run.py``), and the other one leaves it."""
MEDIANS: Final = (
    "All ways of doing one thing are measured in turns in the same run, and the figures are "
    "medians."
)
"""How the figures of most pages come about."""
_NEXT: Final = "\n## "


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


def page(title: str, machine: str, sections: Iterable[Section], how: str = MEDIANS) -> str:
    """The whole page; ``how`` the figures come about, in whole sentences."""
    head = f"# {title}\n\nWritten by `make bench`. {how} This run: {machine}.\n"
    return "\n".join([head, *(table(section) for section in sections)])


def table(section: Section) -> str:
    """One section under its title."""
    rule = "|---|" + "---:|" * (len(section.columns) - 1)
    lines = [_row(section.columns), rule, *(_row(row) for row in section.rows)]
    return f"## {section.title}\n\n{section.text}\n\n" + "".join(f"{line}\n" for line in lines)


def section_of(text: str, title: str) -> str:
    """The section of a page with this title, up to the next one; empty where there is none."""
    _, found, rest = text.partition(f"\n## {title}\n")
    return f"## {title}\n{rest.split(_NEXT)[0].rstrip()}\n" if found else ""


def with_section(text: str, title: str, section: str) -> str:
    """A page whose section of this title is another one; the last one, where it had none."""
    old = section_of(text, title)
    if not old:
        return f"{text.rstrip()}\n\n{section}" if section else text
    return text.replace(old.rstrip(), section.rstrip())


def _row(cells: tuple[str, ...]) -> str:
    """Empty cells as narrow as Markdown allows."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
