"""Pages that people write: lines that fit, links that lead somewhere, names that exist."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

from tests.pages import ROOT

WIDTH: Final = 120
MEASURED: Final = ("benchmarks", "scheduler-benchmarks", "scheduler-quality", "soak")
"""Pages in docs/ that programs write whole: their paragraphs are one line each."""
PAGES: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
WRITTEN: Final = tuple(page for page in PAGES if page.stem not in MEASURED)

_FENCE: Final = re.compile(r"^ *```")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"`[^`]*`")
_DECISION: Final = re.compile(r"# (?P<title>.+)\n\nStatus: (?P<status>.+)\.\n")
_STATUS: Final = r"(?:proposed|accepted|superseded by \[.+\]\(.+\)), \d{4}-\d\d-\d\d.*?"
_ROW: Final = re.compile(
    rf"^\| \[(?P<title>.+?)\]\((?P<file>.+?)\) \| .+ \| (?P<status>{_STATUS}) \|$", re.MULTILINE
)
_PATH: Final = re.compile(r"`([\w.-]+/[\w./*-]*)`")
_STEP: Final = re.compile(
    r"^\| \d+ \| `(?P<file>[\w/.-]+\.py)` \| (?P<names>[^|]*) \|", re.MULTILINE
)
_OUTSIDE: Final = re.compile(r"[a-z]+:")


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


def links(page: Path) -> Iterator[str]:
    """Where a page leads inside of the repository, as it is written there."""
    outside_blocks = re.sub(r"^( *)```.*?^\1```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    for target in _LINK.findall(_CODE.sub("", outside_blocks)):
        if not _OUTSIDE.match(target):
            yield target


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether the file is there, and in it the heading that the link names."""
    path, _, anchor = unquote(target).partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.exists() and (not anchor or anchor in anchors(file.read_text("utf-8")))


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings: lower case, spaces to hyphens, no punctuation."""
    headings = (line.lstrip("# ") for line in prose(text) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_prose_fits_in_its_width(page: Path) -> None:
    too_long = [line for line in prose(page.read_text("utf-8")) if len(line) > WIDTH]
    assert too_long == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not leads_somewhere(page, target)] == []


def named_files(page: Path) -> set[str]:
    """Paths from the repository's root that a page has in backquotes; ``*`` stands for names."""
    outside_blocks = re.sub(r"^( *)```.*?^\1```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    folders = {it.name for it in ROOT.iterdir() if it.is_dir()}
    found = (match[1] for match in _PATH.finditer(outside_blocks))
    return {path for path in found if path.partition("/")[0] in folders}


def steps(text: str) -> Iterator[tuple[str, str]]:
    """File and name of each row of the tables whose columns are step, file, names."""
    for row in _STEP.finditer(text):
        for named in re.findall(r"`([\w.]+)`", row["names"]):
            yield row["file"], named


def is_there(file: str, named: str) -> bool:
    """Whether the module has the name: a function, a class, or something in a class."""
    try:
        pkgutil.resolve_name(f"{file.removesuffix('.py').replace('/', '.')}:{named}")
    except (AttributeError, ImportError):
        return False
    return True


HISTORY: Final = ("CHANGELOG",)
"""What stands there was there once."""


@pytest.mark.parametrize("page", [it for it in WRITTEN if it.stem not in HISTORY], ids=name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert [path for path in sorted(named_files(page)) if not any(ROOT.glob(path))] == []


def test_the_architecture_page_names_functions_that_exist() -> None:
    named = list(steps((ROOT / "docs" / "architecture.md").read_text("utf-8")))
    assert len(named) > 40
    assert [each for each in named if not is_there(*each)] == []


def test_a_name_that_does_not_exist_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "| 1 | `base/runtime.py` | `Runtime.start` | x |\n"
        "| 2 | `base/runtime.py` | `Gone` | `y` |\n"
        "`base/gone.py` `docs/*.md` `docs/*.gone` `nvidia.com/gpu`\n"
    )
    assert named_files(page) == {"base/runtime.py", "base/gone.py", "docs/*.md", "docs/*.gone"}
    assert [path for path in sorted(named_files(page)) if not any(ROOT.glob(path))] == [
        "base/gone.py",
        "docs/*.gone",
    ]
    assert [(named, is_there(file, named)) for file, named in steps(page.read_text())] == [
        ("Runtime.start", True),
        ("Gone", False),
    ]


def decisions() -> dict[str, tuple[str, str]]:
    """File name to title and status, as the pages of decisions have them."""
    found = {}
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        if page.name != "README.md":
            head = _DECISION.match(page.read_text("utf-8"))
            assert head is not None, f"{page.name} does not begin with title and status"
            found[page.name] = (head["title"], head["status"])
    return found


def test_the_index_of_decisions_has_each_page_with_its_status() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    rows = {row["file"]: (row["title"], row["status"]) for row in _ROW.finditer(index)}
    assert rows == decisions()


def test_sources_of_facts_can_be_opened_by_everybody() -> None:
    """They are public documents or pages of this repository, never somebody's notes."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    packages = (*settings["importlinter"]["root_packages"], "tools")
    sources = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    assert len(sources) > 100
    notes = re.compile(r"facts on |facts/")
    assert [name(it) for it in (*PAGES, *sources) if notes.search(it.read_text("utf-8"))] == []


def test_a_link_to_a_missing_page_or_heading_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One, and `two`\n\n[a](#one-and-two) [b](#three) [c](gone.md) [d](page.md#x)\n"
    )
    wrong = [target for target in links(page) if not leads_somewhere(page, target)]
    assert wrong == ["#three", "gone.md", "page.md#x"]


def test_a_line_that_is_too_long_would_be_found_in_prose_alone() -> None:
    text = "short\n```\ncode\n```\n| table |\n<!-- generated: x -->\nmade\n<!-- end -->\nlast"
    assert list(prose(text)) == ["short", "last"]
