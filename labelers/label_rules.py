# SPDX-License-Identifier: Apache-2.0
"""An admin's rules for labels under a prefix of his own, as values.

A rule is data: names of known fields, patterns with ``*``, and texts. There is no language in it,
so every rule ends, and what it can write is known before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from api.key_kinds import is_rule_key
from labelers.decision import Absent, Decisions

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
"""A field's name in a text, as in ``{memory-gib}Gi``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEntry:
    """A value that a rule can give, and the fields that have to match for it."""

    value: str
    """The label's value; each ``{field}`` stands for what the field says."""
    match: tuple[tuple[str, str], ...] = ()
    """Fields and the pattern that each has to match; empty: always."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the value is made of, in their order."""
        return tuple(PLACEHOLDER.findall(self.value))

    def filled(self, texts: Sequence[str]) -> str:
        """The value with these texts in place of :attr:`fields`."""
        remaining = iter(texts)
        return PLACEHOLDER.sub(lambda _: next(remaining), self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRule:
    """How one label is made: the first entry that matches gives its value, none: no label."""

    key: str
    entries: tuple[RuleEntry, ...]
    place: str
    """File and line, for people."""


def former_rule_labels(present: Iterable[str], decisions: Decisions) -> Decisions:
    """Removal of labels that a rule may have made once and none makes now, where they are ours."""
    gone = Absent(reason="no rule makes it any more")
    return {key: gone for key in present if key not in decisions and is_rule_key(key)}


def pattern_matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches: ``*`` stands for any text, all else for itself.

    Each part between stars is taken where it first occurs, which leaves the most text for the parts
    behind it: nothing is tried twice, however many stars there are.
    """
    if "*" not in pattern:
        return pattern == text
    first, *middle, last = pattern.split("*")
    start, end = len(first), len(text) - len(last)
    if start > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        place = text.find(part, start, end)
        if place < 0:
            return False
        start = place + len(part)
    return True
