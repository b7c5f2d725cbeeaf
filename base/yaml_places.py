# SPDX-License-Identifier: Apache-2.0
"""YAML that a person wrote: values with file, line and key, within bounds. Pure.

The one reader of YAML in the product. Whatever the text is, it gives values or raises BadInput:
text that is too long, nested too deeply, multiplied by aliases, or with a key that stands twice is
refused before values are built. Import it where such a file is read, not before: the parser takes
memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import yaml

from base.errors import BadInput
from base.files import MOST_BYTES, too_large
from base.words import MOST_QUOTED, did_you_mean, quoted

try:
    from yaml import CSafeLoader as _FastLoader
except ImportError:  # PyYAML built without libyaml: ten times slower, else the same
    from yaml import SafeLoader as _FastLoader  # type: ignore[assignment]

_TAG: Final = "tag:yaml.org,2002:"
MOST_LEVELS: Final = 64
"""Lists and mappings inside each other, at most."""
MOST_REPEATED: Final = 10_000
"""Values that all aliases of a file stand for, at most."""

Place = tuple[str | int, ...]
"""Keys and list positions from one value down to another."""


class CoreLoader(_FastLoader):
    """Reads plain values as YAML 1.2's core schema does.

    YAML 1.1 takes the bus id 0000:07:00.0 for the number 420.0, in base 60, ``no`` for false, and a
    date for a date; here they stay text, quoted or not.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012  # the base's own must not be reached


class Yaml11Loader(_FastLoader):
    """Reads plain values as YAML 1.1 does, for files that programs in Go read too.

    Theirs takes some plain values for numbers and truth that PyYAML takes for text.
    Source: go.yaml.in/yaml/v2, resolve.go.
    """

    bool_values: ClassVar[dict[str, bool]] = {**_FastLoader.bool_values, "y": True, "n": False}


