# SPDX-License-Identifier: Apache-2.0
"""Labels of the node's health, from its GPUs and from how many of them each source counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from api import keys
from discovery.model import NodeSnapshot, Reason
from labelers.decision import Absent, Decision, Decisions, Keep, value
from labelers.groups.labelled_gpus import all_gpus, answering, is_driverless, without_gpus
from labelers.health import Health, HealthVerdict, gpu_verdict, severity
from labelers.label_settings import LabelSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRule:
    """A row of the health table: when it holds, the node is no better than ``health``."""

    reason: str
    health: Health
    holds: Callable[[NodeSnapshot], bool]
    meaning: str
    source: str


def _counts_too_few(snapshot: NodeSnapshot) -> bool:
    """Whether NVML counts fewer GPUs than there are, apart from silent ones.

    NVML may leave out GPUs that do not answer: these have reasons of their own. Where neither
    source lists any GPU, none is known to be missing.
    """
    counts = snapshot.counts
    if counts.why_not_listed:
        return False
    if counts.unaddressed:
        return True
    silent = len(all_gpus(snapshot)) - len(answering(snapshot))
    return counts.discrete is not None and counts.discrete < (counts.sysfs or 0) - silent


_COUNTS = "/sys/bus/pci/devices: driver; nvmlDeviceGetCount"

COUNT_RULES: tuple[CountRule, ...] = (
    CountRule(
        reason="gpu-unaddressable",
        health=Health.UNHEALTHY,
        holds=_counts_too_few,
        meaning="The node has a GPU that NVML does not count, or of which no bus id is known.",
        source=_COUNTS,
    ),
    CountRule(
        reason="gpus-not-counted",
        health=Health.UNKNOWN,
        holds=lambda node: node.counts.why_not_listed != "",
        meaning="NVML does not count its GPUs and sysfs shows none: how many there are is unknown.",
        source=_COUNTS,
    ),
    CountRule(
        reason="integrated-gpu",
        health=Health.UNKNOWN,
        holds=lambda node: node.counts.integrated > 0,
        meaning="The GPU is part of a system on chip (Jetson), which is not supported.",
        source="nvmlDeviceGetName, nvmlDeviceGetPciInfo",
    ),
    CountRule(
        reason="host-tree-missing",
        health=Health.UNKNOWN,
        holds=lambda node: node.counts.lacks_host_tree,
        meaning="sysfs below the host root shows fewer GPUs than NVML counts, or no PCI device:"
        " a GPU that is lost would not be noticed.",
        source=_COUNTS,
    ),
)
"""In order of precedence within one health; after :data:`RULES`."""


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
    if none is None or (expected and not is_driverless(snapshot)):
        return value(expected)
    return Keep(reason=none.reason, otherwise=str(expected)) if expected else none


def expected_gpus(snapshot: NodeSnapshot) -> int:
    """How many GPUs the node should have, those without a known bus id included."""
    return len(all_gpus(snapshot)) + snapshot.counts.unaddressed


def node_verdict(snapshot: NodeSnapshot) -> HealthVerdict:
    """The worst of the GPUs' verdicts and of what their counts show.

    Among equals the first in the table, then in bus order.
    """
    if is_driverless(snapshot):
        hung = any(gap.reason is Reason.HUNG for gap in snapshot.driver.gaps)
        return HealthVerdict(health=Health.UNKNOWN, reason="driver-hung" if hung else "no-driver")
    verdicts = [gpu_verdict(gpu, snapshot) for gpu in all_gpus(snapshot)]
    verdicts += [
        HealthVerdict(health=rule.health, reason=rule.reason) for rule in count_faults(snapshot)
    ]
    return min(verdicts, key=severity, default=HealthVerdict(health=Health.HEALTHY))


def count_faults(snapshot: NodeSnapshot) -> tuple[CountRule, ...]:
    """The rules about counts that hold, in the order of the table."""
    return tuple(rule for rule in COUNT_RULES if rule.holds(snapshot))
