# SPDX-License-Identifier: Apache-2.0
"""The changelog's form: sections by version, Keep a Changelog's headings, short entries. Pure.

Source: https://keepachangelog.com/en/1.1.0/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

UNRELEASED: Final = "Unreleased"
KINDS: Final = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
ENTRY_LINES: Final = 4
"""An entry is a line of the page; what an admin has to do may take more, this many at most."""

_SECTION: Final = re.compile(r"^## (?P<heading>.+)\n(?P<text>(?:(?!## ).*\n?)*)", re.MULTILINE)
_RELEASED: Final = re.compile(r"(?P<version>\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?) - \d{4}-\d\d-\d\d")


def sections(changelog: str) -> dict[str, str]:
    """Text of each section by its heading, such as ``0.1.0 - 2026-11-28``, in the page's order."""
    return {match["heading"]: match["text"].strip() for match in _SECTION.finditer(changelog)}


def notes(changelog: str, version: str) -> str:
    """Text of a version's section that has a date; empty where there is none."""
    for heading, text in sections(changelog).items():
        if (match := _RELEASED.fullmatch(heading)) and match["version"] == version:
            return text
    return ""


def form_faults(changelog: str) -> Iterator[str]:
    """A sentence for each heading and entry that has another form, with the form to write."""
    headings = list(sections(changelog))
    if headings[:1] != [UNRELEASED]:
        yield f"the first section is not `## {UNRELEASED}`: put an empty one on top"
    for heading in headings:
        if heading != UNRELEASED and not _RELEASED.fullmatch(heading):
            yield f"`## {heading}`: write `## VERSION - YEAR-MONTH-DAY`"
    for heading, text in sections(changelog).items():
        for fault in _section_faults(text):
            yield f"{heading}: {fault}"


def _section_faults(text: str) -> Iterator[str]:
    kind = ""
    seen: set[str] = set()
    entry_lines = 0
    for line in text.splitlines():
        if line.startswith("### "):
            kind = line.removeprefix("### ")
            if kind not in KINDS or kind in seen:
                yield f"`{line}`: write each of {', '.join(KINDS)} once at most"
            seen.add(kind)
        elif line.startswith("- "):
            entry_lines = 1
            if not kind:
                yield f"`{line}`: put it under one of {', '.join(KINDS)}"
        elif line.startswith("  "):
            entry_lines += 1
            if entry_lines == ENTRY_LINES + 1:
                yield f"`{line.strip()}`: shorten the entry to {ENTRY_LINES} lines"
