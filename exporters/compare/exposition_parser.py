# SPDX-License-Identifier: Apache-2.0
"""Read Prometheus text format 0.0.4, strictly and fast, with names as they are written. Pure.

prometheus_client's parser takes ``_total`` off counters' names and cannot say which line is
wrong, so it can neither compare two expositions nor explain a broken one.
Source: prometheus.io/docs/instrumenting/exposition_formats, text-based format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
"""Name and value, sorted by name; each name once."""

Key = tuple[str, Labels]
"""A series: the name in front of the braces, such as ``x_bucket``, and its labels."""

MOST_SERIES = 500_000
MOST_LINE_CHARACTERS = 1 << 20
MOST_FAULTS = 100
"""At most this many faults are kept; a body of another format has one in each line."""

_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}
_KINDS = ("counter", "gauge", "histogram", "summary", "untyped")

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_VALUE = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?[Ii]nf|NaN|nan"
_HEAD = re.compile(rf"[ \t]*({_NAME})[ \t]*(?:\{{(.*))?", re.DOTALL)
_REST = re.compile(rf"[ \t]*({_VALUE})(?:[ \t]+(-?\d{{1,19}}))?[ \t]*", re.ASCII)
_LABEL = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\[\\"n][^"\\]*)*)"[ \t]*(?:,[ \t]*|$)'
)
_COMMENT = re.compile(rf"[ \t]*#[ \t]+(HELP|TYPE)[ \t]+({_NAME})(?:[ \t]+(.*))?", re.DOTALL)
_HELP = re.compile(r"[^\\]*(?:\\[\\n][^\\]*)*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpositionFault:
    """A line that breaks the format, and the reason."""

    line: int
    """Number of the line, from 1."""
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Malformed(ValueError):
    """The text is no exposition, or a larger one than is read; the message names the line."""


@dataclass(slots=True, kw_only=True)
class ParsedFamily:
    """Type, help text and series of one metric, in the order of its lines."""

    name: str
    kind: str | None = None
    """Type by the family's ``# TYPE``; None without one, which counts as untyped."""
    help: str | None = None
    series: dict[Key, float] = field(default_factory=dict)
    timestamps: dict[Key, int] = field(default_factory=dict)
    """Milliseconds since 1970, of the series that have one."""


Families = Mapping[str, ParsedFamily]


class Parser:
    """Reads the expositions of one source one after the other.

    It keeps what stands before the values from one to the next, so that all but the first
    cost little: text of at most one exposition.
    """

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._heads: dict[str, Key] = {}

    def parse(self, body: bytes, faults: list[ExpositionFault] | None = None) -> Families:
        """Parse one exposition into families by name, in their order.

        Without ``faults`` the first line that breaks the format raises Malformed. With it such
        lines are put there and left out, but for series apart from their family's others, which
        Prometheus takes as well; text that is not UTF-8 gets replacement characters. Raises
        Malformed in any case for more series than are read.
        """
        reading = _Reading(self._heads, self._most_series)
        for number, line in enumerate(_lines(_text(body, faults)), 1):
            try:
                reading.read(line)
            except ValueError as error:
                _report(faults, ExpositionFault(line=number, reason=str(error)))
            if reading.count > self._most_series:
                raise Malformed(f"line {number}: more than {self._most_series} series")
        if body and not body.endswith(b"\n"):
            _report(
                faults,
                ExpositionFault(line=body.count(b"\n") + 1, reason="the last line has no end"),
            )
        self._heads = reading.used
        return reading.families


def parse_exposition(body: bytes, faults: list[ExpositionFault] | None = None) -> Families:
    """Parse one exposition, as :meth:`Parser.parse` does."""
    return Parser().parse(body, faults)


def exposition_labels(labels: Labels, most_characters: int = 256) -> str:
    """Labels as an exposition has them, between the braces; long values are cut."""
    return ",".join(
        f'{name}="{value[:most_characters].translate(_ESCAPES)}"' for name, value in labels
    )


def _report(faults: list[ExpositionFault] | None, fault: ExpositionFault) -> None:
    if faults is None:
        raise Malformed(str(fault)) from None
    if len(faults) < MOST_FAULTS:
        faults.append(fault)


def _text(body: bytes, faults: list[ExpositionFault] | None) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        _report(faults, ExpositionFault(line=line, reason="it is not UTF-8 text"))
        return body.decode("utf-8", "replace")


