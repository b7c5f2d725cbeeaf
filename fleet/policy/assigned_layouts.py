# SPDX-License-Identifier: Apache-2.0
"""Decides which Nodes get a layout from the fleet policy. Pure.

Safety: a layout that a person wrote to a Node stays, and so does one whose entry is gone from the
policy. Only what the policy itself wrote, and nobody changed since, is replaced: a second
annotation says what that was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from api import keys
from fleet.policy.fleet_policy import FleetPolicy, PolicyEntry
from kube.objects.typed_object import Metadata

_DIGITS: Final = 10


class Assignment(StrEnum):
    """State of a Node in the fleet policy."""

    WRITTEN = "written"
    """The Node has the layout of its entry."""
    DUE = "due"
    """The Node is to get the layout of its entry."""
    OWN = "own"
    """A person wrote another layout, which stays."""
    LEFT = "left"
    """The Node has the layout of an entry that no longer selects it, which stays."""
    DISPUTED = "disputed"
    """Entries with different layouts select the Node: nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedNode:
    """A Node that the policy concerns."""

    node: str
    assignment: Assignment
    entries: tuple[str, ...] = ()
    """Names of the entries that select the Node."""
    written: PolicyEntry | None = None
    """The entry whose layout the Node has from the policy."""
    patch: Mapping[str, str] | None = None
    """Annotations to write, where that is due."""


def assigned(policy: FleetPolicy, metadata: Metadata) -> AssignedNode | None:
    """The Node's state in the policy, by its metadata; None where the policy is not about it."""
    annotations = metadata.annotations
    text, mark = annotations.get(keys.MIG_LAYOUT), annotations.get(keys.MIG_POLICY)
    entries = [entry for entry in policy.entries if entry.selector.matches(metadata.labels)]
    marks = {_mark(entry): entry for entry in entries if entry.layout == text}
    written = None if mark is None else marks.get(mark)

    def result(assignment: Assignment, patch: Mapping[str, str] | None = None) -> AssignedNode:
        return AssignedNode(
            node=metadata.name,
            assignment=assignment,
            entries=tuple(entry.name for entry in entries),
            written=written,
            patch=patch,
        )

    ours = text is not None and mark is not None and mark.endswith(_digest(text))
    if not entries:
        return result(Assignment.LEFT) if ours else None
    if len({entry.layout for entry in entries}) > 1:
        return result(Assignment.DISPUTED)
    entry = entries[0]
    if text is not None and not ours:
        return result(Assignment.OWN)
    if written == entry:
        return result(Assignment.WRITTEN)
    layout_annotations = {keys.MIG_LAYOUT: entry.layout, keys.MIG_POLICY: _mark(entry)}
    return result(Assignment.DUE, layout_annotations)


def _mark(entry: PolicyEntry) -> str:
    """Mark of a layout from the policy: the entry's name and the layout's digest."""
    return f"{entry.name}/{_digest(entry.layout)}"


def _digest(layout: str) -> str:
    return hashlib.sha256(layout.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
