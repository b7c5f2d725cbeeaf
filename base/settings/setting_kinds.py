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
    """One kind of setting: how its text is read, and what is expected."""

    metavar: str
    """Placeholder in help texts."""
    expects: str
    """What to write, as it follows the word "expected" in messages."""
    parse: Callable[[str], Value]
    """Raises ValueError or KeyError on any other text."""
    show: Callable[[Any], str] = str
    """The text that gives this value; never called with None."""

    def read(self, text: str) -> Value:
        """The value of ``text``. Raises ValueError that says what is expected."""
        try:
            return self.parse(text)
        except (ValueError, KeyError):
            raise ValueError(f"expected {self.expects}") from None


_SECONDS_BY_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def _seconds(text: str) -> float:
    """Seconds of ``90``, ``60s``, ``1m30s`` or ``500ms``."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return sum(float(number) * _SECONDS_BY_UNIT[unit] for number, unit in _PART.findall(text))


def _show_seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _text(text: str) -> str:
    return text


def duration(at_least: str) -> SettingKind[float]:
    """A duration in seconds, from ``at_least`` to a day."""

    def parse(text: str) -> float:
        seconds = _seconds(text)
        if not _seconds(at_least) <= seconds <= _seconds("24h"):
            raise ValueError(text)
        return seconds

    expects = f"a duration from {at_least} to 24h, such as 90, 60s or 1m30s"
    return SettingKind(metavar="DURATION", expects=expects, parse=parse, show=_show_seconds)


def ratio(at_most: float) -> SettingKind[float]:
    """A number from 0 to ``at_most``."""

    def parse(text: str) -> float:
        value = float(text)
        if not 0 <= value <= at_most:  # also refuses nan
            raise ValueError(text)
        return value

    return SettingKind(metavar="RATIO", expects=f"a number from 0 to {at_most:g}", parse=parse)


def count(at_most: int) -> SettingKind[int]:
    """A whole number from 0 to ``at_most``."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or int(text) > at_most:
            raise ValueError(text)
        return int(text)

    return SettingKind(metavar="COUNT", expects=f"a whole number from 0 to {at_most}", parse=parse)


def choice(*words: str) -> SettingKind[str]:
    """A setting that is one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    *most, last = words
    expects = f"{', '.join(most)} or {last}"
    return SettingKind(metavar="|".join(words), expects=expects, parse=parse)


def member_of(words: type[Member]) -> SettingKind[Member]:
    """One of an enumeration's values, read as its member."""
    named = choice(*(each.value for each in words))
    return SettingKind(metavar=named.metavar, expects=named.expects, parse=words)


FLAG = SettingKind(
    metavar="", expects="true or false", parse=_flag, show=lambda value: str(value).lower()
)
PATH = SettingKind(metavar="PATH", expects="a path", parse=Path)


def text(metavar: str) -> SettingKind[str]:
    """A setting that may be any text."""
    return SettingKind(metavar=metavar, expects="text", parse=_text)


def matching(metavar: str, expects: str, pattern: str) -> SettingKind[str]:
    """Text that ``pattern`` matches, from its first character to its last."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return SettingKind(metavar=metavar, expects=expects, parse=parse)


def _words(text: str) -> tuple[str, ...]:
    """The words between commas, without the blanks around them."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _names(text: str) -> tuple[str, ...]:
    names = _words(text)
    if not all(re.fullmatch(r"[A-Za-z0-9._/-]+", name) for name in names):
        raise ValueError(text)
    return names


def _patterns(text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(word) for word in _words(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(text) from error


def _show_patterns(value: tuple[re.Pattern[str], ...]) -> str:
    return ",".join(each.pattern for each in value)


NAMES = SettingKind(
    metavar="NAME,…", expects="names with commas between", parse=_names, show=",".join
)
PATTERNS = SettingKind(
    metavar="REGEX,…",
    expects="regular expressions with commas between",
    parse=_patterns,
    show=_show_patterns,
)
