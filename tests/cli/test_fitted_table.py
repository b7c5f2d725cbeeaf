# SPDX-License-Identifier: Apache-2.0
"""Columns of a table that go, and columns that are cut, where there is no room."""

from __future__ import annotations

from collections.abc import Mapping

from cli import terminal
from cli.fitted_table import Column, fit_rows

ROW = {"a": "a" * 10, "b": "b" * 10, "c": "c" * 10, "d": "-"}


def column(title: str, **rules: int) -> Column:
    return Column(title=title, cell=lambda row: _text(row, title), **rules)  # type: ignore[arg-type]


def _text(row: Mapping[str, str], title: str) -> str:
    return row[title]


def lines(width: int, *columns: Column) -> list[str]:
    return list(terminal.table_lines(fit_rows(columns, [ROW], width), styled=False, width=width))


def test_the_column_with_the_highest_number_goes_first() -> None:
    columns = (column("a"), column("b", goes=2), column("c", goes=1))
    assert lines(34, *columns)[0].split() == ["a", "b", "c"]
    assert lines(33, *columns)[0].split() == ["a", "c"]
    assert lines(21, *columns)[0].split() == ["a"]


def test_one_in_which_nothing_stands_is_left_out_unless_it_stays() -> None:
    assert lines(99, column("a"), column("d", goes=1))[0].split() == ["a"]
    assert lines(99, column("a"), column("d"))[0].split() == ["a", "d"]


def test_only_what_may_be_cut_is_cut_and_no_further_than_it_may() -> None:
    columns = (column("a"), column("b", least=4), column("c", goes=1))
    assert lines(30, *columns)[1] == "aaaaaaaaaa  bbbbb…  cccccccccc"
    assert lines(28, *columns)[1] == "aaaaaaaaaa  bbb…  cccccccccc"
    assert lines(27, *columns)[1] == "aaaaaaaaaa  bbbbbbbbbb"
    assert lines(20, *columns)[1] == "aaaaaaaaaa  bbbbbbb…"
