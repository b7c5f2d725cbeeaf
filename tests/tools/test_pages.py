"""What pages and manifests have people type works where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BARE = re.compile(r"(?<![\w/.-])python (?=-m|tools/|tests/)")
"""A command that Debian, macOS and most images do not have: there it is python3."""


def pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder, pattern in (("docs", "*.md"), ("deploy", "*.yaml"), ("deploy", "*.yml")):
        yield from sorted((ROOT / folder).rglob(pattern))


@pytest.mark.parametrize("page", tuple(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_python_that_is_on_few_machines(page: Path) -> None:
    text = page.read_text("utf-8")
    assert [line for line in text.splitlines() if BARE.search(line)] == []


def test_such_a_line_would_be_found() -> None:
    assert BARE.search("In a clone: `python -m tools.access`")
    assert not BARE.search(".venv/bin/python -m tools.access")
