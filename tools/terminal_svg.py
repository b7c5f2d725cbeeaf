# SPDX-License-Identifier: Apache-2.0
"""Pictures of a terminal: text with ANSI colours becomes an SVG, the same for the same text.

``python -m tools.terminal_svg --title "gpuscape top" < captured.txt > picture.svg``

The picture needs nothing else: no font is loaded, each run of one style stands at the columns
that it has in the terminal, whatever font the reader's system has.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

_COLUMN: Final = 8.4
_LINE: Final = 19
_EDGE: Final = 14
_BAR: Final = 30
"""Height of the title's bar."""
_SIZE: Final = 14
_GROUND: Final = "#1b1f27"
_TEXT: Final = "#d5d9e0"
_COLOURS: Final = (
    *("#3b4252", "#f07178", "#a5d76e", "#f2c063", "#74b2f0", "#cf9cf0", "#6fd3d8", "#d5d9e0"),
    *("#6b7486", "#ff8b92", "#c3e88d", "#ffd580", "#9ccbff", "#e2b8ff", "#99ecf0", "#ffffff"),
)
"""The sixteen of a terminal."""
_WORDS: Final = re.compile(r"[^ ]+(?: [^ ]+)*")
"""What stands at a column of its own: browsers make one space of several."""
_FONTS: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Text of one style, and the column where it begins."""

    column: int
    text: str
    style: Style


def terminal_svg(text: str, *, title: str, columns: int | None = None) -> str:
    """The SVG of ``text``, whose colours are ANSI's; as wide as its longest line or ``columns``."""
    lines = [Text.from_ansi(line, end="") for line in text.rstrip("\n").split("\n")]
    widest = columns or max(line.cell_len for line in lines)
    width = round(2 * _EDGE + widest * _COLUMN)
    height = _BAR + _EDGE + len(lines) * _LINE
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{_GROUND}"/>',
        *(
            f'<circle cx="{20 + 18 * place}" cy="16" r="5.5" fill="{colour}"/>'
            for place, colour in enumerate((_COLOURS[1], _COLOURS[3], _COLOURS[2]))
        ),
        f'<g font-family="{_FONTS}" font-size="{_SIZE}" fill="{_TEXT}">',
        f'<text x="{width / 2:g}" y="21" text-anchor="middle" fill="{_COLOURS[8]}">'
        f"{escape(title)}</text>",
    ]
    for place, line in enumerate(lines):
        top = _BAR + place * _LINE
        for run in _runs(line):
            drawn += _drawn(run, top)
    return "\n".join([*drawn, "</g>", "</svg>"]) + "\n"


def _runs(line: Text) -> Iterator[_Run]:
    """The runs of a line, spaces between two of them left out."""
    styles = [Style.null()] * len(line.plain)
    for span in line.spans:
        style = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        for place in range(span.start, span.end):
            styles[place] += style
    begin = 0
    for end in range(1, len(styles) + 1):
        if end < len(styles) and styles[end] == styles[begin]:
            continue
        text, column = line.plain[begin:end], cell_len(line.plain[:begin])
        if text.strip() or _is_seen_empty(styles[begin]):
            yield _Run(column=column, text=text, style=styles[begin])
        begin = end


def _drawn(run: _Run, top: int) -> Iterator[str]:
    text, column = run.text, run.column
    ink, ground = _colours(run.style)
    if ground is not None:
        x, wide = _EDGE + column * _COLUMN, cell_len(text) * _COLUMN
        yield f'<rect x="{x:g}" y="{top}" width="{wide:g}" height="{_LINE}" fill="{ground}"/>'
    looks = f' fill="{ink}"' if ink != _TEXT else ""
    looks += ' font-weight="bold"' if run.style.bold else ""
    looks += ' opacity="0.6"' if run.style.dim else ""
    for words in _WORDS.finditer(text):
        x = _EDGE + (column + cell_len(text[: words.start()])) * _COLUMN
        wide = cell_len(words[0]) * _COLUMN
        yield (
            f'<text x="{x:g}" y="{top + 14}" textLength="{wide:g}"{looks}>'
            f"{escape(words[0], quote=False)}</text>"
        )


def _is_seen_empty(style: Style) -> bool:
    """Whether spaces of this style show."""
    return style.bgcolor is not None or bool(style.reverse)


def _colours(style: Style) -> tuple[str, str | None]:
    """Colours of the text and of its background; None: no background."""
    ink = _hex(style, "color") or _TEXT
    ground = _hex(style, "bgcolor")
    return (ground or _GROUND, ink) if style.reverse else (ink, ground)


def _hex(style: Style, attribute: str) -> str | None:
    colour = getattr(style, attribute)
    if colour is None or colour.is_default:
        return None
    if colour.number is not None and colour.number < len(_COLOURS):
        return _COLOURS[colour.number]
    return str(colour.get_truecolor().hex)


def main() -> None:
    """Turn standard input into a picture on standard output."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--title", required=True)
    parser.add_argument("--columns", type=int)
    given = parser.parse_args()
    sys.stdout.write(terminal_svg(sys.stdin.read(), title=given.title, columns=given.columns))


if __name__ == "__main__":
    main()
