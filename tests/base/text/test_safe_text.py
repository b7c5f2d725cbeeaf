# SPDX-License-Identifier: Apache-2.0
"""Text from outside becomes text that no terminal obeys; plain text of any language stays."""

from __future__ import annotations

import ast
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.text.safe_text import SAFE_PATTERN, is_safe, safe_json, safe_line, safe_lines, short_line

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
VISIBLE_FORMAT = {
    *range(0x600, 0x606),
    *(0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD),
}
"""Source: PropList.txt of Unicode 15, Prepended_Concatenation_Mark, and U+070F."""
JOINER = 0x200D

PLAIN = (
    "gpu-node-1.example.com",
    "Zürich façade naïve Ångström",
    "ノード 東京 　 서울 北京",
    "עברית العربية",
    "हिन्दी ไทย",
    "🙂 👩\u200d💻 ❤️\u200d🔥 👍🏽 🇨🇭 ☎\ufe0e",
    "a\\x1b is four characters",
    "[bold red]not markup[/]",
    "½ µm → ∞ ─│┌ ▁▂▃",
    "",
)


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_of_any_language_stays_as_it_is(text: str) -> None:
    assert safe_line(text) == text
    assert is_safe(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("gpu\u202egpj.exe\u202c", "gpu\\u202egpj.exe\\u202c"),
        ("\u2066x\u2069 \u061c\u200e\u200f", "\\u2066x\\u2069 \\u061c\\u200e\\u200f"),
        ("a\u200bb\u200cc\u200dd\ufeff\u2060", "a\\u200bb\\u200cc\\u200dd\\ufeff\\u2060"),
        ("\ud800 \udfff", "\\ud800 \\udfff"),
        ("\U000e0041\U000e0100", "\\U000e0041\\U000e0100"),
        ("\u3164\u034f\xad\x7f\x00", "\\u3164\\u034f\\xad\\x7f\\x00"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert safe_line(text) == shown
    assert not is_safe(text)


def test_every_character_of_unicode_without_a_shape_is_escaped_and_no_letter_is() -> None:
    """Judged by the interpreter's Unicode tables."""
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category in ("Cc", "Cs", "Zl", "Zp") or (
            category == "Cf" and code not in VISIBLE_FORMAT
        ):
            assert safe_line(chr(code)).isascii(), hex(code)
            assert safe_line(chr(code)).isprintable(), hex(code)
        elif category[0] in "PS" or category in ("Lu", "Ll", "Lt", "Lm", "Nd", "Nl", "No", "Mc"):
            assert safe_line(chr(code)) == chr(code), hex(code)


@given(ANY_TEXT)
def test_safe_text_is_one_line_can_be_written_and_reads_back(text: str) -> None:
    shown = safe_line(text)
    assert shown.splitlines() in ([shown], [])
    assert is_safe(shown)
    assert safe_line(shown) == shown
    assert shown.encode() is not None
    if "\\" not in text and "'" not in text:
        assert ast.literal_eval(f"'{shown}'") == text


@given(st.lists(ANY_TEXT))
def test_lines_stay_lines(texts: list[str]) -> None:
    lines = [text.replace("\n", "") for text in texts]
    assert safe_lines("\n".join(lines)) == "\n".join(map(safe_line, lines))


@given(st.recursive(ANY_TEXT, lambda inner: st.dictionaries(ANY_TEXT, inner)), st.booleans())
def test_json_keeps_its_value_and_has_nothing_unsafe(value: object, indented: bool) -> None:
    indent = 2 if indented else None
    shown = safe_json(json.dumps(value, ensure_ascii=False, indent=indent))
    assert json.loads(shown) == json.loads(json.dumps(value))
    assert all(map(is_safe, shown.split("\n")))


@given(ANY_TEXT)
def test_the_pattern_of_schemas_takes_every_safe_text(text: str) -> None:
    assert re.search(SAFE_PATTERN, safe_line(text))


@pytest.mark.parametrize("bad", ["\x1b", "\x9b", "\u202e", "\u2066", "\u061c", "\u200b", "\u2028"])
def test_the_pattern_of_schemas_refuses_control_and_bidirectional_characters(bad: str) -> None:
    assert not re.search(SAFE_PATTERN, f"a{bad}b")
    assert not re.search(SAFE_PATTERN, bad)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("five", "five"),
        (" a\n\tb ", "a b"),
        ("sixsix", "sixsix"),
        ("seven", "seven"),
        ("sevenseven", "seven…"),
        ("\x1b[2J", "\\x1b[…"),
    ],
)
def test_a_short_line_has_its_words_and_a_mark_where_it_was_cut(text: str, shown: str) -> None:
    assert short_line(text, 6) == shown
