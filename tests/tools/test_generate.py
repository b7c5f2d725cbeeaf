# SPDX-License-Identifier: Apache-2.0
"""Generated pages: written, left alone when right, and named when stale."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.deploy.dockerfile import REPOSITORY
from tools import package_lists
from tools.markdown import table

PAGE = "by hand\n\n<!-- generated: labels -->\n{}<!-- end -->\n\nby hand too\n"


@pytest.fixture
def project(generate_tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A project whose README has one section, not yet filled; else it has the lists of packages."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(PAGE.format("old\n"))
    for path in (package_lists.PROJECT, package_lists.IGNORED, package_lists.IMAGE):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    monkeypatch.setattr(generate_tool, "ROOT", tmp_path)
    return tmp_path


def run(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the tool with these arguments."""
    monkeypatch.setattr("sys.argv", ["generate.py", *arguments])
    code: int = tool.main()
    return code


def test_check_names_each_stale_file_and_changes_none(
    generate_tool: ModuleType,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(generate_tool, monkeypatch, "--check") == 1
    assert "README.md is stale: run `make docs` and commit it" in capsys.readouterr().err
    assert (project / "README.md").read_text() == PAGE.format("old\n")


def test_writing_fills_the_section_and_keeps_what_was_written_by_hand(
    generate_tool: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(generate_tool, monkeypatch) == 0
    text = (project / "README.md").read_text()
    assert text.startswith("by hand\n\n<!-- generated: labels -->\n")
    assert text.endswith("<!-- end -->\n\nby hand too\n")
    assert "| `nvidia.com/gpu.count` |" in text
    assert (project / "docs/schemas/topology.schema.json").exists()


def test_what_was_written_passes_the_check(
    generate_tool: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.exists()
    run(generate_tool, monkeypatch)
    assert run(generate_tool, monkeypatch, "--check") == 0


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(("a",), [("x|y",)]).splitlines()[-1] == r"| x\|y |"
