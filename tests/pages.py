"""What the project's pages have in blocks, as tests need it."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_NOT_IN_A_CLONE: Final = (".git", ".venv", "mutants*", ".*_cache", ".hypothesis", "__pycache__")


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


def clone(folder: Path) -> Path:
    """The project as in a clone, after ``make run``: with this environment as its own."""
    made = folder / "clone"
    shutil.copytree(ROOT, made, ignore=shutil.ignore_patterns(*_NOT_IN_A_CLONE))
    (made / ".venv").symlink_to(sys.prefix)
    return made
