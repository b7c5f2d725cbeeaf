# SPDX-License-Identifier: Apache-2.0
"""Kinds of setting: the form of the text and the value it stands for. Pure.

A kind whose value belongs to one domain stands with that domain, such as the address of a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", covariant=True)
Member = TypeVar("Member", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingKind(Generic[Value]):
    """A kind of setting: the parser of its text, and the text that is expected."""

    metavar: str
    """Placeholder in help texts."""
    expects: str
    """What to write, as it follows the word "expected" in messages."""
    parse: Callable[[str], Value]
    """Raises ValueError or KeyError on any other text."""
    show: Callable[[Any], str] = str
    """The text that gives this value; never called with None."""
    form: str | None = None
    """Regular expression of every text that is taken, for whoever judges without this program.

    Python and Go read it alike. It may match more than is taken. None: there is no such expression.
    """
    bounds: tuple[float, float] | None = None
    """Lowest and highest number that the text may stand for; of a duration in seconds."""

    def read(self, text: str) -> Value:
        """The value of ``text``. Raises ValueError that says what is expected."""
        try:
            return self.parse(text)
        except (ValueError, KeyError):
            raise ValueError(f"expected {self.expects}") from None


_SECONDS_BY_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})(ms|h|m|s)")
_DURATION = rf"{_NUMBER}|(?:{_NUMBER}(?:ms|h|m|s))+"
_RATIO = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_COUNT = "[0-9]{1,9}"
_NAME = r"[A-Za-z0-9._/-]+"


def _seconds(text: str) -> float:
    """Seconds of ``90``, ``60s``, ``1m30s`` or ``500ms``."""
    if not re.fullmatch(_DURATION, text):
        raise ValueError(text)
    if re.fullmatch(_NUMBER, text):
        return float(text)
    return sum(float(number) * _SECONDS_BY_UNIT[unit] for number, unit in _PART.findall(text))


def _show_seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _text(text: str) -> str:
    return text


def duration_kind(at_least: str) -> SettingKind[float]:
    """A duration in seconds, from ``at_least`` to a day."""
    bounds = _seconds(at_least), _seconds("24h")

    def parse(text: str) -> float:
        seconds = _seconds(text)
        if not bounds[0] <= seconds <= bounds[1]:
            raise ValueError(text)
        return seconds

    return SettingKind(
        metavar="DURATION",
        expects=f"a duration from {at_least} to 24h, such as 90, 60s or 1m30s",
        parse=parse,
        show=_show_seconds,
        form=_DURATION,
        bounds=bounds,
    )


def ratio_kind(at_most: float) -> SettingKind[float]:
    """A number from 0 to ``at_most``."""

    def parse(text: str) -> float:
        if not re.fullmatch(_RATIO, text) or float(text) > at_most:
            raise ValueError(text)
        return float(text)

    return SettingKind(
        metavar="RATIO",
        expects=f"a number from 0 to {at_most:g}",
        parse=parse,
        form=_RATIO,
        bounds=(0, at_most),
    )


def count_kind(at_most: int) -> SettingKind[int]:
    """A whole number from 0 to ``at_most``."""

    def parse(text: str) -> int:
        if not re.fullmatch(_COUNT, text) or int(text) > at_most:
            raise ValueError(text)
        return int(text)

    return SettingKind(
        metavar="COUNT",
        expects=f"a whole number from 0 to {at_most}",
        parse=parse,
        form=_COUNT,
        bounds=(0, at_most),
    )


def choice_kind(*words: str) -> SettingKind[str]:
    """A setting that is one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    *first_words, last = words
    expects = f"{', '.join(first_words)} or {last}"
    named = "|".join(words)
    return SettingKind(metavar=named, expects=expects, parse=parse, form=named)


def member_kind(words: type[Member]) -> SettingKind[Member]:
    """A setting that is a value of this enumeration, read as its member."""
    named = choice_kind(*(member.value for member in words))
    return SettingKind(metavar=named.metavar, expects=named.expects, parse=words, form=named.form)


FLAG = SettingKind(
    metavar="",
    expects="true or false",
    parse=_flag,
    show=lambda value: str(value).lower(),
    form="(?i:true|false)",
)
PATH = SettingKind(metavar="PATH", expects="a path", parse=Path)


def text_kind(metavar: str) -> SettingKind[str]:
    """A setting that may be any text."""
    return SettingKind(metavar=metavar, expects="text", parse=_text)


def pattern_kind(metavar: str, expects: str, pattern: str) -> SettingKind[str]:
    """Text that ``pattern`` matches, from its first character to its last."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return SettingKind(metavar=metavar, expects=expects, parse=parse, form=pattern)


def _words(text: str) -> tuple[str, ...]:
    """The words between commas, without the blanks around them."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _names(text: str) -> tuple[str, ...]:
    names = _words(text)
    if not all(re.fullmatch(_NAME, name) for name in names):
        raise ValueError(text)
    return names


def _patterns(text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(word) for word in _words(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(text) from error


def _show_patterns(value: tuple[re.Pattern[str], ...]) -> str:
    return ",".join(pattern.pattern for pattern in value)


NAMES = SettingKind(
    metavar="NAME,…",
    expects="names with commas between",
    parse=_names,
    show=",".join,
    form=rf"\s*(?:{_NAME}\s*)?(?:,\s*(?:{_NAME}\s*)?)*",
)
PATTERNS = SettingKind(
    metavar="REGEX,…",
    expects="regular expressions with commas between",
    parse=_patterns,
    show=_show_patterns,
)
