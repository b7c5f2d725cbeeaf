# SPDX-License-Identifier: Apache-2.0
"""What commands print: rich reads no markup in a text, and widths count what is shown."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from base.text.safe_text import is_safe
from cli import terminal
from cli.terminal import Styled, TextTable

MARKUP = ("[bold red]x[/]", "[link=file:///etc]x[/link]", "[/]", "[x", "\\[red]", ":smile:")


@pytest.mark.parametrize("text", MARKUP)
@pytest.mark.parametrize("styled", [False, True])
def test_markup_of_rich_is_text_in_every_place(text: str, styled: bool) -> None:
    table = TextTable(header=(text,), rows=((text,), (Styled(text, ""),)))

    lines = terminal.table_lines(table, styled=styled)

    assert [text in line for line in lines] == [True, True, True]
    assert terminal.joined_cells(text, styled=styled) == text


def test_a_cell_is_cut_by_what_is_shown_of_it() -> None:
    assert terminal.width_of("\x1b\x1b") == 8
    assert terminal.cut_cell("\x1b\x1b", 6) == "\\x1b\\…"
    assert terminal.cut_cell(Styled("\x1b\x1b", "dim"), 6) == Styled("\\x1b\\…", "dim")


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.lists(st.text()))))
def test_yaml_and_json_keep_every_value_and_have_nothing_unsafe(value: dict[str, object]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        printed: list[str] = []
        patched.setattr("click.echo", lambda text, **_more: printed.append(text))
        terminal.print_data(value, "json")
        terminal.print_data(value, "yaml")

    as_json, as_yaml = printed
    assert msgspec.json.decode(as_json) == value
    assert yaml.safe_load(as_yaml) == value
    assert all(is_safe(line) for text in printed for line in text.split("\n"))
