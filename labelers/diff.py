# SPDX-License-Identifier: Apache-2.0
"""Decisions against the labels that are present: the changes that a sink has to make."""

from __future__ import annotations

from collections.abc import Mapping

from api import keys
from labelers.decision import Decision, Decisions, Keep, written_value

_UNDECIDED = Keep(reason="not one of ours, or not decided")


def changes(present: Mapping[str, str], decisions: Decisions) -> dict[str, str | None]:
    """New text of each label to change, None to remove it; sorted, empty when nothing changes.

    It is a JSON merge patch of a Node's labels. Keys without a decision are never
    in it, so labels of other owners are safe.
    """
    return {
        key: text
        for key in sorted(present.keys() | decisions.keys())
        if (text := _text(decided(key, decisions), present.get(key))) != present.get(key)
    }


def decided(key: str, decisions: Decisions) -> Decision:
    """The decision for one key: its own, else that of its family, else to keep it."""
    family = keys.label(key)
    own = decisions.get(key)
    if own is None and family is not None:
        own = decisions.get(family.name)
    return _UNDECIDED if own is None else own


def applied(present: Mapping[str, str], decisions: Decisions) -> dict[str, str]:
    """The labels as they are after :func:`changes`, sorted by key."""
    after = {**present, **changes(present, decisions)}
    return {key: text for key, text in sorted(after.items()) if text is not None}


def _text(decision: Decision, present: str | None) -> str | None:
    if isinstance(decision, Keep) and present is not None:
        return present
    return written_value(decision)
