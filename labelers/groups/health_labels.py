# SPDX-License-Identifier: Apache-2.0
"""Labels of the node's health, of expected and of found GPUs. Pure."""

from __future__ import annotations

from api import keys
from discovery.model import NodeSnapshot
from health.node_health import expected_gpus, node_verdict
from labelers.decision import Absent, Decision, Decisions, Keep, value
from labelers.groups.labelled_gpus import answering, without_gpus
from labelers.label_settings import LabelSettings


def health_labels(snapshot: NodeSnapshot, _: LabelSettings) -> Decisions:
    """Labels about health: expected and found GPUs, the node's health and its reason."""
    none = without_gpus(snapshot)
    if isinstance(none, Absent):
        return {key.name: none for key in keys.HEALTHS}
    verdict = node_verdict(snapshot)
    return {
        keys.EXPECTED: _expected(snapshot, none),
        keys.FOUND: none or value(len(answering(snapshot))),
        keys.HEALTH: value(verdict.health.word),
        keys.HEALTH_REASON: value(verdict.reason) if verdict.reason else Absent(reason="healthy"),
    }


def _expected(snapshot: NodeSnapshot, none: Keep | None) -> Decision:
    """The number of expected GPUs; kept without a driver, where nothing new is known of it."""
    expected = expected_gpus(snapshot)
    if none is None or (expected and not snapshot.is_driverless):
        return value(expected)
    return Keep(reason=none.reason, otherwise=str(expected)) if expected else none
