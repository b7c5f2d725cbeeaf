# SPDX-License-Identifier: Apache-2.0
"""Labels by an admin's rules, under prefixes of his own."""

from __future__ import annotations

from collections.abc import Mapping

from discovery.model import NodeSnapshot
from labelers.decision import Absent, Decision, Decisions, Keep, Value, written_value
from labelers.groups.labelled_gpus import without_answers
from labelers.groups.rule_fields import combined, field_decisions
from labelers.label_rules import LabelRule, RuleEntry, pattern_matches
from labelers.label_settings import LabelSettings


def rule_labels(snapshot: NodeSnapshot, settings: LabelSettings) -> Decisions:
    """The label of every rule; a node without GPUs has none, because rules are about GPUs."""
    none = without_answers(snapshot)
    if none is not None:
        return {rule.key: none for rule in settings.rules}
    facts = field_decisions(snapshot)
    return {rule.key: _decided(rule, facts) for rule in settings.rules}


def _decided(rule: LabelRule, facts: Mapping[str, Decision]) -> Decision:
    """The value of the first entry that matches; kept where an entry before it may match too."""
    unsure: Keep | None = None
    for entry in rule.entries:
        is_met, doubt = _met(entry, facts)
        unsure = unsure or doubt
        if is_met:
            value = combined([facts[name] for name in entry.fields], entry.filled)
            return (
                value
                if unsure is None
                else Keep(reason=unsure.reason, otherwise=written_value(value))
            )
    if unsure is not None:
        return unsure
    return Absent(reason=f"none of its values matches {_texts(rule, facts)}")


def _met(entry: RuleEntry, facts: Mapping[str, Decision]) -> tuple[bool, Keep | None]:
    """Whether an entry matches by the best known texts, and why that is not sure.

    A field that is known not to match decides, whatever the others are.
    """
    is_met, unsure = True, None
    for name, pattern in entry.match:
        fact = facts[name]
        text = written_value(fact)
        fits = text is not None and pattern_matches(pattern, text)
        if not fits and not isinstance(fact, Keep):
            return False, None
        is_met = is_met and fits
        if isinstance(fact, Keep):
            unsure = unsure or Keep(reason=fact.reason)
    return is_met, unsure


def _texts(rule: LabelRule, facts: Mapping[str, Decision]) -> str:
    """The fields that a rule matches, with their texts, for people."""
    names = dict.fromkeys(name for entry in rule.entries for name, _ in entry.match)
    return ", ".join(
        f"{name} {fact.text!r}" if isinstance(fact := facts[name], Value) else f"{name} (none)"
        for name in names
    )
