# SPDX-License-Identifier: Apache-2.0
"""What the project's pages have, as tests need it: blocks, prose, links, names of files."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

ROOT: Final = Path(__file__).resolve().parents[1]
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_FENCE: Final = re.compile(r"^ *```")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"`[^`]*`")
_OUTSIDE: Final = re.compile(r"[a-z]+:")
_PATH: Final = re.compile(r"`([\w.-]+/[\w./*-]*)`")
_CAPABILITIES: Final = {"mig/config", "mig/monitor"}
"""Of NVIDIA's driver, by their own names: no files here."""
_STEP: Final = re.compile(
    r"^\| \d+ \| `(?P<file>[\w/.-]+\.py)` \| (?P<names>[^|]*) \|", re.MULTILINE
)
_CLASS: Final = re.compile(r"\| F\d\d \| ")
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
_NOT_IN_A_CLONE: Final = (".git", ".venv*", "mutants*", ".*_cache", ".hypothesis", "__pycache__")


def page(name: str) -> str:
    """The text of a page, by its path from the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """All blocks in one language, in the order of the page."""
    return [textwrap.dedent(found) for _, of, found in _BLOCK.findall(text) if of == language]


def marked(text: str, name: str) -> str:
    """The block below ``<!-- run: name -->``."""
    found = _BLOCK.search(text.partition(f"<!-- run: {name} -->")[2])
    assert found is not None, name
    return textwrap.dedent(found[3])


def prose(text: str) -> Iterator[str]:
    """The lines that are no table, no block of code and no generated part."""
    in_block = in_generated = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_block = not in_block
        elif line.startswith("<!-- generated: "):
            in_generated = True
        elif line == "<!-- end -->":
            in_generated = False
        elif not in_block and not in_generated and not line.lstrip().startswith("|"):
            yield line


def links(text: str) -> list[str]:
    """Where a page leads inside of the repository, as it is written there."""
    targets = _LINK.findall(_CODE.sub("", _BLOCK.sub("", text)))
    return [target for target in targets if not _OUTSIDE.match(target)]


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether the file of a link is there, and in it the heading that the link names."""
    path, _, anchor = unquote(target).partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.exists() and (not anchor or anchor in anchors(file.read_text("utf-8")))


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings: lower case, spaces to hyphens, no punctuation."""
    headings = (line.lstrip("# ") for line in prose(text) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named_files(text: str) -> set[str]:
    """Paths from the repository's root that stand in backquotes; ``*`` stands for names."""
    folders = {it.name for it in ROOT.iterdir() if it.is_dir()}
    found = {match[1] for match in _PATH.finditer(_BLOCK.sub("", text))} - _CAPABILITIES
    return {path for path in found if path.partition("/")[0] in folders}


def steps(text: str) -> list[tuple[str, str]]:
    """File and name, row by row, of the tables whose columns are step, file, names."""
    return [
        (row["file"], named)
        for row in _STEP.finditer(text)
        for named in re.findall(r"`([\w.]+)`", row["names"])
    ]


def classes_of_faults(text: str) -> dict[str, list[str]]:
    """The tests that stand in the last column of a row, by the row's first column, such as F01."""
    rows = (line.strip("| ").split(" | ") for line in text.splitlines() if _CLASS.match(line))
    return {cells[0]: _TEST.findall(cells[-1]) for cells in rows}


def clone(folder: Path) -> Path:
    """The project as in a clone, after ``make run``: with this environment as its own."""
    made = folder / "clone"
    shutil.copytree(ROOT, made, ignore=shutil.ignore_patterns(*_NOT_IN_A_CLONE))
    (made / ".venv").symlink_to(sys.prefix)
    return made
