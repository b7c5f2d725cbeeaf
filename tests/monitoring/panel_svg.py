# SPDX-License-Identifier: Apache-2.0
"""Table panels as a picture: texts and colours are Grafana's own, the drawing is ours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from tests.monitoring.grafana import Column, Table

_CELL: Final = (44, 26)
_EDGE: Final = 16
_TITLE: Final = 34
_GROUND: Final = "#111217"
_PANEL: Final = "#181b1f"
_TEXT: Final = "#ccccdc"


def panels_svg(dashboard: str, panels: Sequence[tuple[str, Table]]) -> str:
    """Panels of a dashboard next to each other, each with its title."""
    width = _EDGE + sum(_width(table) + _EDGE for _, table in panels)
    height = 2 * _EDGE + _TITLE + max(_height(table) for _, table in panels)
    name = f"{dashboard}: {', '.join(title for title, _ in panels)}"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="{escape(name)}">',
        f"<title>{escape(name)}</title>",
        f'<rect width="{width}" height="{height}" fill="{_GROUND}"/>',
        f'<g font-family="sans-serif" font-size="13" fill="{_TEXT}">',
    ]
    left = _EDGE
    for title, table in panels:
        drawn += [
            f'<rect x="{left}" y="{_EDGE}" width="{_width(table)}"'
            f' height="{_TITLE + _height(table)}" fill="{_PANEL}" stroke="#2c2f36"/>',
            f'<text x="{left + 10}" y="{_EDGE + 22}" font-weight="bold">{escape(title)}</text>',
        ]
        for number, column in enumerate(table):
            drawn += _column(column, left + number * _CELL[0], _EDGE + _TITLE)
        left += _width(table) + _EDGE
    return "\n".join([*drawn, "</g>", "</svg>"]) + "\n"


def _column(column: Column, left: int, top: int) -> list[str]:
    """Its heading and its cells."""
    wide, high = _CELL
    middle = f'x="{left + wide // 2}" text-anchor="middle"'
    drawn = [f'<text {middle} y="{top + 18}" fill="#6e9fff">{escape(column.name)}</text>']
    for row, (text, color) in enumerate(zip(column.texts, column.colors, strict=True), start=1):
        y = top + row * high
        if column.is_colored and not color.endswith("00000000"):
            drawn.append(
                f'<rect x="{left + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}"'
                f' fill="{color}"/>'
            )
        drawn.append(f'<text {middle} y="{y + 18}">{escape(text)}</text>')
    return drawn


def _width(table: Table) -> int:
    return _CELL[0] * len(table)


def _height(table: Table) -> int:
    return _CELL[1] * (1 + max(len(column.texts) for column in table))