def _lines(text: str) -> Iterator[str]:
    """Lines of the text as an iterator: a list of them would take the memory of the text again."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    if start < len(text):
        yield text[start:]


class _Reading:
    """The lines of one exposition, so far."""

    def __init__(self, heads: Mapping[str, Key], most_series: int) -> None:
        self.families: dict[str, ParsedFamily] = {}
        self.used: dict[str, Key] = {}
        self.count = 0
        self._heads = heads
        self._most_series = most_series
        self._current: ParsedFamily | None = None

    def read(self, line: str) -> None:
        """Take one line in. Raises ValueError that says what is wrong with it."""
        if len(line) > MOST_LINE_CHARACTERS:
            raise ValueError(f"longer than {MOST_LINE_CHARACTERS} characters")
        head, brace, rest = line.rpartition("}")
        if not brace or line.lstrip(" \t").startswith("#"):
            return self._read_plain(line)
        key = self._heads.get(head) or _key(head)
        self._add(key, rest)
        self.used[head] = key
        return None

    def _read_plain(self, line: str) -> None:
        """An empty line, a comment, or a series without braces."""
        stripped = line.strip(" \t")
        if not stripped:
            return
        if stripped.startswith("#"):
            self._comment(line)
            return
        name = stripped.replace("\t", " ").partition(" ")[0]
        self._add(_key(name, braces=False), stripped[len(name) :])

    def _add(self, key: Key, rest: str) -> None:
        match = _REST.fullmatch(rest)
        if match is None:
            raise ValueError(f"{_short(rest.strip())} is no value with an optional timestamp")
        family, before = self._current, self._current
        if family is None or not _holds(family, key[0]):
            family = self._current = self._family_of(key[0])
        if key in family.series:
            raise ValueError(f"{_short(key[0])} with the same labels for the second time")
        is_apart = family is not before and bool(family.series)
        value, timestamp = match.groups()
        family.series[key] = float(value)
        if timestamp is not None:
            family.timestamps[key] = int(timestamp)
        self.count += 1
        if is_apart:
            raise ValueError(f"lines of {_short(family.name)} are apart from each other")

    def _family_of(self, name: str) -> ParsedFamily:
        """The family that a series stands under. Raises ValueError where it cannot."""
        for family in self._candidates(name):
            if _holds(family, name):
                return family
        if name in self.families:
            raise ValueError(f"{_short(name)} is a histogram: it has no such series")
        family = self.families[name] = ParsedFamily(name=name)
        return family

    def _candidates(self, name: str) -> Iterator[ParsedFamily]:
        for suffix in ("", "_bucket", "_sum", "_count"):
            if name.endswith(suffix) and (stem := name.removesuffix(suffix)) in self.families:
                yield self.families[stem]

    def _comment(self, line: str) -> None:
        match = _COMMENT.fullmatch(line)
        if match is None:
            if re.match(r"[ \t]*#[ \t]+(HELP|TYPE)([ \t]|$)", line):
                raise ValueError("HELP or TYPE without the name of a metric")
            return
        keyword, name, text = match[1], match[2], match[3] or ""
        family = self.families.get(name)
        if family is None:
            if len(self.families) >= self._most_series:
                raise ValueError("too many metrics")
            family = self.families[name] = ParsedFamily(name=name)
        (_set_help if keyword == "HELP" else _set_kind)(family, text)
        if not family.series:
            self._current = family


def _holds(family: ParsedFamily, name: str) -> bool:
    """A series of this name stands under this family."""
    if family.name == name:
        return family.kind != "histogram"
    suffixes = _SUFFIXES.get(family.kind or "", ())
    return any(family.name + suffix == name for suffix in suffixes)


def _set_help(family: ParsedFamily, text: str) -> None:
    if family.help is not None:
        raise ValueError(f"a second HELP for {_short(family.name)}")
    if _HELP.fullmatch(text) is None:
        raise ValueError(f"HELP of {_short(family.name)} has a backslash that escapes nothing")
    family.help = _unescape(text)


def _set_kind(family: ParsedFamily, text: str) -> None:
    kind = text.strip(" \t")
    if family.kind is not None:
        raise ValueError(f"a second TYPE for {_short(family.name)}")
    if family.series:
        raise ValueError(f"TYPE of {_short(family.name)} comes after its series")
    if kind not in _KINDS:
        raise ValueError(f"TYPE of {_short(family.name)} is {_short(kind)}: no such type")
    family.kind = kind


def _key(head: str, *, braces: bool = True) -> Key:
    """The series whose line begins with ``head``, without its closing brace."""
    match = _HEAD.fullmatch(head)
    if match is None or (match[2] is None) is braces:
        raise ValueError(f"{_short(head)} is no name of a metric with its labels")
    return match[1], _labels(match[2] or "")


def _labels(text: str) -> Labels:
    labels = {}
    position = len(text) - len(text.lstrip(" \t"))
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            raise ValueError(f"not a label: {_short(text[position:])}")
        if match[1] in labels:
            raise ValueError(f"label {_short(match[1])} stands there twice")
        labels[match[1]] = _unescape(match[2])
        position = match.end()
    return tuple(sorted(labels.items()))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def _short(text: str) -> str:
    """Foreign text for a message: one short line in which nothing can hide."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
