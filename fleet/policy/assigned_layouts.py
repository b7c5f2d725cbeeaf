# SPDX-License-Identifier: Apache-2.0
"""What the fleet policy writes to which Nodes. Pure.

Safety: a layout that a person wrote to a Node stays, and so does one whose entry is gone from the
policy. Only what the policy itself wrote, and nobody changed since, is replaced: a second
annotation says what that was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from api import keys
from fleet.policy.fleet_policy import FleetPolicy, PolicyEntry

_DIGITS: Final = 10


class Assignment(StrEnum):
    """What the policy is to a Node."""

    WRITTEN = "written"
    """It has the layout of its entry."""
    DUE = "due"
    """It is to get it."""
    OWN = "own"
    """A person wrote another one, which stays."""
    LEFT = "left"
    """It has one of an entry that selects it no more; it stays."""
    DISPUTED = "disputed"
    """Entries with different layouts select it: nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedNode:
    """One Node that the policy has to do with."""

    node: str
    assignment: Assignment
    entries: tuple[str, ...] = ()
    """Names of those that select it."""
    patch: Mapping[str, str] | None = None
    """Annotations to write, where that is due."""


def entry_of(policy: FleetPolicy, metadata: Mapping[str, Any]) -> PolicyEntry | None:
    """The entry whose layout a Node has from the policy; None where it has none from there."""
    annotations = metadata.get("annotations") or {}
    text, mark = annotations.get(keys.MIG_LAYOUT), annotations.get(keys.MIG_POLICY)
    if text is None or mark is None:
        return None
    for one in _selecting(policy, metadata):
        if one.layout == text and mark == _mark(one):
            return one
    return None


def assigned(policy: FleetPolicy, metadata: Mapping[str, Any]) -> AssignedNode | None:
    """What is to become of a Node, by its metadata; None where the policy does not concern it."""
    annotations = metadata.get("annotations") or {}
    text, mark = annotations.get(keys.MIG_LAYOUT), annotations.get(keys.MIG_POLICY)
    entries = tuple(_selecting(policy, metadata))
    named = tuple(one.name for one in entries)

    def found(assignment: Assignment, patch: Mapping[str, str] | None = None) -> AssignedNode:
        return AssignedNode(
            node=metadata["name"], assignment=assignment, entries=named, patch=patch
        )

    ours = text is not None and mark is not None and mark.endswith(_digest(text))
    if not entries:
        return found(Assignment.LEFT) if ours else None
    if len({one.layout for one in entries}) > 1:
        return found(Assignment.DISPUTED)
    entry = entries[0]
    if text is not None and not ours:
        return found(Assignment.OWN)
    if text == entry.layout and mark == _mark(entry):
        return found(Assignment.WRITTEN)
    wanted = {keys.MIG_LAYOUT: entry.layout, keys.MIG_POLICY: _mark(entry)}
    return found(Assignment.DUE, wanted)


def _selecting(policy: FleetPolicy, metadata: Mapping[str, Any]) -> Iterator[PolicyEntry]:
    labels = metadata.get("labels") or {}
    return (one for one in policy.entries if one.selector.matches(labels))


def _mark(entry: PolicyEntry) -> str:
    """Who wrote the layout, and which one it was."""
    return f"{entry.name}/{_digest(entry.layout)}"


def _digest(layout: str) -> str:
    return hashlib.sha256(layout.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