for _tag, _pattern, _first in (
    ("bool", r"[yYnN]", list("yYnN")),
    ("int", r"[-+]?0o[0-7_]+", list("-+0")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    Yaml11Loader.add_implicit_resolver(_TAG + _tag, re.compile(f"^(?:{_pattern})$"), _first)

for _tag, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?", list("-+0123456789")),
):
    CoreLoader.add_implicit_resolver(_TAG + _tag, re.compile(f"^(?:{_pattern})$"), _first)

Loader = type[yaml.SafeLoader] | type[CoreLoader] | type[Yaml11Loader]


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlValue:
    """A value in a YAML file, and its place. Methods raise BadInput for other types."""

    file: str
    line: int
    """From 1."""
    key: str
    """Keys from the outermost on, with dots between."""
    node: yaml.Node = field(repr=False)
    loader: Loader = field(repr=False)

    @property
    def place(self) -> str:
        """File, line and key, for the beginning of messages."""
        return f"{self.file}:{self.line}: {self.key}" if self.key else f"{self.file}:{self.line}"

    def wrong(self, reason: str) -> BadInput:
        """The error that blames this value."""
        return BadInput(f"{self.place}: {reason}")

    @property
    def is_null(self) -> bool:
        """Whether the value is null or missing."""
        return self._is("null")

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_text(self) -> bool:
        """Whether the value is text, and would be nothing else without its quotes."""
        return self._is("str")

    @property
    def is_number(self) -> bool:
        """Whether the value is a number, with or without a point."""
        return self._is("int") or self._is("float")

    @property
    def is_time(self) -> bool:
        """Whether the value is a date or a time."""
        return self._is("timestamp")

    def refuse_config_map(self) -> None:
        """Raise BadInput for a ConfigMap's manifest in place of the file that it should hold.

        The commonest mistake with files that are mounted from a ConfigMap. A manifest without its
        kind is refused too.
        """
        keys = self.mapping() if self.is_mapping else {}
        if "data" in keys and ("apiVersion" in keys or "kind" in keys):
            raise self.wrong(
                "this is a ConfigMap, which holds a configuration: name what stands below its data"
            )

    def merged(self) -> YamlValue:
        """This value, with the keys that a mapping takes over by ``<<``; its own keys win.

        Raises BadInput where the value of ``<<`` is no mapping and no list of mappings.
        """
        if isinstance(self.node, yaml.MappingNode):
            loader = self.loader("")
            try:
                loader.flatten_mapping(self.node)
            except yaml.MarkedYAMLError as error:
                raise _not_valid(self.file, error) from error
            finally:
                loader.dispose()
        return self

    def mapping(
        self, known: Collection[str] | None = None, *, names: bool = False
    ) -> Mapping[str, YamlValue]:
        """The entries of a mapping by key; keys that are not ``known`` are refused. Empty for null.

        A key that is itself a list or mapping reads as the empty text. With ``names`` a key that
        YAML does not take for text is refused: other readers of the file may have another one.
        """
        if self.is_null:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong("expected lines of key: value")
        entries: dict[str, YamlValue] = {}
        for key_node, node in self.node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            entry = self._inner(key, key_node, node)
            if known is not None and key not in known:
                raise BadInput(f"{self.file}:{entry.line}: {_unknown(entry.key, key, known)}")
            if names and key_node.tag != _TAG + "str":
                raise entry.wrong("a name that YAML takes for no text: put it into quotes")
            entries[key] = entry
        return entries

    def items(self) -> tuple[YamlValue, ...]:
        """The entries of a list. Empty for null."""
        if self.is_null:
            return ()
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong("expected a list")
        return tuple(replace(self, node=node, line=_line(node)) for node in self.node.value)

    def text(self) -> str:
        """Any plain value as it is written, empty for null."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.wrong("expected one value")
        return "" if self.is_null else str(self.node.value)

    def texts(self) -> tuple[str, ...]:
        """The plain values of a list."""
        return tuple(entry.text() for entry in self.items())

    def one_of(self, words: Collection[str]) -> str:
        """The text of the value, which must be one of these words."""
        text = self.text()
        if text not in words:
            raise self.wrong(f"{quoted(text)} is not one of {', '.join(words)}")
        return text

    def flag(self) -> bool:
        """The value as a boolean."""
        words = dict.fromkeys(("true", "yes", "y", "on"), True)
        words |= dict.fromkeys(("false", "no", "n", "off"), False)
        truth = words.get(str(self.node.value).lower()) if self._is("bool") else None
        if truth is None:  # a tag may stand at any text
            raise self.wrong("expected true or false")
        return truth

    def count(self) -> int:
        """The value as a whole number that is not negative."""
        text = self.text()
        if not (self._is("int") and text.isascii() and text.isdigit() and len(text) < 10):
            raise self.wrong("expected a whole number")
        return int(text)

    def content(self) -> Any:
        """The value as dicts, lists and plain Python values."""
        loader = self.loader("")
        try:
            return loader.construct_document(self.node)
        except yaml.MarkedYAMLError as error:
            raise _not_valid(self.file, error) from error
        except Exception as error:  # a tag may stand at any text, and fails in any way
            problem = str(error).partition("\n")[0]
            raise BadInput(f"{self.file}: not valid YAML: {problem}") from error
        finally:
            loader.dispose()

    def at(self, place: Place) -> YamlValue:
        """The value at this place below; for a place without a value, the line of its parent."""
        value = self
        for step in place:
            key = f"{value.key}[{step}]" if isinstance(step, int) else f"{value.key}.{step}"
            child = value._child(step)
            value = replace(child or value, key=key.removeprefix("."))
        return value

    def _child(self, step: str | int) -> YamlValue | None:
        if isinstance(step, int):
            items = self.items() if self.is_list else ()
            return items[step] if step < len(items) else None
        return self.mapping().get(step) if self.is_mapping else None

    def _inner(self, key: str, key_node: yaml.Node, node: yaml.Node) -> YamlValue:
        word = key if key.isprintable() and len(key) <= MOST_QUOTED else quoted(key)
        inner = f"{self.key}.{word}" if self.key else word
        return replace(self, line=_line(key_node), key=inner, node=node)

    def _is(self, kind: str) -> bool:
        return bool(self.node.tag == _TAG + kind)


def read_yaml(
    text: str,
    file: str,
    *,
    loader: Loader = yaml.SafeLoader,
    most_bytes: int = MOST_BYTES,
    as_go: bool = False,
) -> YamlValue:
    """The value that a YAML text holds, which messages call ``file``; null for an empty one.

    Raises BadInput with file and line for text that is not YAML, holds a key twice, or goes beyond
    a bound. With ``as_go``, as programs in Go read it, all but the first document is passed over,
    and of a key that stands twice the last one counts.
    Source: sigs.k8s.io/yaml, Unmarshal.
    """
    if len(text) > most_bytes:
        raise too_large(file, most_bytes)
    try:
        _check_bounds(text, file, loader, only_first=as_go)
        root = _composed(text, loader, only_first=as_go)
    except yaml.MarkedYAMLError as error:
        raise _not_valid(file, error) from error
    except yaml.YAMLError as error:
        raise BadInput(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from error
    except UnicodeEncodeError as error:  # half a character, as JSON's escapes can make one
        raise BadInput(f"{file}: not valid YAML: a character that no text has") from error
    if root is None:
        return read_yaml("null", file, loader=loader)
    value = YamlValue(file=file, line=_line(root), key="", node=root, loader=loader)
    _check_keys(value, as_go=as_go)
    return value


def _composed(text: str, loader: Loader, *, only_first: bool) -> yaml.Node | None:
    if not only_first:
        return yaml.compose(text, Loader=loader)
    composer = loader(text)
    try:
        return composer.get_node() if composer.check_node() else None
    finally:
        composer.dispose()


def misfit(message: str) -> tuple[str, Place]:
    """The problem that msgspec had in converting :meth:`YamlValue.content`, and its place."""
    problem, _, path = message.partition(" - at `")
    steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path.rpartition("$")[2])
    return problem, tuple(
        key or (int(position) if position.isdecimal() else position) for key, position in steps
    )


_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that escapes can make, but that no path and no header may have."""


def _check_bounds(text: str, file: str, loader: Loader, *, only_first: bool) -> None:
    """Refuse text that would take far more time, memory or stack than its size suggests."""
    values = repeated = 0
    open_anchors: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if only_first and isinstance(event, yaml.DocumentEndEvent):
            return
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_anchors.pop()
            if anchor is not None:
                sizes[anchor] = values - before
        elif isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append((event.anchor, values))
            values += 1
            if len(open_anchors) > MOST_LEVELS:
                raise BadInput(f"{file}: not valid YAML: it is nested too deeply in line {line}")
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            if _NO_TEXT.search(event.value):
                raise BadInput(f"{file}:{line}: not valid YAML: a character that no text has")
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_anchors):
                raise BadInput(f"{file}:{line}: not valid YAML: *{event.anchor} contains itself")
            size = sizes.get(str(event.anchor), 1)
            values += size
            repeated += size
            if repeated > MOST_REPEATED:
                raise BadInput(f"{file}:{line}: not valid YAML: aliases repeat too many values")


