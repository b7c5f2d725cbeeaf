# SPDX-License-Identifier: Apache-2.0
"""Texts of configurations: a file's own, or the entries of the ConfigMaps that a file holds. Pure.

An entry keeps the lines that it has in its file: a block of literal text (``|``) gets as many empty
lines in front as there are lines above it. Text in quotes and folded text (``>``) has no lines of
its own, so that messages name the entry's line and then the line within it.

Source: Kubernetes API, ConfigMap.data and Secret.stringData; kubectl reads several documents.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from base.errors import BadInput
from base.yaml_places import Yaml11Loader, YamlValue, read_yaml

_TEXTS: Final = {"ConfigMap": "data", "Secret": "stringData"}
"""Kinds of objects that hold files, and the key that has them as text."""
_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigText:
    """A text to check. Its lines are those of :attr:`file`, unless it has none of its own there."""

    text: str
    file: str
    entry: str = ""
    """Object and key, ``ConfigMap plugin-config, key any``; empty for a file's own text."""
    line: int | None = None
    """Line of the entry where its text has none of the file; the text's lines begin at 1 then."""


def config_texts(text: str, file: str) -> Iterator[ConfigText]:
    """The file's text, or each entry where every document is a ConfigMap, a Secret or a List.

    Raises BadInput, naming file and line, for a manifest whose entries cannot be read.
    """
    documents = _manifests(text, file)
    if not documents:
        yield ConfigText(text=text, file=file)
        return
    for document in documents:
        for manifest in _unpacked(document):
            yield from _entries(manifest)


def _manifests(text: str, file: str) -> tuple[YamlValue, ...]:
    """The documents of a file with manifests; empty for any other text, also one that is no YAML.

    The first document decides which of the two a file is: a broken one further down is refused, and
    not taken for a configuration.
    """
    try:
        documents = (
            read_yaml(document_text, file, loader=Yaml11Loader)
            for document_text in _documents(text)
        )
        named = tuple(document for document in documents if not document.is_null)
    except BadInput:
        if _begins_as_manifest(text):
            raise
        return ()
    return named if named and _is_manifest(named[0]) else ()


def _documents(text: str) -> Iterator[str]:
    """Each document, behind as many empty lines as there are lines above it."""
    begin = 0
    for separator in (*_SEPARATOR.finditer(text), None):
        end = len(text) if separator is None else separator.start()
        yield "\n" * text.count("\n", 0, begin) + text[begin:end]
        begin = end if separator is None else separator.end()


def _begins_as_manifest(text: str) -> bool:
    """Whether a text that is no YAML has a ConfigMap's lines at its left edge."""
    lines = {line.partition("#")[0].rstrip() for line in text.splitlines()}
    return any(f"kind: {kind}" in lines for kind in (*_TEXTS, "List"))


def _is_manifest(value: YamlValue) -> bool:
    keys = value.mapping() if value.is_mapping else {}
    return "apiVersion" in keys and ("kind" in keys or "data" in keys)


def _unpacked(value: YamlValue) -> Iterator[YamlValue]:
    """The objects of a List, else the object itself."""
    keys = value.mapping() if value.is_mapping else {}
    items = keys.get("items")
    if items is None or not items.is_list:
        yield value
        return
    for child in items.items():
        yield from _unpacked(child)


def _entries(manifest: YamlValue) -> Iterator[ConfigText]:
    keys = manifest.mapping() if manifest.is_mapping else {}
    kind = _plain(keys.get("kind")) or "ConfigMap"
    if kind not in _TEXTS:
        return
    metadata = keys.get("metadata")
    named = metadata.mapping() if metadata is not None and metadata.is_mapping else {}
    title = f"{kind} {_plain(named.get('name'))}".rstrip()
    if (texts := keys.get(_TEXTS[kind])) is not None:
        for key, value in texts.mapping().items():
            yield _entry(value, f"{title}, key {key}")
    if kind == "Secret" and (encoded := keys.get("data")) is not None:
        for key, value in encoded.mapping().items():
            yield _decoded(value, f"{title}, key {key}")


def _plain(value: YamlValue | None) -> str:
    return "" if value is None or value.is_mapping or value.is_list else value.text()


def _entry(value: YamlValue, title: str) -> ConfigText:
    node = value.node
    if not value.is_text or not isinstance(node, yaml.ScalarNode):
        raise value.wrong("a ConfigMap holds text: write | behind the key, and the file below it")
    if node.style == "|":
        above = node.start_mark.line + 1
        return ConfigText(text="\n" * above + str(node.value), file=value.file, entry=title)
    return ConfigText(text=str(node.value), file=value.file, entry=title, line=value.line)


def _decoded(value: YamlValue, title: str) -> ConfigText:
    try:
        text = base64.b64decode(value.text(), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise value.wrong("expected base64 of UTF-8 text") from error
    return ConfigText(text=text, file=value.file, entry=title, line=value.line)
