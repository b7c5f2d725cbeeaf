# SPDX-License-Identifier: Apache-2.0
"""JSON formats with a major version: one way to write, read and refuse all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from base.errors import BadInput

T = TypeVar("T", bound=msgspec.Struct)


class _Versioned(msgspec.Struct):
    v: int


_VERSION: Final = msgspec.json.Decoder(_Versioned)
"""Made before there is a thread, as all decoders: two that see a type first end the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedFormat(Generic[T]):
    """One format, whose key ``v`` is its major version.

    Readers ignore keys that they do not know, and take another major version for no data.
    """

    name: str
    """What holds it, for errors, such as ``annotation gpuscape.io/topology``."""
    remedy: str
    """What a person does about a damaged one."""
    content: type[T]
    version: int
    most_length: int
    """Bytes of it, characters where it is text; a longer one is damaged."""
    faults: Callable[[T], Iterable[str]] = lambda _content: ()
    """What is wrong in a value although its types are right; each names the key."""
    _decoder: msgspec.json.Decoder[T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(self.content))

    def encode(self, value: T) -> bytes:
        """Compact JSON; the same for equal values."""
        return msgspec.json.encode(value)

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
            found = self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._damaged(str(error)) from error
        for fault in self.faults(found):
            raise self._damaged(fault)
        return found

    def readable(self, text: str | None) -> T | None:
        """The value in ``text``; None without one, and for whatever :meth:`decode` gives none."""
        try:
            return None if text is None else self.decode(text)
        except BadInput:
            return None

    def json_schema(self, title: str) -> dict[str, Any]:
        """JSON Schema of it, 2020-12, without what only ``faults`` finds."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": title,
            **msgspec.json.schema(self.content),
        }

    def _damaged(self, why: str) -> BadInput:
        return BadInput(f"{self.name} is damaged: {why}; {self.remedy}")
