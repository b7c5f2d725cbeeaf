# SPDX-License-Identifier: Apache-2.0
"""Documents of a JSON Schema with hostile text in one place each, for every place of a text."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

WORD: Final = "HOSTILE"
"""It is in every hostile text, so that a test sees whether the text came out at all."""
PAYLOADS: Final = (
    f"{WORD}\x1b]52;c;aGk=\x07",
    f"{WORD}\x1b[2J\x1b[H\x7f",
    f"{WORD}\x9b31m\u202ex\u2066",
    f"{WORD}\ninjected x",
    f"{WORD}\r\u2028injected",
    f"[bold]{WORD}[/]\u200b\ufeff",
    f"{WORD}\u061c\u200f\U000e0041",
)
"""Short ones: 32 characters are the fewest that a free text may have."""
_VALID: Final = ("v1", "ok", "0", "00", "0123456789", "01234567", "0123456789abcdef", "")
"""Texts that fit the patterns of the schemas, one for each pattern."""

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileDocument:
    """A document that fits its schema but for the text in one place."""

    place: Place
    content: Any


def hostile_documents(schema: Mapping[str, Any], example: Any = None) -> Iterator[HostileDocument]:
    """One for every text and payload; ``example`` is valid, by default worked out."""
    whole = example_of(schema, schema) if example is None else example
    for place in text_places(whole):
        for payload in PAYLOADS:
            yield HostileDocument(place=place, content=_with(whole, place, payload))


def example_of(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A value with everything that the schema describes: all keys, an entry in each list."""
    if "$ref" in part:
        return example_of(schema["$defs"][part["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in part:
        return example_of(part["anyOf"][0], schema)
    if "enum" in part:
        return part["enum"][0]
    match part["type"]:
        case "object":
            made = {key: example_of(it, schema) for key, it in part.get("properties", {}).items()}
            if "additionalProperties" in part:
                made[_text(part.get("propertyNames", {}))] = example_of(
                    part["additionalProperties"], schema
                )
            return made
        case "array":
            if "prefixItems" in part:
                return [example_of(it, schema) for it in part["prefixItems"]]
            return [example_of(part["items"], schema)]
        case "string":
            return _text(part)
        case "integer" | "number":
            return max(1, part.get("minimum", 1))
        case "boolean":
            return True
    raise AssertionError(f"no example of {part}")


def text_places(value: Any) -> Iterator[Place]:
    """Where texts stand in a value, and where a mapping of any keys has one."""
    if isinstance(value, str):
        yield ()
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from ((key, *rest) for rest in text_places(each))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from ((at, *rest) for rest in text_places(each))


def _text(part: Mapping[str, Any]) -> str:
    pattern = part.get("pattern", "")
    fits = [it for it in _VALID if re.search(pattern, it)]
    assert fits, f"add a text to _VALID that fits {pattern}"
    return fits[0]


def _with(whole: Any, place: Place, text: str) -> Any:
    if not place:
        return text
    made = copy.deepcopy(whole)
    inner = made
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = text
    return made
