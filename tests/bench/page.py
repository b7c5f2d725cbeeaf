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
    rows: tuple[tuple[str, str], ...]
    """What it is, and the figure with its unit."""


def page(machine: str, sections: Iterable[Section]) -> str:
    """The whole page."""
    head = (
        "# Benchmarks\n\n"
        "Written by `make bench`. All ways of doing one thing are measured in turns in the same "
        f"run, and the figures are medians. This run: {machine}.\n"
    )
    return "\n".join([head, *(_section(section) for section in sections)])


def _section(section: Section) -> str:
    rows = "".join(f"| {what} | {figure} |\n" for what, figure in section.rows)
    return f"## {section.title}\n\n{section.text}\n\n| | |\n|---|---:|\n{rows}"
