# SPDX-License-Identifier: Apache-2.0
"""Label selectors as people write them after ``-l``. Pure.

Source: k8s.io/apimachinery, pkg/labels/selector.go; of its operators ``>`` and ``<`` are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from base.errors import BadInput

_KEY: Final = (
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
_COMPARED: Final = re.compile(rf"({_KEY})\s*(=|==|!=)\s*({_VALUE})")
_LISTED: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_PRESENT: Final = re.compile(rf"(!?)\s*({_KEY})")
_BETWEEN: Final = re.compile(r",(?![^()]*\))")
"""A comma that is in no list of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """What one label has to be like."""

    key: str
    values: frozenset[str] | None
    """It has one of them; None: any."""
    negated: bool = False
    """It must not be like that: another value, or no such label."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are as demanded."""
        there = self.key in labels
        alike = there if self.values is None else there and labels[self.key] in self.values
        return alike is not self.negated


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that all have to hold; without any it matches everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(one.holds(labels) for one in self.requirements)


def parse_label_selector(text: str) -> LabelSelector:
    """``pool=a100,tier!=x,zone in (a, b),!spot``. Raises BadInput naming the part."""
    return LabelSelector(tuple(_requirements(text)))


def _requirements(text: str) -> Iterator[LabelRequirement]:
    if not text.strip():
        return
    for part in map(str.strip, _BETWEEN.split(text)):
        if found := _COMPARED.fullmatch(part):
            key, operator, value = found.groups()
            yield LabelRequirement(key=key, values=frozenset({value}), negated=operator == "!=")
        elif found := _LISTED.fullmatch(part):
            key, operator, listed = found.groups()
            values = [value.strip() for value in listed.split(",")]
            if not all(re.fullmatch(_VALUE, value) for value in values):
                raise BadInput(f"label selector: {part!r} lists what is no label's value")
            yield LabelRequirement(key=key, values=frozenset(values), negated=operator == "notin")
        elif found := _PRESENT.fullmatch(part):
            absent, key = found.groups()
            yield LabelRequirement(key=key, values=None, negated=bool(absent))
        else:
            raise BadInput(
                f"label selector: {part!r} is none of KEY=VALUE, KEY!=VALUE, KEY in (A, B),"
                " KEY notin (A, B), KEY, !KEY"
            )
