# SPDX-License-Identifier: Apache-2.0
"""Pages that people write: lines that fit, links that lead somewhere, names that exist."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.pages import (
    ROOT,
    classes_of_faults,
    leads_somewhere,
    links,
    named_files,
    page,
    prose,
    steps,
)

WIDTH: Final = 120
PAGES: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
MANIFESTS: Final = (*sorted((ROOT / "deploy").rglob("*.yaml")), *(ROOT / "deploy").rglob("*.yml"))
MEASURED: Final = (
    "benchmarks",
    "fault-run",
    "image",
    "mig-benchmarks",
    "mig-figures",
    "mig-kills",
    "scheduler-benchmarks",
    "mig-rollouts",
    "scheduler-quality",
    "soak",
    "structure",
)
"""Pages in docs/ that programs write whole: their paragraphs are one line each."""
HISTORY: Final = ("CHANGELOG",)
"""The files that are named there existed once."""

_BARE_PYTHON: Final = re.compile(r"(?<![\w/.-])python (?=-m|tools/|tests/)")
_DECISION: Final = re.compile(r"# (?P<title>.+)\n\nStatus: (?P<status>.+)\.\n")
_STATUS: Final = r"(?:proposed|accepted|superseded by \[.+\]\(.+\)), \d{4}-\d\d-\d\d.*?"
_ROW: Final = re.compile(
    rf"^\| \[(?P<title>.+?)\]\((?P<file>.+?)\) \| .+ \| (?P<status>{_STATUS}) \|$", re.MULTILINE
)
_NOTES: Final = re.compile(r"facts on |(?<!diagnosis/)facts/")


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def but(*stems: str) -> list[Path]:
    return [file for file in PAGES if file.stem not in stems]


def missing(files: set[str]) -> list[str]:
    """Those that are not there; programs make what is in build/, some of it at a time."""
    named = (path for path in sorted(files) if not path.startswith("build/"))
    return [path for path in named if not any(ROOT.glob(path))]


def is_there(file: str, named: str) -> bool:
    """Whether the module has the name: a function, a class, or something in a class."""
    try:
        pkgutil.resolve_name(f"{file.removesuffix('.py').replace('/', '.')}:{named}")
    except (AttributeError, ImportError):
        return False
    return True


def is_a_test(identity: str) -> bool:
    """Whether pytest would find a function of this name in the file, in a class of tests or not."""
    file, _, test = identity.partition("::")
    text = (ROOT / file).read_text("utf-8") if (ROOT / file).exists() else ""
    return test.startswith("test_") and bool(re.search(rf"^ *def {test}\(", text, re.MULTILINE))


@pytest.mark.parametrize("file", but(*MEASURED), ids=name)
def test_prose_fits_in_its_width(file: Path) -> None:
    assert [line for line in prose(file.read_text("utf-8")) if len(line) > WIDTH] == []


def test_prose_is_what_is_no_block_no_table_and_not_generated() -> None:
    text = "short\n```\ncode\n```\n| table |\n<!-- generated: x -->\nmade\n<!-- end -->\nlast"
    assert list(prose(text)) == ["short", "last"]


@pytest.mark.parametrize("file", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(file: Path) -> None:
    targets = links(file.read_text("utf-8"))
    assert [target for target in targets if not leads_somewhere(file, target)] == []


def test_a_link_to_a_missing_page_or_heading_leads_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    text = "# One, and `two`\n\n[a](#one-and-two) [b](#three) [c](gone.md) [d](page.md#x)\n"
    file.write_text(text)
    wrong = [target for target in links(text) if not leads_somewhere(file, target)]
    assert wrong == ["#three", "gone.md", "page.md#x"]


@pytest.mark.parametrize("file", but(*MEASURED, *HISTORY), ids=name)
def test_files_that_a_page_names_exist(file: Path) -> None:
    assert missing(named_files(file.read_text("utf-8"))) == []


def test_a_file_that_does_not_exist_is_missing() -> None:
    text = "`base/runtime.py` `base/gone.py` `docs/*.md` `docs/*.gone` `nvidia.com/gpu`"
    assert missing(named_files(text)) == ["base/gone.py", "docs/*.gone"]


def test_the_architecture_page_names_functions_that_exist() -> None:
    named = steps(page("docs/architecture.md"))
    assert len(named) > 40
    assert [each for each in named if not is_there(*each)] == []


def test_a_function_that_does_not_exist_is_not_there() -> None:
    text = "| 1 | `base/runtime.py` | `Runtime.start`, `Gone`, `Runtime.gone` | `other` |\n"
    assert [named for file, named in steps(text) if not is_there(file, named)] == [
        "Gone",
        "Runtime.gone",
    ]


CLASSES: Final = (*range(1, 19), 20, 21, 27, 31, 33, 34, 35, 36, 37)
"""Of faults: those that concern the agent and the extender."""


def test_each_class_of_faults_names_tests_that_exist() -> None:
    classes = classes_of_faults(page("docs/faults.md"))
    assert list(classes) == [f"F{number:02}" for number in CLASSES]
    assert [name for name, tests in classes.items() if not tests] == []
    assert [it for tests in classes.values() for it in tests if not is_a_test(it)] == []


def test_a_class_without_a_test_and_a_test_that_does_not_exist_are_seen() -> None:
    text = "| F01 | a | b | `tests/test_pages.py::test_gone`, x |\n| F02 | `a` | b | none |\n"
    assert classes_of_faults(text) == {"F01": ["tests/test_pages.py::test_gone"], "F02": []}
    assert not is_a_test("tests/test_pages.py::test_gone")
    assert not is_a_test("tests/gone.py::test_gone")
    assert not is_a_test("tests/test_pages.py::is_a_test")


def test_the_index_of_decisions_has_each_page_with_its_status() -> None:
    found = {}
    for file in (ROOT / "docs" / "decisions").glob("*.md"):
        if file.name != "README.md":
            head = _DECISION.match(file.read_text("utf-8"))
            assert head is not None, f"{file.name} does not begin with title and status"
            found[file.name] = (head["title"], head["status"])
    index = _ROW.finditer(page("docs/decisions/README.md"))
    assert {row["file"]: (row["title"], row["status"]) for row in index} == found


def test_sources_of_facts_can_be_opened_by_everybody() -> None:
    """They are public documents or pages of this repository, never somebody's notes."""
    linter = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]
    folders = (*linter["root_packages"], "tools")
    modules = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 100
    assert [name(it) for it in (*PAGES, *modules) if _NOTES.search(it.read_text("utf-8"))] == []


@pytest.mark.parametrize("file", [*PAGES, *MANIFESTS], ids=name)
def test_no_page_names_a_python_that_is_on_few_machines(file: Path) -> None:
    """Debian, macOS and most images have no ``python``: there it is python3."""
    lines = file.read_text("utf-8").splitlines()
    assert [line for line in lines if _BARE_PYTHON.search(line)] == []


def test_such_a_line_would_be_found() -> None:
    assert _BARE_PYTHON.search("In a clone: `python -m tools.access`")
    assert not _BARE_PYTHON.search(".venv/bin/python -m tools.access")
