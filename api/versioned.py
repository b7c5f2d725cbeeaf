# SPDX-License-Identifier: Apache-2.0
"""JSON formats with a major version: one way to write, read and refuse all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from base.errors import BadInput
from base.text.safe_text import SAFE_PATTERN, is_safe

T = TypeVar("T", bound=msgspec.Struct)


class _Versioned(msgspec.Struct):
    v: int


_VERSION: Final = msgspec.json.Decoder(_Versioned)
"""Made before there is a thread, as all decoders: two that see a type first end the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedFormat(Generic[T]):
    """A JSON format, whose key ``v`` is its major version.

    Readers ignore keys that they do not know, and take another major version for no data.
    """

    name: str
    """The format's place, for errors, such as ``annotation gpuscape.io/topology``."""
    remedy: str
    """The action for a person where a value is damaged, for errors."""
    content: type[T]
    version: int
    most_length: int
    """Bytes of the data, characters where it is text; longer data is damaged."""
    faults: Callable[[T], Iterable[str]] = lambda _content: ()
    """Faults of a value whose types are right; each names the key."""
    title: str = ""
    """Title of the JSON Schema."""
    safe: bool = False
    """Every text must be safe to show (:mod:`base.text.safe_text`), else the value is damaged."""
    _decoder: msgspec.json.Decoder[T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(self.content))

    def encode(self, value: T) -> bytes:
        """Compact JSON; the same for equal values."""
        return msgspec.json.encode(value)

    def text(self, value: T) -> str:
        """Compact JSON as the text of an annotation."""
        return self.encode(value).decode()

    def decode(self, data: str | bytes) -> T | None:
        """The value in ``data``; None for a major version other than ours.

        Raises BadInput naming the format, and the key that is missing, of the wrong kind, out of
        its range or of the wrong length; nothing else, whatever ``data`` is.
        """
        if len(data) > self.most_length:
            raise self._damaged(f"its length is {len(data)}, more than {self.most_length}")
        try:
            if _VERSION.decode(data).v != self.version:
                return None
            value = self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._damaged(str(error)) from error
        for fault in (*self._unsafe(data, value), *self.faults(value)):
            raise self._damaged(fault)
        return value

    def readable(self, text: str | bytes | None) -> T | None:
        """The value in ``text``; None without a text, and for damage or another version."""
        try:
            return None if text is None else self.decode(text)
        except BadInput:
            return None

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the format, 2020-12, without what only ``faults`` finds."""
        schema = msgspec.json.schema(self.content)
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.title,
            **(with_safe_texts(schema) if self.safe else schema),
        }

    def _unsafe(self, data: str | bytes, value: T) -> Iterator[str]:
        """A fault for each text that is unsafe; data in plain ASCII needs no search."""
        text = data if isinstance(data, str) else data.decode(errors="replace")
        if not self.safe or (text.isascii() and text.isprintable() and "\\" not in text):
            return
        for key, text_value in _texts("", msgspec.to_builtins(value)):
            if not is_safe(text_value):
                yield f"`{key}` has characters that are no plain text"

    def _damaged(self, why: str) -> BadInput:
        return BadInput(f"{self.name} is damaged: {why}; {self.remedy}")


def with_safe_texts(schema: Any) -> Any:
    """A JSON Schema in which every text without a pattern or a list of values has SAFE_PATTERN."""
    if isinstance(schema, list):
        return [with_safe_texts(subschema) for subschema in schema]
    if not isinstance(schema, dict):
        return schema
    safe = {key: with_safe_texts(subschema) for key, subschema in schema.items()}
    if safe.get("type") == "string":
        safe.setdefault("pattern", SAFE_PATTERN)
    if safe.get("type") == "object" and "additionalProperties" in safe:
        safe["propertyNames"] = {"pattern": SAFE_PATTERN} | safe.get("propertyNames", {})
    return safe


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text in a value, keys of mappings too, each after the key path where it stands."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, nested in value.items():
            yield key, name
            yield from _texts(f"{key}.{name}".removeprefix("."), nested)
    elif isinstance(value, list | tuple):
        for nested in value:
            yield from _texts(key, nested)
