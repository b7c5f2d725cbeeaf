# SPDX-License-Identifier: Apache-2.0
"""The command that writes the pages of figures: what it may be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.page import Section


def section() -> Section:
    """One figure."""
    return Section(title="Speed", text="Of light.", rows=(("in vacuum", "299792458 m/s"),))


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pages are written; there are two, each measured at once."""
    monkeypatch.setattr(report, "DOCS", tmp_path)
    pages = {
        "first": report.Page(title="First", sections=(section,)),
        "second": report.Page(title="Second", sections=(section,), how="These are sums."),
    }
    monkeypatch.setattr(report, "PAGES", pages)
    return tmp_path


def test_the_pages_that_are_named_are_written_and_no_other(docs: Path) -> None:
    """With how the figures come about, which is not the same on each page."""
    report.main(["second"])

    assert [file.name for file in docs.iterdir()] == ["second.md"]
    assert "Written by `make bench`. These are sums. This run:" in (docs / "second.md").read_text()


def test_with_no_name_all_are_written(docs: Path) -> None:
    """As by make bench."""
    report.main([])

    assert sorted(file.name for file in docs.iterdir()) == ["first.md", "second.md"]
    assert "the figures are medians. This run:" in (docs / "first.md").read_text()


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["first", "third"], 2)])
def test_who_asks_for_something_else_learns_the_pages_and_nothing_is_measured(
    docs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    """Help and a wrong name alike."""
    with pytest.raises(SystemExit) as ended:
        report.main(arguments)

    said = capsys.readouterr()
    assert ended.value.code == code
    assert "first, second" in said.out + said.err
    assert list(docs.iterdir()) == []
