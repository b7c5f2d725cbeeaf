# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON files as typed values; errors name file, line, key and the fix.

JSON files that gpuscape writes name their schema and its version in the key ``schema``.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from base.errors import BadInput
from base.words import closest
from base.yaml_places import CoreLoader, Place, YamlValue, misfit, read_yaml

T = TypeVar("T")

_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
"""Name of a JSON type, as msgspec has it, to words for people."""

MOST_BYTES = 64 << 20
"""Largest file that is read: a hundred times a recording of 16 GPUs."""


def parse_document(text: str, source: str, shape: type[T]) -> tuple[T, YamlValue]:
    """The value in ``text`` as a ``shape``, and the same with the places of its parts.

    Raises BadInput for anything that is not YAML, has a key twice, or does not match.
    """
    document = read_yaml(text, source, loader=CoreLoader, most_bytes=MOST_BYTES)
    if document.is_null:
        raise BadInput(f"{source} is empty: it must hold a mapping")
    try:
        return msgspec.convert(document.content(), type=shape), document
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, shape) from error


def decode(body: bytes, source: str, shape: type[T], schema: str) -> T:
    """The value in a file's bytes.

    Raises BadInput with the file and what is wrong with it: another schema, or
    the line and key where it does not fit.
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        file_schema = schema_in(body, source)
        if file_schema not in (None, schema):
            raise BadInput(
                f"{source} has the schema {file_schema!r}, this version reads {schema!r}:"
                " write it anew"
            ) from error
        raise _misfit(body, source, shape) from error


def schema_in(body: bytes, source: str) -> str | None:
    """The schema that a file's bytes name, None where they name none.

    Raises BadInput with file and line where they are no JSON.
    """
    try:
        content = json.loads(body)
    except UnicodeDecodeError as error:
        raise BadInput(f"{source} is not UTF-8 text: write it anew") from error
    except json.JSONDecodeError as error:
        line = f"{source}:{error.lineno}"
        raise BadInput(f"{line}: not valid JSON, {error.msg}: write it anew") from error
    except RecursionError:
        raise BadInput(f"{source}: not valid JSON, nested too deeply: write it anew") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    return schema if isinstance(schema, str) else None


def spelling_hint(word: str, known: tuple[str, ...]) -> str:
    """Hint for an unknown word: the known word most like this one, and all where none is alike."""
    alike = closest(word, known)
    listed = ", ".join(sorted(known))
    return f"did you mean {alike!r}?" if alike else f"known are {listed or 'none'}"


def _misfit(body: bytes, source: str, shape: type) -> BadInput:
    """Why JSON does not fit its shape, with the line, since it is YAML too."""
    try:
        parse_document(body.decode("utf-8"), source, shape)
    except BadInput as error:
        return error
    return BadInput(f"{source} is damaged: write it anew")


def _explained(message: str, document: YamlValue, shape: Any) -> BadInput:
    """A validation error with its place in the file, and the nearest key for an unknown one."""
    text, place = misfit(message)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        key = unknown[1]
        known = tuple(f.encode_name for f in getattr(_type_at(shape, place), "fields", ()))
        return document.at((*place, key)).wrong(f"unknown key; {spelling_hint(key, known)}")
    if unknown := re.fullmatch(r"Invalid enum value '(.*)'", text):
        values = map(str, getattr(_type_at(shape, place), "values", ()))
        hint = f"known are {', '.join(values)}"
        return document.at(place).wrong(f"{unknown[1]!r} is none of its words; {hint}")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        return document.at(place).wrong(f"the key {missing[1]!r} is missing; add it")
    words = re.sub(r"`(\w+)`", lambda match: _WORDS.get(match[1], match[1]), text)
    return document.at(place).wrong(words[:1].lower() + words[1:])


def _type_at(shape: Any, place: Place) -> inspect.Type:
    """The type of the value at this place; of several the first that is not None."""
    info = inspect.type_info(shape)
    for step in place:
        if isinstance(info, inspect.StructType):
            info = next(field.type for field in info.fields if field.encode_name == step)
        elif isinstance(info, inspect.VarTupleType):
            info = info.item_type
        elif isinstance(info, inspect.DictType):
            info = info.value_type
        if isinstance(info, inspect.UnionType):
            info = next(member for member in info.types if not isinstance(member, inspect.NoneType))
    return info
