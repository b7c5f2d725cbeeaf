# SPDX-License-Identifier: Apache-2.0
"""What promtool finds wrong with a metric family, for where no promtool is at hand.

Source: client_golang, testutil/promlint/validations, whose sentences are shortened here. A
little stricter: it forgives words that are no unit to it.
"""

from __future__ import annotations

import re

from tests.exposition import Family

_BASE = "amperes|bytes|celsius|grams|joules|kelvin|meters|metres|seconds|volts"
_PREFIXES = "pico|nano|micro|milli|centi|deci|deca|hecto|kilo|kibi|mega|mebi|mibi|giga|gibi"
_OTHERS = "minutes|hours|days|weeks|kelvins|fahrenheit|rankine|inches|yards|miles|bits|calories"
_OTHER_UNIT = re.compile(
    rf"({_PREFIXES}|tera|tebi|peta|pebi)?({_OTHERS}|pounds|ounces|percent)"
    rf"|({_PREFIXES}|tera|tebi|peta|pebi)({_BASE}|watts|hertz)"
)
_ABBREVIATED = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
_SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_OWN_SUFFIXES = {"bucket": {"histogram"}, "count": {"histogram", "summary"}}
_OWN_SUFFIXES["sum"] = _OWN_SUFFIXES["count"]
_OWN_LABELS = {"le": "histogram", "quantile": "summary"}


def problems(family: Family) -> list[str]:
    """One short sentence for each; empty where promtool has nothing to say."""
    words = family.name.split("_")
    labels = {label for _, pairs in family.series for label, _ in pairs}
    found = {
        "no help": not family.help,
        "a counter without _total": family.kind == "counter" and words[-1] != "total",
        "_total without a counter": family.kind != "counter" and words[-1] == "total",
        "no base unit": any(_OTHER_UNIT.fullmatch(word) for word in words),
        "an abbreviated unit": not _ABBREVIATED.isdisjoint(words),
        "its type in its name": family.kind in words[1:],
        "no snake case": not all(map(_SNAKE_CASE.fullmatch, (family.name, *labels))),
        "a suffix of another type": family.kind not in _OWN_SUFFIXES.get(words[-1], {family.kind}),
        "a label of another type": any(
            _OWN_LABELS.get(label, family.kind) != family.kind for label in labels
        ),
    }
    return [problem for problem, holds in found.items() if holds]
