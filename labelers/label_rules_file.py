# SPDX-License-Identifier: Apache-2.0
"""The file with an admin's rules for labels: read, and checked as far as can be at the start. Pure.

Import it where such a file is read, not before: the parser takes memory.
"""

from __future__ import annotations

import re

from api.key_kinds import MOST_RULES, rule_key_fault
from base.errors import BadInput
from base.words import did_you_mean, quoted
from base.yaml_places import CoreLoader, YamlValue, read_yaml
from labelers.groups.rule_fields import FIELDS
from labelers.label_rules import PLACEHOLDER, LabelRule, RuleEntry
from labelers.label_values import MAX_LENGTH, value_fault

MOST_ENTRIES = 256
"""Values that one rule may have, at most."""

_MATCHABLE = re.compile(r"[A-Za-z0-9._*-]+")


def parse_label_rules(text: str, name: str) -> tuple[LabelRule, ...]:
    """Read the rules of a file that messages call ``name``.

    Raises BadInput naming file, line and key, and the fix. A file without ``labels`` is refused:
    one that was cut short must not pass for one without rules, whose labels would be removed.
    """
    root = read_yaml(text, name, loader=CoreLoader)
    root.refuse_config_map()
    top = root.mapping({"labels"})
    if "labels" not in top or top["labels"].is_null:
        raise BadInput(f"{name}: it has no rules: write labels: and a list, [] for none")
    listed = top["labels"]
    count = len(listed.items())
    if count > MOST_RULES:
        raise listed.wrong(f"{count} rules, above {MOST_RULES}")
    rules: dict[str, LabelRule] = {}
    for position in range(count):
        entry = listed.at((position,))
        rule = _rule(entry)
        if rule.key in rules:
            first = rules[rule.key].place
            raise entry.wrong(f"{rule.key} has a rule at {first}: put all its values into that one")
        rules[rule.key] = rule
    return tuple(rules.values())


def _rule(entry: YamlValue) -> LabelRule:
    parts = entry.mapping({"key", "value", "values"})
    if "key" not in parts:
        raise entry.wrong("key is missing, such as example.com/gpu-type")
    key = parts["key"].text()
    if (fault := rule_key_fault(key)) is not None:
        raise parts["key"].wrong(f"{quoted(key)} cannot be a label of a rule: {fault}")
    if ("value" in parts) == ("values" in parts):
        raise entry.wrong("give either value or values")
    if "value" in parts:
        entries: tuple[RuleEntry, ...] = (RuleEntry(value=_value(parts["value"])),)
    else:
        entries = _entries(parts["values"])
    return LabelRule(key=key, entries=entries, place=f"{entry.file}:{entry.line}")


def _entries(listed: YamlValue) -> tuple[RuleEntry, ...]:
    count = len(listed.items())
    if not 0 < count <= MOST_ENTRIES:
        raise listed.wrong(f"{count} values: give from 1 to {MOST_ENTRIES}")
    entries = []
    for position in range(count):
        entry = listed.at((position,))
        parts = entry.mapping({"match", "value"})
        if "value" not in parts:
            raise entry.wrong("value is missing")
        match = _match(parts["match"]) if "match" in parts else ()
        if not match and position + 1 < count:
            raise entry.wrong("without match it is always taken: put it last")
        entries.append(RuleEntry(value=_value(parts["value"]), match=match))
    return tuple(entries)


def _match(written: YamlValue) -> tuple[tuple[str, str], ...]:
    fields = written.mapping(FIELDS)
    if not fields:
        raise written.wrong(f"name at least one of {', '.join(FIELDS)}, or leave match out")
    match = []
    for name, value in fields.items():
        pattern = value.text()
        if not _MATCHABLE.fullmatch(pattern):
            raise value.wrong(
                f"{quoted(pattern)} can match nothing: values of labels have letters, digits, '-',"
                " '_' and '.' alone, and a name's blanks are dashes; * stands for any text"
            )
        match.append((name, pattern))
    return tuple(match)


def _value(written: YamlValue) -> str:
    """A value that can become a legal label; placeholders stand for at least one character."""
    if written.is_null or written.is_mapping or written.is_list:
        raise written.wrong('expected text; put braces into quotes, as in "{memory-gib}Gi"')
    text = written.text()
    for name in PLACEHOLDER.findall(text):
        if name not in FIELDS:
            meant = did_you_mean(name, FIELDS) or f": known are {', '.join(FIELDS)}"
            raise written.wrong(f"unknown field {quoted(name)}{meant}")
    shortest = PLACEHOLDER.sub("0", text)
    if (fault := value_fault(shortest)) is not None:
        raise written.wrong(
            f"{quoted(text)} makes no legal label value: {fault}; it is empty, or has up to"
            f" {MAX_LENGTH} letters, digits, '-', '_' and '.', a letter or digit first and last"
        )
    return text
