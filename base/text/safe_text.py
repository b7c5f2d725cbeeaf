# SPDX-License-Identifier: Apache-2.0
"""Text from outside, made safe for terminals, logs and Events. Pure.

A terminal obeys control characters: an escape sequence can clear the screen or write to the
clipboard. Bidirectional controls show a line in another order than it has, and invisible
characters hide a difference. All of them are shown as escapes here, such as ``\\x1b``; accents,
CJK and emoji stay as they are.

Source: the Unicode Character Database, categories Cc, Cf, Cs, Zl and Zp and the property
Default_Ignorable_Code_Point; Unicode Technical Report 36, "Unicode Security Considerations".
"""

from __future__ import annotations

import json
import re
from typing import Final

_CONTROL: Final = r"\x00-\x1f\x7f-\x9f"
_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
)
"""Format characters and others without a shape, below U+10000. The Arabic signs of category Cf
have a shape and stay; so do U+FE0E and U+FE0F, which choose how an emoji is drawn."""
_BEYOND: Final = (
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Invisible characters from U+10000 on; the last are tags and variation selectors, which can carry
a text."""
_SURROGATES: Final = r"\ud800-\udfff"
_JOINER: Final = (
    "(?<![\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d"
    "|\u200d(?![\u2190-\u2bff\U0001f000-\U0001faff])"
)
"""A zero-width joiner anywhere but between the parts of an emoji."""

_UNSAFE: Final = re.compile(f"[{_CONTROL}{_INVISIBLE}{_BEYOND}{_SURROGATES}]|{_JOINER}")

SAFE_PATTERN: Final = f"^[^{_CONTROL}{_INVISIBLE}]*$"
"""Pattern for JSON Schemas: one line without control, bidirectional and invisible characters.

The characters themselves stand in it, since regular expressions of JavaScript, Go and Python have
no escape for them in common. U+200D, and what is beyond U+FFFF, only :func:`is_safe` refuses.
"""


def is_safe(text: str) -> bool:
    """Whether :func:`safe_line` leaves the text as it is."""
    return (text.isascii() and text.isprintable()) or _UNSAFE.search(text) is None


def safe_line(text: str) -> str:
    """The text as one line that every terminal shows as it is; what is unsafe is escaped.

    The escapes are Python's: ``\\n``, ``\\x1b``, ``\\u202e``, ``\\U000e0041``. A backslash of the
    text stays as it is, so making a text safe twice changes nothing.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def safe_lines(text: str) -> str:
    """A text of several lines with each of them as :func:`safe_line` has it."""
    return "\n".join(map(safe_line, text.split("\n")))


def short_line(text: str, max_length: int) -> str:
    """The text on one safe line, cut to ``max_length`` characters with a mark at the end."""
    line = safe_line(" ".join(text.split()))
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def safe_json(document: str) -> str:
    """A JSON document of the same value, in which strings have ``\\u`` for what is unsafe.

    Outside of its strings it has no tabs and no carriage returns.
    """
    if document.isascii() and "\x7f" not in document:
        return document
    return "\n".join(_UNSAFE.sub(_json_escape, line) for line in document.split("\n"))


def _json_escape(match: re.Match[str]) -> str:
    """JSON's escape, in two halves from U+10000 on; JSON itself would leave U+007F alone."""
    return "\\u007f" if match[0] == "\x7f" else json.dumps(match[0])[1:-1]
