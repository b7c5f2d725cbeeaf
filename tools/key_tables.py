# SPDX-License-Identifier: Apache-2.0
"""The tables of what gpuscape writes and judges: keys, health, deviations, policies."""

from __future__ import annotations

from api import keys
from api.key_kinds import Key
from api.keys import LABELS, OTHERS
from health.gpu_rules import GPU_RULES
from health.node_health import COUNT_RULES
from health.xid_classes import XIDS
from tools.access import files as access
from tools.label_deviations import DEVIATIONS
from tools.markdown import quoted, table


def label_table() -> str:
    """Every label on the Node."""
    rows = ((f"`{key.name}`", key.summary, _format(key), key.source) for key in LABELS)
    return table(("label", "meaning", "value", "source"), rows)


def other_key_table() -> str:
    """Every other key, and who alone writes it."""
    rows = ((f"`{key.name}`", key.where, key.writer, key.summary) for key in OTHERS)
    return table(("key", "on", "writer", "meaning"), rows)


def health_table() -> str:
    """What makes a GPU or the node unhealthy, worst first."""
    rules = [(rule.health, rule.reason, rule.meaning, rule.source) for rule in GPU_RULES]
    rules += [(rule.health, rule.reason, rule.meaning, rule.source) for rule in COUNT_RULES]
    return table(
        ("reason", "health", "what happened", "source"),
        (
            (f"`{reason}`", health.word, meaning, source)
            for health, reason, meaning, source in sorted(rules, key=lambda rule: -rule[0])
        ),
    )


def xid_table() -> str:
    """How XID errors count, worst first."""
    return table(
        ("XIDs", "health", "what happened", "source"),
        (
            (
                ", ".join(map(str, sorted(xid_rule.codes))),
                xid_rule.health.word,
                xid_rule.meaning,
                xid_rule.source,
            )
            for xid_rule in sorted(XIDS, key=lambda xid_rule: -xid_rule.health)
        ),
    )


def deviation_table() -> str:
    """Differences of our labels from gpu-feature-discovery's."""
    return table(
        ("about", "gpu-feature-discovery", "gpuscape", "why"),
        (
            (deviation.about, deviation.upstream, deviation.here, deviation.why)
            for deviation in DEVIATIONS
        ),
    )


def policy_table() -> str:
    """Every rule of every admission policy."""
    return table(
        ("policy", "rule", "message when it refuses"),
        (
            (f"`{policy.name}`", rule.name, rule.message)
            for policies in access.POLICIES.values()
            for policy in policies
            for rule in policy.rules
        ),
    )


def _format(key: Key) -> str:
    """The common value formats in words, others as their regular expression."""
    words = {keys.TEXT: "label text", keys.NUMBER: "number", keys.TRUTH: "`true` or `false`"}
    return words.get(key.value or "", quoted(key.value))
