# SPDX-License-Identifier: Apache-2.0
"""Grafana's variables in an expression, replaced so that the rest is PromQL. Pure.

A variable's values are not known here. In a string it becomes :data:`ANY`, which the judging takes
for any value; in brackets and after ``offset`` a duration; elsewhere what the parser accepts: a
number, a name or an aggregation.
Source: Grafana, "Variable syntax": ``$name``, ``${name:format}``, ``[[name:format]]``.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from exporters.queries.promql import PromqlError, Tree, parse_promql, selectors

ANY: Final = "grafana\u00b7variable"
"""Placeholder for a variable in a matcher's value; its middle dot is unlikely in a query."""
ANY_NAME: Final = "grafana__variable"
"""Placeholder for a variable in the name of a metric or label; the parser takes it as a name."""

_VARIABLE: Final = re.compile(
    r"\$\{[A-Za-z_][\w.]*(?::[^}]*)?\}|\[\[[A-Za-z_][\w.]*(?::[^\]]*)?\]\]|\$[A-Za-z_]\w*"
)
_TOKEN: Final = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`)'
    r"|(?P<comment>#[^\n]*)"
    rf"|(?P<offset>\boffset\s+-?\s*(?:{_VARIABLE.pattern}))"
    rf"|(?P<variable>{_VARIABLE.pattern})"
    r"|(?P<range>\[(?!\[)(?:[^\[\]]|\[\[[^\[\]]*\]\])*\])",
    re.DOTALL | re.IGNORECASE,
)
_DURATION: Final = "5m"
_CANDIDATES: Final = ("1", ANY_NAME, "sum", "avg_over_time")
_MOST_VARIABLES: Final = 4
"""Variables outside of strings and brackets for which every candidate is tried."""


def parse_query(expression: str) -> Tree:
    """The tree of a dashboard's query. Raises PromqlError for the text without its variables."""
    parts = _parts(expression)
    opened = sum(part is None for part in parts)
    if opened > _MOST_VARIABLES:
        return parse_promql(_joined(parts, (ANY_NAME,) * opened))
    problem: PromqlError | None = None
    constant: Tree | None = None
    for words in itertools.product(_CANDIDATES, repeat=opened):
        try:
            tree = parse_promql(_joined(parts, words))
        except PromqlError as error:
            problem = problem or error
            continue
        if selectors(tree) or not opened:
            return tree
        constant = constant or tree  # $metric alone parses as a number too
    if constant is None:
        raise problem or PromqlError("it is empty")
    return constant


def _parts(expression: str) -> list[str | None]:
    """The text in pieces; None for a variable whose kind has to be tried out."""
    parts: list[str | None] = []
    end = 0
    for token in _TOKEN.finditer(expression):
        parts.append(expression[end : token.start()])
        end = token.end()
        text = token[0]
        if token["string"] is not None:
            parts.append(_VARIABLE.sub(ANY, text))
        elif token["offset"] is not None:
            parts.append(f"offset {_DURATION}")
        elif token["range"] is not None:
            parts.append(_VARIABLE.sub(_DURATION, text))
        elif token["variable"] is not None:
            is_part = _is_word(expression[token.start() - 1 : token.start()]) or _is_word(
                expression[end : end + 1]
            )
            parts.append(ANY_NAME if is_part else None)
        else:
            parts.append(text)
    return [*parts, expression[end:]]


def _is_word(character: str) -> bool:
    return character.isalnum() or (character in ("_", ":") and bool(character))


def _joined(parts: list[str | None], words: tuple[str, ...]) -> str:
    remaining = iter(words)
    return "".join(next(remaining) if part is None else part for part in parts)
