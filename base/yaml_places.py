"""YAML as a person wrote it: values with their places, so that a mistake can be shown. Pure.

Import it where such a file is read, not before: the parser takes memory.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import yaml

from base.errors import BadInput

_TAG = "tag:yaml.org,2002:"
MOST_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlValue:
    """One value and where it stands. Each method raises BadInput for a value of another type."""

    file: str
    line: int
    """From 1."""
    key: str
    """Keys from the outermost on, with dots between."""
    node: yaml.Node = field(repr=False)

    @property
    def place(self) -> str:
        """For the beginning of messages."""
        return f"{self.file}:{self.line}: {self.key}" if self.key else f"{self.file}:{self.line}"

    def wrong(self, reason: str) -> BadInput:
        """The error that says so of this entry."""
        return BadInput(f"{self.place}: {reason}")

    def mapping(self, known: Collection[str] | None = None) -> Mapping[str, YamlValue]:
        """Its entries by key; keys that are not ``known`` are refused. Empty for null."""
        if self._is("null"):
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong("expected lines of key: value")
        entries: dict[str, YamlValue] = {}
        for key_node, node in self.node.value:
            line = key_node.start_mark.line + 1
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            word = key if key.isprintable() and len(key) <= MOST_SHOWN else _shown(key)
            inner = f"{self.key}.{word}" if self.key else word
            entry = YamlValue(file=self.file, line=line, key=inner, node=node)
            if known is not None and key not in known:
                raise BadInput(f"{self.file}:{line}: {_unknown(inner, key, known)}")
            if key in entries:
                raise entry.wrong("it is given twice: keep one")
            entries[key] = entry
        return entries

    def items(self) -> tuple[YamlValue, ...]:
        """The entries of a list. Empty for null."""
        if self._is("null"):
            return ()
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong("expected a list")
        return tuple(
            YamlValue(file=self.file, line=node.start_mark.line + 1, key=self.key, node=node)
            for node in self.node.value
        )

    def text(self) -> str:
        """Any plain value as it is written, empty for null."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.wrong("expected one value")
        return "" if self._is("null") else str(self.node.value)

    def texts(self) -> tuple[str, ...]:
        """The plain values of a list."""
        return tuple(entry.text() for entry in self.items())

    def one_of(self, words: Collection[str]) -> str:
        """One of these words."""
        text = self.text()
        if text not in words:
            raise self.wrong(f"{_shown(text)} is not one of {', '.join(words)}")
        return text

    def flag(self) -> bool:
        """True or false."""
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if not self._is("bool"):
            raise self.wrong("expected true or false")
        return words[str(self.node.value).lower()]

    def count(self) -> int:
        """A whole number that is not negative."""
        text = self.text()
        if not (self._is("int") and text.isascii() and text.isdigit() and len(text) < 10):
            raise self.wrong("expected a whole number")
        return int(text)

    def _is(self, kind: str) -> bool:
        return bool(self.node.tag == _TAG + kind)


def read_mapping(text: str, file: str, known: Collection[str]) -> Mapping[str, YamlValue]:
    """The entries of a file that is one mapping, or empty. Raises BadInput with file and line."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise BadInput(f"{file}: not valid YAML: it is nested too deeply") from None
    if root is None:
        return {}
    top = YamlValue(file=file, line=root.start_mark.line + 1, key="", node=root)
    return top.mapping(known)


def _unknown(inner: str, key: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    guess = f": did you mean {close[0]}?" if close else ""
    return f"{_shown(inner)} is not a key of this file{guess}"


def _shown(text: str) -> str:
    """So much of a text that a message stays one short line."""
    return ascii(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")
