# SPDX-License-Identifier: Apache-2.0
"""Verdict on a GPU: the worst of the rules that it meets and of its XID errors. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from discovery.model import GpuSnapshot, NodeSnapshot, NvidiaFacts
from health.gpu_rules import GPU_RULES
from health.health_verdict import Health, HealthVerdict
from health.xid_classes import xid_health

_RANK = {rule.reason: rank for rank, rule in enumerate(GPU_RULES)}


def gpu_verdict(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> HealthVerdict:
    """The worst verdict on a GPU; ``snapshot`` has the peers it is compared with."""
    healthy = HealthVerdict(health=Health.HEALTHY, bus_id=gpu.bus_id)
    return next(iter(gpu_verdicts(gpu, snapshot)), healthy)


def gpu_verdicts(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> tuple[HealthVerdict, ...]:
    """All causes that a GPU shows, the worst first; none for a healthy one."""
    verdicts = [
        HealthVerdict(health=rule.health, reason=rule.reason, bus_id=gpu.bus_id)
        for rule in GPU_RULES
        if rule.holds(gpu, snapshot)
    ]
    if gpu.nvidia is not None:
        verdicts += xid_verdicts(gpu.bus_id, gpu.nvidia)
    return tuple(sorted(verdicts, key=severity))


def xid_verdicts(bus_id: str, nvidia: NvidiaFacts) -> Iterator[HealthVerdict]:
    """A verdict for each XID of a GPU that is not over."""
    for xid in nvidia.xids:
        health = xid_health(xid.code, recovered=nvidia.recovery_action == 0)
        if not xid.over and health is not Health.HEALTHY:
            yield HealthVerdict(health=health, reason=f"xid-{xid.code}", bus_id=bus_id)


def severity(verdict: HealthVerdict) -> tuple[int, int]:
    """Sort key: the worst first, among equals by the table; reasons not in it come last."""
    return (-verdict.health, _RANK.get(verdict.reason, len(_RANK)))
