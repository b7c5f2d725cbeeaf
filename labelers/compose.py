# SPDX-License-Identifier: Apache-2.0
"""All labels of one snapshot: every labeler runs, and each key has one owner.

A labeler that fails is a bug, and costs its own labels only: they are kept as they
are on the node, and the failure is returned to be counted. Every value is checked
alone; one that is no legal label drops that label and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from api import keys
from api.key_kinds import Key
from discovery.model import NodeSnapshot
from labelers.decision import Absent, Decision, Decisions, Keep, written_value
from labelers.diff import applied
from labelers.groups.capability_labels import capability_labels
from labelers.groups.driver_labels import driver_labels
from labelers.groups.hardware_labels import hardware_labels
from labelers.groups.health_labels import health_labels
from labelers.groups.node_labels import node_labels
from labelers.groups.resource_labels import resource_labels
from labelers.groups.rule_labels import rule_labels
from labelers.groups.topology_labels import link_labels
from labelers.label_settings import LabelSettings
from labelers.label_values import key_fault, value_fault


class Labeler(NamedTuple):
    """A labeler and the keys that it owns; it decides all of them and no others."""

    name: str
    keys: tuple[Key, ...]
    decide: Callable[[NodeSnapshot, LabelSettings], Decisions]


LABELERS: tuple[Labeler, ...] = (
    Labeler("node", keys.NODE, node_labels),
    Labeler("driver", keys.DRIVER, driver_labels),
    Labeler("capabilities", keys.CAPABILITIES, capability_labels),
    Labeler("resources", keys.RESOURCES, resource_labels),
    Labeler("hardware", keys.HARDWARE, hardware_labels),
    Labeler("links", keys.LINKS, link_labels),
    Labeler("health", keys.HEALTHS, health_labels),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDecision:
    """The decision for one key, with the labeler that made it."""

    key: str
    decision: Decision
    labeler: str
    registered: Key | None
    """The key's registration; None for a key that nobody owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelerFailure:
    """A labeler that raised, or did not keep to its keys."""

    labeler: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDecisions:
    """All label decisions for one snapshot."""

    rows: tuple[KeyDecision, ...]
    """Sorted by key; each key once."""
    failures: tuple[LabelerFailure, ...] = ()
    illegal: tuple[str, ...] = ()
    """Keys that were dropped because key or value is no legal label."""

    @property
    def decisions(self) -> Decisions:
        """Key, or family of keys, to decision: what :func:`labelers.diff.changes` takes."""
        return {row.key: row.decision for row in self.rows}

    @property
    def values(self) -> dict[str, str]:
        """The labels that a node without any gets, sorted by key."""
        return applied({}, self.decisions)


def decide_labels(
    snapshot: NodeSnapshot, settings: LabelSettings, labelers: Sequence[Labeler] = LABELERS
) -> LabelDecisions:
    """Decide every label of a node. Raises nothing that a labeler raises."""
    rows: list[KeyDecision] = []
    failures: list[LabelerFailure] = []
    illegal: list[str] = []
    for labeler in (*labelers, *_by_rules(settings)):
        names = {key.name: key for key in labeler.keys}
        try:
            decisions = _owned(labeler, labeler.decide(snapshot, settings))
        except Exception as error:  # whatever it is, it must not hide the other labelers
            failures.append(
                LabelerFailure(labeler=labeler.name, error=f"{type(error).__name__}: {error}")
            )
            kept = Keep(reason=f"the labeler {labeler.name} failed: {error}")
            decisions = {key.name: kept for key in labeler.keys}
        for key, decision in decisions.items():
            fault = _fault(key, decision)
            if fault is not None:
                illegal.append(key)
            decided = decision if fault is None else Absent(reason=fault)
            # a label of a family, such as count.MODEL, is registered by its pattern alone
            registered = names.get(key) or keys.label(key)
            rows.append(
                KeyDecision(key=key, decision=decided, labeler=labeler.name, registered=registered)
            )
    return LabelDecisions(
        rows=tuple(sorted(rows, key=lambda row: row.key)),
        failures=tuple(failures),
        illegal=tuple(sorted(illegal)),
    )


def _by_rules(settings: LabelSettings) -> tuple[Labeler, ...]:
    """The labeler of the admin's rules; none without rules."""
    if not settings.rules:
        return ()
    rule_keys = tuple(
        Key(name=rule.key, summary="by a rule of yours", source=rule.place)
        for rule in settings.rules
    )
    return (Labeler("rules", rule_keys, rule_labels),)


def _owned(labeler: Labeler, decisions: Decisions) -> Decisions:
    """The decisions, when they are about all of the labeler's keys and no others.

    Raises ValueError else, which counts as the labeler's failure.
    """
    names = {key.name for key in labeler.keys}
    foreign = [key for key in decisions if key not in names and keys.label(key) not in labeler.keys]
    missing = [key.name for key in labeler.keys if key.name not in decisions]
    if foreign or missing:
        raise ValueError(f"decided foreign keys {foreign}, left out {missing}")
    return decisions


def _fault(key: str, decision: Decision) -> str | None:
    """Why a decided value is no legal label; None for a legal one, and for no value."""
    text = written_value(decision)
    if text is None:
        return None
    if (fault := key_fault(key)) is not None:
        return f"not a legal label key: {fault}"
    if (fault := value_fault(text)) is not None:
        return f"{text!r} is not a legal label value: {fault}"
    return None
