# SPDX-License-Identifier: Apache-2.0
"""Verdict on a node: the worst of its GPUs, and of how many GPUs each source counts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from discovery.model import NodeSnapshot, Reason
from health.gpu_health import gpu_verdict, severity
from health.health_verdict import Health, HealthCause, HealthVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRule(HealthCause):
    """A cause that the numbers of GPUs show."""

    holds: Callable[[NodeSnapshot], bool]


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
    silent = len(snapshot.gpus) - len(snapshot.answering)
    return counts.discrete is not None and counts.discrete < (counts.sysfs or 0) - silent


_COUNTS = "/sys/bus/pci/devices: driver; nvmlDeviceGetCount"

COUNT_RULES: tuple[CountRule, ...] = (
    CountRule(
        reason="gpu-unaddressable",
        health=Health.UNHEALTHY,
        holds=_counts_too_few,
        meaning="The node has a GPU that NVML does not count, or whose bus id is unknown.",
        source=_COUNTS,
        fix="Search the kernel log for NVRM lines, then reset the GPU or reboot the node; in a pod"
        " set NVIDIA_VISIBLE_DEVICES=all.",
        page="runbooks/GpuDown.md",
    ),
    CountRule(
        reason="gpus-not-counted",
        health=Health.UNKNOWN,
        holds=lambda node: node.counts.why_not_listed != "",
        meaning="NVML gives no number of GPUs and sysfs shows none: their number is unknown.",
        source=_COUNTS,
        fix="Search the kernel log for NVRM lines; in a pod mount the host's /sys below host-root.",
        page="runbooks/GpuscapeDriverSilent.md",
    ),
    CountRule(
        reason="integrated-gpu",
        health=Health.UNKNOWN,
        holds=lambda node: node.counts.integrated > 0,
        meaning="The GPU is part of a system on chip (Jetson), which is not supported.",
        source="nvmlDeviceGetName, nvmlDeviceGetPciInfo",
        fix="Exclude such nodes with the DaemonSet's nodeSelector; NVIDIA's device plugin serves"
        " them.",
        page="labels.md",
    ),
    CountRule(
        reason="host-tree-missing",
        health=Health.UNKNOWN,
        holds=lambda node: node.counts.lacks_host_tree,
        meaning="sysfs below the host root shows fewer GPUs than NVML counts, or no PCI device:"
        " a GPU that is lost would not be noticed.",
        source=_COUNTS,
        fix="Mount the host's /sys read-only, and set host-root to the folder that contains it.",
        page="operation.md",
    ),
)
"""In order of precedence within one health; after :data:`health.gpu_rules.GPU_RULES`."""


def expected_gpus(snapshot: NodeSnapshot) -> int:
    """How many GPUs the node should have, those without a known bus id included."""
    return len(snapshot.gpus) + snapshot.counts.unaddressed


def node_verdict(snapshot: NodeSnapshot) -> HealthVerdict:
    """The worst of the GPUs' verdicts and of what their counts show.

    Among equals the first in the table, then in bus order.
    """
    if snapshot.is_driverless:
        hung = any(gap.reason is Reason.HUNG for gap in snapshot.driver.gaps)
        return HealthVerdict(health=Health.UNKNOWN, reason="driver-hung" if hung else "no-driver")
    verdicts = [gpu_verdict(gpu, snapshot) for gpu in snapshot.gpus]
    verdicts += [
        HealthVerdict(health=rule.health, reason=rule.reason) for rule in count_faults(snapshot)
    ]
    return min(verdicts, key=severity, default=HealthVerdict(health=Health.HEALTHY))


def count_faults(snapshot: NodeSnapshot) -> tuple[CountRule, ...]:
    """The rules about counts that hold, in the order of the table."""
    return tuple(rule for rule in COUNT_RULES if rule.holds(snapshot))
