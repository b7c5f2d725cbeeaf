"""One YAML or JSON file as a typed value; errors name file, line, key and the fix.

JSON files that gpuscape writes name their schema and its version in the key ``schema``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from base.errors import BadInput
from base.words import closest

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
"""What msgspec calls JSON's types, in a person's words."""

Place = tuple[str | int, ...]
"""Keys and list positions from the top of the file down to one value."""


try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml: ten times slower, else the same
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]


class _Loader(_SafeLoader):
    """Safe YAML that reads scalars as YAML 1.2's core schema does.

    YAML 1.1 takes the bus id 0000:07:00.0 for the number 420.0, in base 60, and
    ``no`` for false; here both stay text, quoted or not.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012  # the base's own must not be reached


for _tag, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?", list("-+0123456789")),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Where the values of one file stand in it."""

    source: str
    """The file as a person would name it."""
    root: yaml.Node

    def error(self, at: Place, text: str) -> BadInput:
        """The error for the value at this place: one sentence, file and line first."""
        where = f"{self.source}, line {self._line(at)}"
        return BadInput(f"{where}: {_spoken(at)}: {text}" if at else f"{where}: {text}")

    def _line(self, at: Place) -> int:
        """The line of a value; of its nearest parent when the file does not hold it."""
        node = self.root
        for step in at:
            child = _child(node, step)
            if child is None:
                break
            node = child
        return int(node.start_mark.line) + 1


def parse(text: str, source: str, shape: type[T]) -> tuple[T, Document]:
    """The value in ``text`` as a ``shape``, and where its parts stand.

    Raises BadInput for anything that is not YAML, has a key twice, or does not match.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise BadInput(f"{source} is empty: it must hold a mapping")
        document = Document(source=source, root=root)
        for at, key in _repeated(root):
            raise document.error((*at, key), f"the key {key!r} stands here twice; remove one")
        value = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{source}, line {line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: not valid YAML: {error}") from error
    finally:
        loader.dispose()
    try:
        return msgspec.convert(value, type=shape), document
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, shape) from error


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


def read_bytes(path: Path) -> bytes:
    """A file's content. Raises BadInput where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error


def nearest(word: str, known: tuple[str, ...]) -> str:
    """What to write instead: the known word most like this one, and all where none is alike."""
    alike = closest(word, known)
    listed = ", ".join(sorted(known))
    return f"did you mean {alike!r}?" if alike else f"known are {listed or 'none'}"


def _misfit(body: bytes, source: str, shape: type) -> BadInput:
    """Why JSON does not fit its shape, with the line, since it is YAML too."""
    try:
        parse(body.decode("utf-8"), source, shape)
    except BadInput as error:
        return error
    return BadInput(f"{source} is damaged: write it anew")


def _explained(message: str, document: Document, shape: Any) -> BadInput:
    """A validation error with its place in the file, and the nearest key for an unknown one."""
    text, _, path = message.partition(" - at `$")
    steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path)
    at = tuple(key or (int(number) if number.isdecimal() else number) for key, number in steps)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        key = unknown[1]
        return document.error((*at, key), f"unknown key; {nearest(key, _keys_at(shape, at))}")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        return document.error(at, f"the key {missing[1]!r} is missing; add it")
    words = re.sub(r"`(\w+)`", lambda match: _WORDS.get(match[1], match[1]), text)
    return document.error(at, words[:1].lower() + words[1:])


def _keys_at(shape: Any, at: Place) -> tuple[str, ...]:
    """The keys a mapping may have at this place."""
    info = inspect.type_info(shape)
    for step in at:
        if isinstance(info, inspect.StructType):
            info = next(field.type for field in info.fields if field.encode_name == step)
        elif isinstance(info, inspect.VarTupleType):
            info = info.item_type
        elif isinstance(info, inspect.DictType):
            info = info.value_type
        if isinstance(info, inspect.UnionType):
            info = next(one for one in info.types if not isinstance(one, inspect.NoneType))
    return tuple(field.encode_name for field in getattr(info, "fields", ()))


def _repeated(root: yaml.Node) -> Iterator[tuple[Place, str]]:
    """Keys that stand twice in one mapping: YAML forbids it, PyYAML lets the last one win."""
    visited: set[int] = set()  # an alias leads to the same node again, or even around

    def walk(node: yaml.Node, at: Place) -> Iterator[tuple[Place, str]]:
        if id(node) in visited:
            return
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for position, child in enumerate(node.value):
                yield from walk(child, (*at, position))
        elif isinstance(node, yaml.MappingNode):
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            yield from ((at, key) for key, times in keys.items() if times > 1)
            for key, child in node.value:
                yield from walk(child, (*at, str(key.value)))

    return walk(root, ())


def _child(node: yaml.Node, step: str | int) -> yaml.Node | None:
    """The value under one key, or at one position."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((child for key, child in node.value if key.value == step), None)
    return None


def _spoken(at: Place) -> str:
    """A place as people write it: ``gpus[3].model``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
    return text.removeprefix(".")
