# SPDX-License-Identifier: Apache-2.0
"""Reads the fleet policy, a document in a ConfigMap: label selectors of Nodes, and their layouts.

It is read as a whole or not at all, so that a mistake in one entry changes no node. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from base.errors import BadInput
from base.words import quoted
from base.yaml_places import CoreLoader, YamlValue, read_yaml
from fleet.mig_node import DrainMode
from kube.label_selector import LabelSelector, parse_label_selector
from mig.configs.layout_annotation import parse_layout_annotation

MOST_ENTRIES: Final = 200
_KEYS: Final = ("version", "paused", "layouts")
_ENTRY_KEYS: Final = ("name", "nodes", "layout", "drain")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
_DIGITS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A layout, and the Nodes that are to have it."""

    name: str
    selector: LabelSelector
    layout: str
    """Text for the annotation ``gpuscape.io/mig-layout``."""
    drain: DrainMode | None = None
    """How pods leave; None: as the coordinator is set."""
    place: str = field(compare=False, default="")
    """Place in the document, with which messages begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """The whole document."""

    entries: tuple[PolicyEntry, ...]
    paused: bool = False
    """Whether no layout is written, and no node begins a change."""

    @property
    def revision(self) -> str:
        """Digest of the entries, equal for documents that mean the same."""
        meant = [
            (entry.name, sorted(map(repr, entry.selector.requirements)), entry.layout, entry.drain)
            for entry in self.entries
        ]
        return hashlib.sha256(json.dumps(meant).encode()).hexdigest()[:_DIGITS]


def parse_fleet_policy(text: str, source: str) -> FleetPolicy:
    """The policy in ``text``, which messages call ``source``.

    Raises BadInput naming file, line and key; nothing else, whatever the text is.
    """
    top = read_yaml(text, source, loader=CoreLoader)
    entries = top.mapping(_KEYS)
    version = _required(top, entries, "version", "write v1")
    if version.text() != "v1":
        raise version.wrong("only the format v1 is known")
    layouts = _required(top, entries, "layouts", "write [] for none")
    items = layouts.items()
    if len(items) > MOST_ENTRIES:
        raise layouts.wrong(f"more than {MOST_ENTRIES} entries")
    policy_entries = tuple(map(_entry, items))
    places: dict[str, str] = {}
    for entry in policy_entries:
        if entry.name in places:
            raise BadInput(f"{entry.place}: the name {entry.name} is taken by {places[entry.name]}")
        places[entry.name] = entry.place
    paused = "paused" in entries and entries["paused"].flag()
    return FleetPolicy(entries=policy_entries, paused=paused)


def _entry(value: YamlValue) -> PolicyEntry:
    entries = value.mapping(_ENTRY_KEYS)
    name = _required(value, entries, "name", "such as inference")
    if not _NAME.fullmatch(name.text()):
        raise name.wrong(
            f"{quoted(name.text())}: up to 40 characters, small letters, digits and dashes"
        )
    nodes = _required(value, entries, "nodes", "a label selector, such as pool=a100")
    if not nodes.text().strip():
        raise nodes.wrong("it would select every Node: write a label selector, such as pool=a100")
    try:
        selector = parse_label_selector(nodes.text())
    except BadInput as error:
        raise nodes.wrong(str(error)) from error
    layout = _required(value, entries, "layout", "the name of a configuration, or a layout")
    drain = entries.get("drain")
    return PolicyEntry(
        name=name.text(),
        selector=selector,
        layout=_layout(layout),
        drain=None if drain is None else DrainMode(drain.one_of(tuple(DrainMode))),
        place=value.place,
    )


def _layout(value: YamlValue) -> str:
    """The layout on one line, checked as far as it can be without GPUs."""
    if value.is_mapping:
        text = json.dumps(value.content(), sort_keys=True)
    elif value.is_text:
        text = value.text().strip()
    else:
        raise value.wrong("expected the name of a configuration, or GPUs with layouts")
    parse_layout_annotation(text, value.place)
    return text


def _required(parent: YamlValue, entries: Mapping[str, YamlValue], key: str, fix: str) -> YamlValue:
    value = entries.get(key)
    if value is None or value.is_null:
        raise parent.wrong(f"{key} is missing: {fix}")
    return value
