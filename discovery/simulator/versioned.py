"""JSON files that name their schema and its version in the key ``schema``."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from discovery.errors import BadInput
from discovery.simulator.document import parse

T = TypeVar("T")


def decode(body: bytes, source: str, shape: type[T], schema: str) -> T:
    """The value in a file's bytes.

    Raises BadInput with the file and what is wrong with it: another schema, or
    the line and key where it does not fit.
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        found = schema_in(body, source)
        if found not in (None, schema):
            raise BadInput(
                f"{source} has the schema {found!r}, this version reads {schema!r}: write it anew"
            ) from error
        raise _misfit(body, source, shape) from error


def schema_in(body: bytes, source: str) -> str | None:
    """The schema that a file's bytes name, None where they name none.

    Raises BadInput with file and line where they are no JSON.
    """
    try:
        found = json.loads(body)
    except UnicodeDecodeError as error:
        raise BadInput(f"{source} is not UTF-8 text: write it anew") from error
    except json.JSONDecodeError as error:
        line = f"{source}, line {error.lineno}"
        raise BadInput(f"{line}: not valid JSON, {error.msg}: write it anew") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    return schema if isinstance(schema, str) else None


def _misfit(body: bytes, source: str, shape: type) -> BadInput:
    """Why JSON does not fit its shape, with the line, since it is YAML too."""
    try:
        parse(body.decode("utf-8"), source, shape)
    except BadInput as error:
        return error
    return BadInput(f"{source} is damaged: write it anew")
