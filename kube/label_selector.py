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
"""A comma between requirements, not in a list of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """A condition on one label of an object."""

    key: str
    values: frozenset[str] | None
    """The label has one of these values; None: any value."""
    negated: bool = False
    """The opposite is required: another value, or no such label."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the requirement."""
        present = self.key in labels
        alike = present if self.values is None else present and labels[self.key] in self.values
        return alike is not self.negated


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that all have to hold; without any it matches everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_label_selector(text: str) -> LabelSelector:
    """The selector of a text, such as ``pool=a100,tier!=x,zone in (a, b),!spot``.

    Raises BadInput naming the part.
    """
    return LabelSelector(tuple(_requirements(text)))


def _requirements(text: str) -> Iterator[LabelRequirement]:
    if not text.strip():
        return
    for part in map(str.strip, _BETWEEN.split(text)):
        if match := _COMPARED.fullmatch(part):
            key, operator, value = match.groups()
            yield LabelRequirement(key=key, values=frozenset({value}), negated=operator == "!=")
        elif match := _LISTED.fullmatch(part):
            key, operator, listed = match.groups()
            values = [value.strip() for value in listed.split(",")]
            if not all(re.fullmatch(_VALUE, value) for value in values):
                raise BadInput(f"label selector: {part!r} lists what is no label's value")
            yield LabelRequirement(key=key, values=frozenset(values), negated=operator == "notin")
        elif match := _PRESENT.fullmatch(part):
            absent, key = match.groups()
            yield LabelRequirement(key=key, values=None, negated=bool(absent))
        else:
            raise BadInput(
                f"label selector: {part!r} is none of KEY=VALUE, KEY!=VALUE, KEY in (A, B),"
                " KEY notin (A, B), KEY, !KEY"
            )
