# SPDX-License-Identifier: Apache-2.0
"""How generated parts of pages are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_PIPE = r"\|"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', _PIPE) for cell in line)} |" for line in lines
    )


def code(text: str) -> str:
    """A block that is shown as it stands."""
    return f"```text\n{text.strip()}\n```"


def quoted(text: str | None) -> str:
    """The text as inline code; empty for None or an empty text."""
    return f"`{text}`" if text else ""
