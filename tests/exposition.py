# SPDX-License-Identifier: Apache-2.0
"""A strict reader of Prometheus text format 0.0.4, written from its specification alone.

It refuses what a lenient parser forgives, so a test that reads an exposition with it also
tests that the exposition is well formed.
Source: prometheus.io/docs/instrumenting/exposition_formats, text-based format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]

_HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\\n]|\\[\\n])*)")
_TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary|untyped)")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([-+0-9.eE]+|NaN|\+Inf|-Inf)", re.S)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^\\"\n]|\\[\\"n])*)"(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


@dataclass
class Family:
    """One family as announced, and its series: (sample name, labels in order) to value text."""

    name: str
    help: str
    kind: str
    series: dict[tuple[str, Labels], str] = field(default_factory=dict)


def parse(body: bytes) -> dict[str, Family]:
    """Families by name. Raises ValueError for anything the format does not allow.

    Also for what a scraper drops or misreads: a family announced twice or without help and
    type, a series twice, series away from their family.
    """
    text = body.decode("utf-8")
    if text and not text.endswith("\n"):
        raise ValueError("the last line does not end")
    families: dict[str, Family] = {}
    help_text: tuple[str, str] | None = None
    current: Family | None = None
    for line in text.split("\n")[:-1]:
        if match := _HELP.fullmatch(line):
            help_text = (match[1], _unescape(match[2]))
        elif match := _TYPE.fullmatch(line):
            if help_text is None or help_text[0] != match[1] or match[1] in families:
                raise ValueError(f"announced twice or without help: {line}")
            current = families[match[1]] = Family(match[1], help_text[1], match[2])
        elif (match := _SAMPLE.fullmatch(line)) and current is not None:
            _add(current, match[1], _labels(match[2] or ""), match[3])
        else:
            raise ValueError(f"neither help, type nor sample: {line!r}")
    return families


def series(body: bytes) -> dict[tuple[str, Labels], float]:
    """Every series of an exposition, labels sorted by name, to its value."""
    return {
        (name, tuple(sorted(labels))): float(value)
        for family in parse(body).values()
        for (name, labels), value in family.series.items()
    }


def _add(family: Family, name: str, labels: Labels, value: str) -> None:
    if name not in {family.name + suffix for suffix in _SUFFIXES.get(family.kind, ("",))}:
        raise ValueError(f"{name} stands under {family.name}")
    if len({label for label, _ in labels}) < len(labels):
        raise ValueError(f"a label twice in {name}: {labels}")
    if (name, labels) in family.series:
        raise ValueError(f"series twice: {name} {labels}")
    float(value)
    family.series[name, labels] = value


def _labels(text: str) -> Labels:
    labels = []
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            raise ValueError(f"not a label: {text[at:]!r}")
        labels.append((match[1], _unescape(match[2])))
        at = match.end()
    return tuple(labels)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