def _check_keys(value: YamlValue, *, as_go: bool) -> None:
    """Refuse a key that stands twice in one mapping: PyYAML would let the last one win.

    Go's reader lets it too, and refuses keys that are null, a list or a mapping.
    """
    for place, key_node, is_repeated in _keys(value.node, (), set()):
        if is_repeated and not as_go:
            raise replace(value.at(place), line=_line(key_node)).wrong("it stands twice: keep one")
        if as_go and (not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _TAG + "null"):
            raise BadInput(
                f"{value.file}:{_line(key_node)}: a key that is no text: put it in quotes"
            )


def _keys(node: yaml.Node, place: Place, seen: set[int]) -> Iterator[tuple[Place, yaml.Node, bool]]:
    """The place and node of every key below, and whether the key is repeated in its mapping."""
    if id(node) in seen:  # an alias leads to the same node again
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for position, child in enumerate(node.value):
            yield from _keys(child, (*place, position), seen)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                yield place, key_node, False
                continue
            inner = (*place, key_node.value)
            yield inner, key_node, key_node.value in keys
            keys.add(key_node.value)
            yield from _keys(child, inner, seen)


def _not_valid(file: str, error: yaml.MarkedYAMLError) -> BadInput:
    line = error.problem_mark.line + 1 if error.problem_mark else 1
    return BadInput(f"{file}:{line}: not valid YAML: {error.problem}")


def _unknown(inner: str, key: str, known: Collection[str]) -> str:
    return f"{quoted(inner)} is not a key of this file{did_you_mean(key, known)}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
